"""The main program of a worker process: one factory at the start, then one job after another.

Started by `processes.py` as a fresh interpreter, never as a fork of the trainer. Messages are
pickles over two pipes. What the job prints goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any


class RemoteError(Exception):
    """An error raised in another process: type and message in one text."""


def _limit_memory(num_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # not a Unix system: the parent's clock still holds
        return
    try:
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
    except (OSError, ValueError):  # a lower hard limit is already set, or macOS refuses
        return


@contextmanager
def _ended_with_parent(requests: Connection) -> Iterator[None]:
    """While a job runs the parent sends nothing, so an event on the pipe means that it has died.

    The system then ends this process (the default action of SIGIO), whatever the job is doing.
    """
    try:
        import fcntl
    except ImportError:  # not a Unix system: the process ends after the job
        yield
        return
    number = requests.fileno()
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(number, fcntl.F_SETFL, flags | fcntl.FASYNC)
    if select.select([requests], [], [], 0)[0]:  # it died before
        os._exit(0)
    try:
        yield
    finally:
        fcntl.fcntl(number, fcntl.F_SETFL, flags)


def main() -> None:
    """Reads jobs from standard input until it closes; replies on what was standard output."""
    with suppress(EOFError, OSError):  # the parent has ended, so there is nobody to report to
        _serve()


def _serve() -> None:
    requests = Connection(os.dup(0), writable=False)
    replies = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    target, arguments, memory_limit = requests.recv()
    try:
        module, _, attribute = target.partition(":")
        handle = getattr(importlib.import_module(module), attribute)(*arguments)
    except Exception as error:  # noqa: BLE001 (the parent raises it)
        replies.send(("error", f"{type(error).__name__}: {error}"))
        return
    replies.send(("ready", None))
    if memory_limit:
        _limit_memory(memory_limit)
    while True:
        job = requests.recv()
        with _ended_with_parent(requests):
            reply = _reply(handle, job)
        replies.send(reply)


def _reply(handle: Any, job: Any) -> tuple[str, Any]:
    try:
        result = handle(job)
        pickle.dumps(result)
    except MemoryError:
        return "out_of_memory", None
    except RemoteError as error:
        return "error", str(error)
    except Exception as error:  # noqa: BLE001 (the parent decides what it means)
        return "error", f"{type(error).__name__}: {error}"
    return "ok", result
