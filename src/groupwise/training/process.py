"""What a run changes in its process and puts back: signals, working directory, freed memory."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, chdir, nullcontext
from functools import cache
from types import FrameType
from typing import Any, ClassVar, Self

from groupwise.errors import GroupwiseError
from groupwise.instants import pulse


class Interrupted(GroupwiseError):  # noqa: N818 (not an error)
    """A run was asked to stop, and did. Exit code 128 + the signal's number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class _AtOnce(KeyboardInterrupt):
    """A second signal, or a grace period that is over, on its way out of whatever was running.

    Not an `Exception`, so that user code does not catch it as an error.
    """


class Interruption:
    """A context in which the first SIGINT or SIGTERM is noted in `number` instead of raised.

    The run stops after the step that is running, with a checkpoint. A second signal leaves the
    context at once, as `Interrupted`; so does the next instant of the main thread's work once
    `grace` seconds have passed since SIGTERM and the step has not ended. Outside the main thread
    nothing is installed: only the main thread can handle signals, and another process asks through
    `active`. `resume_at` is the step that a resumed run would begin with; None where there are no
    steps.
    """

    active: ClassVar[Interruption | None] = None

    def __init__(self, grace: float | None = None) -> None:
        self.number: int | None = None
        self.resume_at: int | None = None
        self._grace = grace
        self._deadline = math.inf
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        Interruption.active = self
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
            pulse.check = self._leave_when_late
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
            pulse.check = None
        Interruption.active = None
        if isinstance(error, _AtOnce):
            number, why = error.args
            again = (
                "" if self.resume_at is None else f"; --resume begins with step {self.resume_at}"
            )
            message = f"{why}; stopped without a new checkpoint{again}"
            raise Interrupted(number, message) from error

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.number is not None:
            raise _AtOnce(number, "interrupted a second time")
        self.number = number
        limit = ""
        if number == signal.SIGTERM and self._grace is not None:
            self._deadline = time.monotonic() + self._grace
            limit = f", or in {self._grace:g} s without a new checkpoint"
        text = f"groupwise: stopping after this step{limit} (signal again to stop now)\n"
        os.write(2, text.encode())

    def _leave_when_late(self) -> None:
        if time.monotonic() < self._deadline or self.number is None:
            return
        if threading.current_thread() is threading.main_thread():
            raise _AtOnce(
                self.number,
                f"the step has not ended within {self._grace:g} s of the signal "
                "(checkpoints.grace_seconds)",
            )


def kept_directory() -> AbstractContextManager[None]:
    """Restores the working directory, which a reward function tried inside may change."""
    try:
        return chdir(os.getcwd())
    except OSError:  # it was deleted: nothing is relative to it
        return nullcontext()


# A pass allocates gigabytes of activations and frees them again. glibc maps each large tensor anew,
# and the system then clears it a page at a time: a third of a pass on a CPU. Kept, the same memory
# serves every pass; what lies unused between pieces in use adds up over passes of different
# lengths, so it is trimmed now and then. Names and defaults of malloc.h and mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULT_MAPPINGS, _DEFAULT_TRIM = 65_536, 128 * 1024
_NEVER = 2**31 - 1


@cache
def _glibc() -> Any:
    """The C library, None where it is not glibc."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    known = all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt"))
    return library if known else None


_keeps = False
"""Whether this process keeps freed memory now; like glibc's rule, one for the whole process."""


def keep_freed_memory() -> bool:
    """From now on freed memory stays in this process. False where the C library cannot."""
    global _keeps
    library = _glibc()
    _keeps = library is not None and bool(
        library.mallopt(_MMAP_MAX, 0) and library.mallopt(_TRIM_THRESHOLD, _NEVER)
    )
    return _keeps


def trim_freed_memory() -> None:
    """Returns what was kept and is free now to the system, this once."""
    if _keeps:
        _glibc().malloc_trim(0)


def give_back_freed_memory() -> None:
    """Returns what was kept and restores glibc's own rule.

    Does nothing where nothing was kept: the rule may be one that the user set.
    """
    global _keeps
    if not _keeps:
        return
    trim_freed_memory()
    _glibc().mallopt(_MMAP_MAX, _DEFAULT_MAPPINGS)
    _glibc().mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM)
    _keeps = False
