"""Waits that end: for awaitables from ordinary code, and for calls with a deadline.

Awaitables run in a loop of their own in another thread, and the call waits for it: a notebook, a
web server or the samplers' own loop may be running in this one, and a wait that is cut short leaves
behind a coroutine that swallows its cancellation. Code that never gives in is stopped by nothing
but the end of its process: of this one at last, or of a worker's (`workers.py`), after which the
others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

_SIGNAL = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else None
"""Interrupts the main thread when a deadline passes; alarms are left to the functions called."""
_AGAIN = 1.0
"""Seconds after which a call that caught its interruption is interrupted once more."""

GIVING_IN = 10.0
"""Seconds beyond its deadline that a call may take to end; then it ends with the process."""

_LONGEST = 1e9
"""Seconds that every clock can count."""


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
    in a thread that is left behind. A call that swallows its interruptions, or C code that lets no
    other thread run, ends the process `GIVING_IN` seconds later, with its stack on standard error.
    """
    if seconds <= 0:
        return call()
    seconds = min(seconds, _LONGEST)
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        with _last_resort(seconds):
            return Beside(call).result(seconds)
    if _watches:  # within a call that ends the process itself
        return _interrupted_after(seconds, call)
    with _last_resort(seconds):
        return _interrupted_after(seconds, call)


def _interrupted_after(seconds: float, call: Callable[[], Value]) -> Value:
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
        told = False
        while self.open:
            signal.pthread_kill(target, _SIGNAL)  # type: ignore[arg-type]
            if self._ended.wait(_AGAIN):
                return
            if not told:
                told = True
                _tell(seconds)

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


def _tell(seconds: float) -> None:
    text = (
        f"groupwise: a call did not end at its deadline of {seconds:g} s and swallows every "
        "interruption; if it goes on, the process ends with it. A reward function with a "
        "`time_limit` runs in a process of its own, which can be killed.\n"
    )
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


_ends: list[float] = []
"""When calls that do not give in end the process, on the monotonic clock."""
_ends_lock = threading.Lock()


@contextlib.contextmanager
def _last_resort(seconds: float) -> Iterator[None]:
    """Ends the process where what runs inside has not ended `GIVING_IN` seconds after `seconds`.

    The clock is faulthandler's, the one that needs no turn of the interpreter.
    """
    end = time.monotonic() + seconds + GIVING_IN
    with _ends_lock:
        _ends.append(end)
        _set_clock()
    try:
        yield
    finally:
        with _ends_lock:
            _ends.remove(end)
            _set_clock()


def _set_clock() -> None:
    if _ends:
        left = max(0.01, min(_ends) - time.monotonic())
        faulthandler.dump_traceback_later(left, exit=True, file=2)
    else:
        faulthandler.cancel_dump_traceback_later()
