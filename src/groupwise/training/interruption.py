"""Ctrl-C and SIGTERM end a run between two steps, after a checkpoint; a second ends it at once."""

from __future__ import annotations

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


class Interruption:
    """A context in which SIGINT and SIGTERM are noted in `number` instead of raised.

    Outside the main thread nothing is installed: only the main thread can handle signals.
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

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.number is not None:
            raise Interrupted(number, "interrupted a second time; ended without a new checkpoint")
        self.number = number
