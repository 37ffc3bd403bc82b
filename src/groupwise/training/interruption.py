"""Ctrl-C and SIGTERM end a run between two steps, after a checkpoint; a second ends it at once.

The first waits for the step that is running: for sampling at most `sampling.deadline`, for a
verifier at most its deadline. The second is raised wherever the run is, a verifier's own code
included, as a `KeyboardInterrupt`, so that `except Exception` does not take it for an error.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from groupwise.errors import GroupwiseError


class Interrupted(GroupwiseError):  # noqa: N818 - it is no error
    """A run was asked to end, and did. Exit code 128 + the signal's number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class _AtOnce(KeyboardInterrupt):
    """A second signal, on its way out of whatever was running."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interruption:
    """A context in which SIGINT and SIGTERM are noted in `number` instead of raised.

    A second signal leaves the context as `Interrupted`. Outside the main thread nothing is
    installed: only the main thread can handle signals.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if isinstance(error, _AtOnce):
            raise Interrupted(
                error.number, "interrupted a second time; ended without a new checkpoint"
            ) from error

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.number is not None:
            raise _AtOnce(number)
        self.number = number
        os.write(2, b"groupwise: ends after this step; a second signal ends it at once\n")
