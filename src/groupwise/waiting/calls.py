"""Waiting for other people's code: every call in a thread of its own, with a deadline.

Python cannot end a thread, so one that overruns is left behind (it is a daemon and does not hold up
the end of the process): its future fails, its place is free, and whoever waits goes on. Awaitables
run on one event loop that lives as long as this object, so that a client can be kept open; one that
holds it up is named, and those that come next get another. Left out: what a failure means.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from inspect import isawaitable, iscoroutine
from typing import Any

from groupwise.waiting.event_loop import EventLoop

Call = Callable[[], Any]

PATIENCE = 5.0
"""Seconds, or a quarter of a deadline, after which an event loop that does not react is held up."""


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
        self._loops: list[EventLoop] = []  # the last one takes what comes; the others were held up
        self._placed: dict[Future[Any], EventLoop] = {}
        self._warned: set[str] = set()
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
            loops, self._loops = self._loops, []
            self._lock.notify_all()
        for future in dropped:
            future.set_exception(RuntimeError("closed before it was started"))
        for loop in loops:
            loop.stop()

    # `_next` is called with the lock held, the others without.

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
                result = self._begin(result, seconds, future).result()
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            failure = error
        self._placed.pop(future, None)
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
                    # What follows may take its time; the clock does not wait for it.
                    threading.Thread(
                        target=self._too_late, args=(future, seconds), daemon=True
                    ).start()

    def _too_late(self, future: Future[Any], seconds: float) -> None:
        loop = self._placed.get(future)
        held = "" if loop is None or loop.answers(0.1) else _held(loop)
        words = f"no answer after {seconds:g} s{held and '; '}{held}"
        future.set_exception(TimeoutError(words))

    def _begin(self, awaitable: Any, seconds: float, future: Future[Any]) -> Future[Any]:
        try:
            loop = self._placed[future] = self._event_loop(seconds)
        except BaseException:
            if iscoroutine(awaitable):
                awaitable.close()  # or Python warns that nobody awaited it
            raise
        return loop.start(awaitable, seconds)

    def _event_loop(self, seconds: float) -> EventLoop:
        """The loop that awaitables share; a new one where something holds it up."""
        while True:
            with self._lock:
                if self._closed:
                    raise RuntimeError("closed: nothing is waited for any more")
                if not self._loops:
                    self._loops.append(EventLoop())
                loop = self._loops[-1]
            if loop.answers(min(PATIENCE, seconds / 4)):
                return loop
            held = _held(loop)
            with self._lock:
                if self._loops and self._loops[-1] is loop:
                    self._loops.append(EventLoop())
                    if held and held not in self._warned:
                        self._warned.add(held)
                        logging.getLogger("groupwise").warning("%s", held)


def _held(loop: EventLoop) -> str:
    """Who holds up the loop and what to do about it; empty where nobody does."""
    holder = loop.holder
    if holder is None:
        return ""
    return (
        f"{holder} holds up the event loop of all rollouts: await what is slow in it, as "
        "asyncio.sleep in place of time.sleep, or make it a plain function, which has a thread"
    )
