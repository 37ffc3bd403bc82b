"""Running what the policy wrote: answering calls one at a time, or as a program on stdin.

Everything here runs in a process that the code under test controls; nothing here decides anything.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import errno
import functools
import importlib
import io
import os
import resource
import selectors
import socket
import stat
import sys
import threading
import types
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .frames import read_frame, write_frame
from .values import ANY_NUMBER, Unencodable, decode, encode, encode_given

MAX_MESSAGE = 300

PRELOADED = ("typing", "collections", "heapq", "bisect", "itertools", "functools", "math", "string",
             "operator", "random", "re", "copy")  # fmt: skip
"""Modules that a LeetCode solution finds imported, with their names."""


def settle() -> None:
    """In the zygote, for all of its children: streams on descriptors 0 to 2, and no threads.

    `Thread.start` runs the thread to its end at once: right for the idiom that starts one thread to
    get a deeper stack, wrong for threads that wait for each other. An executor runs each call at
    once. Event loops use pipes and poll(2) in place of the sockets and epoll that they cannot have.
    """
    streams: Any = sys
    streams.stdin = streams.__stdin__ = _stream(0, "r", "strict")
    streams.stdout = streams.__stdout__ = _stream(1, "w", "strict")
    streams.stderr = streams.__stderr__ = _stream(2, "w", "backslashreplace")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)
    for holder, name, value in _REPLACED:
        setattr(holder, name, value)
    for name in ("exit", "quit"):  # the module `site`, which makes them, is not loaded
        setattr(builtins, name, sys.exit)


def _stream(descriptor: int, mode: str, errors: str) -> Any:
    return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)


def _submitted(_: Any, call: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(call(*arguments, **keywords))
    except BaseException as error:  # noqa: BLE001 (raised again by `result`)
        future.set_exception(error)
    return future


def _pipe_ends(*_: Any, **__: Any) -> list[Any]:
    """The ends of a pipe, with the methods of a socket that event loops use to wake themselves."""
    return [
        types.SimpleNamespace(
            fileno=lambda end=end: end,
            setblocking=functools.partial(os.set_blocking, end),
            recv=functools.partial(os.read, end),
            send=functools.partial(os.write, end),
            close=functools.partial(os.close, end),
        )
        for end in os.pipe()
    ]


def _fstat(descriptor: int) -> os.stat_result:
    """`os.fstat` by seeking, as the filter forbids fstat(2): a file's size, or a pipe."""
    try:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        return os.stat_result([stat.S_IFIFO | 0o600, 0, 0, 1, *[0] * 6])
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.stat_result([stat.S_IFREG | 0o600, 0, 0, 1, 0, 0, size, 0, 0, 0])


_REPLACED: list[tuple[Any, str, Any]] = [
    (threading.Thread, "start", lambda thread: thread.run()),
    (threading.Thread, "join", lambda thread, timeout=None: None),
    (ThreadPoolExecutor, "submit", _submitted),
    (socket, "socketpair", _pipe_ends),
    (selectors, "DefaultSelector", selectors.PollSelector),
    (os, "fstat", _fstat),
    # the filter lets no limit be set, and programs ask for a deeper stack
    (resource, "setrlimit", lambda which, *given, _set=resource.setrlimit:
        None if which == resource.RLIMIT_STACK else _set(which, *given)),
]  # fmt: skip


def module(source: str, name: str) -> dict[str, Any]:
    """Executes `source` as the module `name`; its namespace."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    if "class Solution" in source:
        made.__dict__["__builtins__"] = {**vars(builtins), **preloaded()}
    exec(compile(source, f"<{name}>", "exec", dont_inherit=True), made.__dict__)
    return made.__dict__


@functools.cache
def preloaded() -> dict[str, Any]:
    """What LeetCode imports for a `class Solution`, less what would hide a built-in."""
    modules = {name: importlib.import_module(name) for name in PRELOADED}
    names = {
        name: value
        for each in modules.values()
        for name, value in vars(each).items()
        if name[0] != "_" and not hasattr(builtins, name)
    }
    return names | modules


def describe(error: BaseException) -> list[str]:
    """An exception as data: its type, its message, the built-in type it derives from."""
    message = ""
    with contextlib.suppress(BaseException):
        message = str(error)[:MAX_MESSAGE]
    base = next(
        (
            each.__name__
            for each in type(error).__mro__
            if getattr(builtins, each.__name__, 0) is each
        ),
        "Exception",
    )
    return [type(error).__name__, message, base]


def serve(job: Mapping[str, Any]) -> None:
    """Loads the source, then answers `[nonce, entry, arguments, keywords, mutated]` until EOF.

    A reply is `[nonce, "value", value, arguments or None]`, `[nonce, "error", what]`,
    `[nonce, "not_data", why]` for a value that cannot be sent, or `[nonce, "memory"]`; where the
    loading failed, what came of it. `what` is an exception's description and its arguments or None.
    """
    namespace: dict[str, Any] = {}

    def load() -> list[Any]:
        namespace.update(module(job["source"], "solution"))
        return ["value"]

    loaded = _guarded(load)
    while True:
        try:
            nonce, *call = read_frame()
        except EOFError:
            return
        works = loaded[0] == "value"
        write_frame([nonce, *(_guarded(lambda: _call(namespace, *call)) if works else loaded)])  # noqa: B023


def _guarded(action: Any) -> list[Any]:
    try:
        return list(action())
    except MemoryError:
        return ["memory"]
    except BaseException as error:  # noqa: BLE001 (the code under test raised it; sent as data)
        return ["error", [*describe(error), _arguments_of(error)]]


def _arguments_of(error: BaseException) -> Any:
    """The exception's arguments as data; None where they cannot be sent."""
    with contextlib.suppress(BaseException):
        return encode(error.args)
    return None


def _call(
    namespace: dict[str, Any], entry: str, arguments: Any, keywords: Any, mutated: bool
) -> list[Any]:
    function = lookup(namespace, entry)
    positional = [decode(each, max_hashed=ANY_NUMBER) for each in arguments]
    named = {name: decode(each, max_hashed=ANY_NUMBER) for name, each in keywords.items()}
    given = [*positional, *named.values()]
    value = function(*positional, **named)
    after = None
    try:
        encoded = (encode_given if mutated else encode)(value)
        if mutated and any(isinstance(each, (list, dict, set, bytearray, deque)) for each in given):
            after = [encode(each) for each in given]
    except Unencodable as error:
        return ["not_data", str(error)[:MAX_MESSAGE]]
    return ["value", encoded, after]


def lookup(namespace: dict[str, Any], entry: str) -> Any:
    """`f`, `Class.method` (of a fresh instance), or a method of `Solution`. `NameError`."""
    name, _, method = entry.partition(".")
    if name in namespace:
        found = namespace[name]
        return getattr(found(), method) if method else found
    holder = namespace.get("Solution")
    if not method and hasattr(holder, name):
        return getattr(holder(), name)  # type: ignore[misc]
    raise NameError(f"name {entry!r} is not defined")


def run_program(job: Mapping[str, Any]) -> int:
    """Runs the source as `__main__`; the exit code. How it ended is sent in one frame."""
    code, frame = 0, ["ended", 0]
    try:
        try:
            module(job["source"], "__main__")
        except SystemExit as stop:
            failed = stop.code is not None
            code = stop.code & 0xFF if isinstance(stop.code, int) else int(failed)
            frame = ["ended", code]
        atexit._run_exitfuncs()
        for each in [*getattr(sys.modules.get("__main__"), "__dict__", {}).values()]:
            if isinstance(each, io.IOBase) and not each.closed:
                each.flush()  # what it opened on a descriptor, as the interpreter's end would
        sys.stdout.flush()
    except MemoryError:
        code, frame = 1, ["memory"]
    except BaseException as error:  # noqa: BLE001 (the code under test raised it; sent as data)
        code, frame = 1, ["error", describe(error)]
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
    with contextlib.suppress(OSError):
        write_frame(frame)
    return code
