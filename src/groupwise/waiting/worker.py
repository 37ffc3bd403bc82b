"""The inside of a worker process: one factory at the start, then one job after another.

Started by `workers.py` as a fresh interpreter, never as a fork of the trainer. Frames are a length
of 8 bytes and a pickle, both ways. What the job prints goes to standard error. A second clock, in
the process itself, ends it where the parent has died while a job was running.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import struct
from typing import IO, Any


class ToldError(Exception):
    """An error of another process or place, told whole: type and message in one text."""


def read_frame(stream: IO[bytes]) -> Any:
    """The next message; `EOFError` where the other side has closed."""
    header = _read_exactly(stream, 8)
    (length,) = struct.unpack("<Q", header)
    return pickle.loads(_read_exactly(stream, length))


def write_frame(stream: IO[bytes], message: Any) -> None:
    """One message, flushed."""
    raw = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(raw)) + raw)
    stream.flush()


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    raw = stream.read(length)
    if len(raw) != length:
        raise EOFError
    return raw


def _limit_memory(num_bytes: int) -> None:
    """Caps the address space, where the system can."""
    try:
        import resource
    except ImportError:  # not a Unix system: the parent's clock still holds
        return
    try:
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
    except (OSError, ValueError):  # a lower hard limit is already set, or macOS refuses
        return


def _set_clock(seconds: float) -> None:
    """Ends this process after `seconds` by the default action of SIGALRM; 0 takes it back."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main() -> None:
    """Reads jobs from standard input until it closes; replies on what was standard output.

    A pipe that closes is the parent's end, at any moment: nothing to report, and nobody to hear it.
    """
    try:
        _serve()
    except BrokenPipeError:
        os._exit(0)  # an unsent reply would raise once more where its stream is closed


def _serve() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        target, arguments, memory_limit = read_frame(requests)
    except EOFError:
        return
    try:
        module, _, attribute = target.partition(":")
        handle = getattr(importlib.import_module(module), attribute)(*arguments)
    except Exception as error:  # noqa: BLE001 (told to the parent, which raises it)
        write_frame(replies, ("error", f"{type(error).__name__}: {error}"))
        return
    write_frame(replies, ("ready", None))
    if memory_limit:
        _limit_memory(memory_limit)
    while True:
        try:
            job, seconds = read_frame(requests)
        except EOFError:
            return
        _set_clock(3 * seconds + 5)
        reply = _reply(handle, job)
        _set_clock(0)
        write_frame(replies, reply)


def _reply(handle: Any, job: Any) -> tuple[str, Any]:
    try:
        result = handle(job)
        pickle.dumps(result)
    except MemoryError:
        return "out_of_memory", None
    except ToldError as error:
        return "error", str(error)
    except Exception as error:  # noqa: BLE001 (told to the parent, which decides what it means)
        return "error", f"{type(error).__name__}: {error}"
    return "ok", result
