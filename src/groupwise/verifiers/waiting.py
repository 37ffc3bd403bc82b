"""Waits that end: for awaitables from ordinary code, and for calls with a deadline.

A notebook, a web server or the samplers' own loop may be running in this thread; then awaitables
run in a loop of their own in another thread, and the call waits for it. Left out: code that never
gives in, which only the end of its process stops (`workers.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

_SIGNAL = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else None
"""Interrupts the main thread when a deadline passes; alarms are left to the functions called."""
_AGAIN = 1.0
"""Seconds after which a call that caught its interruption is interrupted once more."""


class DeadlinePassed(Exception):  # noqa: N818 (it names what happened)
    """A call did not end within its deadline."""


def is_theirs(error: BaseException) -> bool:
    """Whether an exception is the verifier's own and not an interruption from outside.

    `sys.exit`, a cancelled task or a test library's failure in a verifier must not end the run
    without naming it, though none of them is an `Exception`.
    """
    return not isinstance(error, (KeyboardInterrupt, _Overrun))


class Beside(Generic[Value]):
    """A call that runs in a daemon thread of its own, from now on.

    >>> Beside(lambda: 3 + 4).result()
    7
    """

    def __init__(self, call: Callable[[], Value]) -> None:
        self._values: list[Value] = []
        self._failures: list[BaseException] = []
        context = contextvars.copy_context()

        def run() -> None:
            try:
                self._values.append(context.run(call))
            except BaseException as error:  # noqa: BLE001 (raised by whoever asks for the result)
                self._failures.append(error)

        self._thread = threading.Thread(target=run, name="groupwise-beside", daemon=True)
        self._thread.start()

    def result(self, seconds: float | None = None) -> Value:
        """Its value, or what it raised. `DeadlinePassed` after `seconds`; the thread goes on."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise DeadlinePassed
        if self._failures:
            raise self._failures[0]
        return self._values[0]


def gather(awaitables: Sequence[Awaitable[Any]], time_limit: float | None = None) -> list[Any]:
    """Every result, in order, run together; an exception or `TimeoutError` stands in its place.

    `time_limit` is in seconds, for each awaitable.
    """
    if not awaitables:
        return []
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_all(awaitables, time_limit))
    return Beside(lambda: asyncio.run(_all(awaitables, time_limit))).result()


async def _all(awaitables: Sequence[Awaitable[Any]], time_limit: float | None) -> list[Any]:
    limited = [asyncio.wait_for(_as_coroutine(each), time_limit) for each in awaitables]
    return list(await asyncio.gather(*limited, return_exceptions=True))


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except BaseException as error:  # let through, it stops the loop with the others unfinished
        if isinstance(error, Exception) or not is_theirs(error):
            raise
        return error


def within(seconds: float, call: Callable[[], Value]) -> Value:
    """What `call` gives, or `DeadlinePassed` after `seconds` (0: no deadline).

    In the main thread the call runs right here, since functions that set alarms work nowhere else,
    and is interrupted by a signal. In any other thread, and where there is no such signal, it runs
    in a thread that is left behind.
    """
    if seconds <= 0:
        return call()
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        return Beside(call).result(seconds)
    watch = _Watch(seconds)
    try:
        try:
            value = call()
        finally:
            watch.open = False  # the signal may arrive right before this, and is caught below
    except _Overrun as overrun:
        if overrun.watch is not watch:
            raise
        raise DeadlinePassed from None
    finally:
        watch.end()
    if watch.passed:  # caught by the call itself: its value is that of an interrupted call
        raise DeadlinePassed
    return value


class _Overrun(BaseException):
    """Raised in the main thread, out of a call whose deadline has passed."""

    def __init__(self, watch: _Watch) -> None:
        self.watch = watch


class _Watch:
    """One deadline of a call in the main thread, kept by a thread that sends the signal."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self.open = True
        self._ended = threading.Event()
        if signal.getsignal(_SIGNAL) is not _interrupt:  # type: ignore[arg-type]
            signal.signal(_SIGNAL, _interrupt)  # type: ignore[arg-type]
        _watches.append(self)
        target = threading.main_thread().ident
        thread = threading.Thread(target=self._keep, args=(seconds, target), daemon=True)
        thread.start()

    def _keep(self, seconds: float, target: int) -> None:
        if self._ended.wait(seconds):
            return
        self.passed = True
        while self.open:
            signal.pthread_kill(target, _SIGNAL)  # type: ignore[arg-type]
            if self._ended.wait(_AGAIN):
                return

    def end(self) -> None:
        self.open = False
        self._ended.set()
        _watches.remove(self)


_watches: list[_Watch] = []
"""The deadlines that are kept now, the outermost first."""


def _interrupt(_number: int, _frame: object) -> None:
    """Left in place for good: a signal that arrives late must find a handler."""
    for watch in _watches:
        if watch.passed and watch.open:
            raise _Overrun(watch)
