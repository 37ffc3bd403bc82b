"""Waiting for other people's code: every call in a thread of its own, with a deadline.

Python cannot end a thread, so one that overruns is left behind (it is a daemon and does not hold up
the end of the process): its future fails, its place is free, and whoever waits goes on. Awaitables
run on one event loop that lives as long as this object, so that a client can be kept open. Left
out: what a failure means.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from inspect import isawaitable
from typing import Any

Call = Callable[[], Any]


class Waits:
    """A bounded number of calls at once; more wait in line, and their deadline starts with them.

    >>> waits = Waits()
    >>> waits.start(lambda: 6 * 7, seconds=5.0).result()
    42
    >>> waits.close()
    """

    def __init__(self, at_once: int = 16) -> None:
        self.at_once = at_once
        self._lock = threading.Condition()
        self._line: deque[tuple[Call, float, Future[Any]]] = deque()
        self._running = 0
        self._due: list[tuple[float, int, Future[Any], float]] = []
        self._numbers = itertools.count()
        self._watch: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self, call: Call, seconds: float) -> Future[Any]:
        """A future of `call()`, awaited where it is awaitable.

        It fails with what the call raises, and with TimeoutError after `seconds` of running.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("closed: nothing is waited for any more")
            self._line.append((call, seconds, future))
            self._next()
        return future

    def close(self) -> None:
        """Nothing is started any more; what waits in line fails. May be called twice."""
        with self._lock:
            self._closed = True
            dropped = [future for _, _, future in self._line]
            self._line.clear()
            loop, self._loop = self._loop, None
            self._lock.notify_all()
        for future in dropped:
            future.set_exception(RuntimeError("closed before it was started"))
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    # Everything below is called with the lock held, except `_run` and `_watching`.

    def _next(self) -> None:
        while self._line and self._running < self.at_once:
            call, seconds, future = self._line.popleft()
            self._running += 1
            due = (time.monotonic() + seconds, next(self._numbers), future, seconds)
            heapq.heappush(self._due, due)
            if self._watch is None:
                self._watch = threading.Thread(target=self._watching, daemon=True)
                self._watch.start()
            self._lock.notify_all()
            threading.Thread(target=self._run, args=(call, seconds, future), daemon=True).start()

    def _run(self, call: Call, seconds: float, future: Future[Any]) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = call()
            if isawaitable(result):
                result = asyncio.run_coroutine_threadsafe(
                    _awaited(result, seconds), self._event_loop()
                ).result()
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            failure = error
        if self._take(future):
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

    def _take(self, future: Future[Any]) -> bool:
        """Whether the caller is the one to end this future: the call or the clock, not both."""
        with self._lock:
            mine = any(entry[2] is future for entry in self._due)
            if mine:
                self._due = [entry for entry in self._due if entry[2] is not future]
                heapq.heapify(self._due)
                self._running -= 1
                self._next()
        return mine

    def _watching(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                late = [entry for entry in self._due if entry[0] <= now]
                if not late:
                    if self._closed and not self._due:
                        return
                    self._lock.wait(self._due[0][0] - now if self._due else None)
                    continue
            for _, _, future, seconds in late:
                if self._take(future):
                    future.set_exception(TimeoutError(f"no answer after {seconds:g} s"))

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_forever, args=(self._loop,), daemon=True).start()
            return self._loop


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _awaited(awaitable: Any, seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable
