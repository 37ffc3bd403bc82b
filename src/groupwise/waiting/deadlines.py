"""Deadlines for user code: a call in a thread is abandoned, one in the main thread is named.

Python can end neither a thread nor a call in the main thread. What has to end for certain runs in a
process that can be killed (`processes.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

_NOT_USER_CODE = (str(Path(__file__).parents[1]), str(Path(threading.__file__).parent))

logger = logging.getLogger("groupwise")


class DeadlinePassed(Exception):  # noqa: N818 (it names what happened)
    """A call did not end within its deadline; the message says where it was then."""


def is_user_error(error: BaseException) -> bool:
    """Whether user code raised it, as opposed to an interruption of the run.

    `sys.exit`, a cancelled task or a test library's failure in a verifier must not end the run
    without naming it, though none of them is an `Exception`.
    """
    return not isinstance(error, KeyboardInterrupt)


class BackgroundCall(Generic[Value]):
    """A call that runs in its own daemon thread, from now on.

    >>> BackgroundCall(lambda: 3 + 4).result()
    7
    """

    def __init__(self, call: Callable[[], Value]) -> None:
        self._call = call
        self._values: list[Value] = []
        self.error: BaseException | None = None
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._values.append(self._call())
        except BaseException as error:  # noqa: BLE001 (raised by `result`)
            self.error = error

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def result(self, seconds: float | None = None) -> Value:
        """Its value, or what it raised. `DeadlinePassed` after `seconds`; the thread is left."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            place = running_place(self._thread.ident, BackgroundCall._run.__code__)
            raise DeadlinePassed(f"no result after {seconds:g} s{place and f', in {place}'}")
        if self.error is not None:
            raise self.error
        return self._values[0]


def running_place(thread: int | None, boundary: CodeType) -> str:
    """Which user function a thread runs inside `boundary`, as `next (play.py, line 12)`.

    Empty where it runs none: it waits for something, or native code runs.
    """
    frame = sys._current_frames().get(thread or 0)
    inside: list[FrameType] = []
    while frame is not None and frame.f_code is not boundary:
        inside.append(frame)
        frame = frame.f_back
    if frame is None:
        return ""
    for outer in reversed(inside):
        name, file = outer.f_code.co_qualname, outer.f_code.co_filename
        if "site-packages" in file or not file.startswith(_NOT_USER_CODE):
            return f"{name} ({file}, line {outer.f_lineno})"
    return ""


def gather(awaitables: Sequence[Awaitable[Any]]) -> list[Any]:
    """Every result, in order, run together; an exception stands in its place.

    They run in an event loop of another thread: a notebook or a web server may be running one here.
    """
    if not awaitables:
        return []

    async def result(awaitable: Awaitable[Any]) -> Any:
        try:
            return await awaitable
        except BaseException as error:  # raised, it would leave the others unfinished
            if not is_user_error(error):
                raise
            return error

    async def all_results() -> list[Any]:
        return await asyncio.gather(*map(result, awaitables))

    return BackgroundCall(lambda: asyncio.run(all_results())).result()


def call_within(
    seconds: float, call: Callable[[], Value], *, name: str, abandon: bool = False
) -> Value:
    """`call()` under a deadline of `seconds` (0: none); a warning names it where it passes.

    In the main thread the call runs here, because functions that set alarms work nowhere else: it
    cannot be interrupted, and is waited for after the warning. In any other thread, and with
    `abandon`, it runs in a background thread that is left behind. Raises DeadlinePassed then.
    """
    if seconds <= 0:
        return call()
    seconds = min(seconds, threading.TIMEOUT_MAX)
    if abandon or threading.current_thread() is not threading.main_thread():
        try:
            return BackgroundCall(call).result(seconds)
        except DeadlinePassed as error:
            logger.warning("%s: %s; it is abandoned", name, error)
            raise
    thread = threading.get_ident()

    def warn() -> None:
        logger.warning(
            "%s has not returned after its deadline of %g s, and is waited for: it is in %s. It "
            "runs in the main thread, where nothing can stop it; with a time_limit it runs in a "
            "process that is killed",
            name,
            seconds,
            running_place(thread, call_within.__code__) or "no user function now",
        )

    watchdog = threading.Timer(seconds, warn)
    watchdog.daemon = True
    watchdog.start()
    try:
        return call()
    finally:
        watchdog.cancel()
