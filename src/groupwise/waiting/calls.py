"""Calls of environments and tools: in their own threads or on an event loop, with a deadline.

Python cannot end a thread, so one that overruns is abandoned (it is a daemon and does not delay the
end of the process): its future fails and its slot is free. Awaitables share one event loop, so that
a client can be kept open; a coroutine that blocks it is named, and later awaitables get a new loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from inspect import isawaitable, iscoroutine
from typing import Any

from groupwise.waiting.deadlines import BackgroundCall, DeadlinePassed, running_place

PATIENCE = 5.0
"""Seconds, or a quarter of a deadline, after which an event loop counts as blocked."""

logger = logging.getLogger("groupwise")


class EventLoop:
    """An event loop in its own thread, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def start(self, awaitable: Awaitable[Any], seconds: float) -> Future[Any]:
        """A future of the awaitable; cancelled with TimeoutError after `seconds`."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable, seconds), self._loop)

    def responds(self, seconds: float) -> bool:
        """Whether the loop runs something new within `seconds`."""
        reached = threading.Event()
        try:
            self._loop.call_soon_threadsafe(reached.set)
        except RuntimeError:  # it has ended
            return False
        return reached.wait(seconds)

    def blocked_by(self) -> str:
        """Which coroutine runs now and how to fix that it blocks the loop; empty for none."""
        place = running_place(self._thread.ident, _awaited.__code__)
        return place and (
            f"{place} blocks the event loop of all rollouts: await what is slow in it "
            "(asyncio.sleep instead of time.sleep), or make it a plain function, which gets its "
            "own thread"
        )

    def stop(self) -> None:
        """Ends the loop as soon as it runs something new."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


async def _awaited(awaitable: Awaitable[Any], seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the loop with it
        raise RuntimeError(f"it raised {type(error).__name__}: {error}") from error


class CallQueue:
    """Runs at most `at_once` calls at a time; the others queue, and their deadline starts later.

    >>> queue = CallQueue()
    >>> queue.start(lambda: 6 * 7, seconds=5.0).result()
    42
    >>> queue.close()
    """

    def __init__(self, at_once: int = 16) -> None:
        self.at_once = at_once
        self._lock = threading.Lock()
        self._queued: deque[tuple[Callable[[], Any], float, Future[Any]]] = deque()
        self._running = 0
        self._loops: list[EventLoop] = []  # the last one is in use; the others were blocked
        self._warned: set[str] = set()
        self._closed = False

    def start(self, call: Callable[[], Any], seconds: float) -> Future[Any]:
        """A future of `call()`, awaited where it is awaitable.

        It fails with what the call raises, and with TimeoutError after `seconds` of running.
        Raises RuntimeError where the queue is closed.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._refuse_closed()
            self._queued.append((call, seconds, future))
            if self._running < self.at_once:
                self._running += 1
                threading.Thread(target=self._work, daemon=True).start()
        return future

    def close(self) -> None:
        """Starts no further calls; queued ones fail. May be called twice."""
        with self._lock:
            self._closed = True
            dropped = [*self._queued]
            self._queued.clear()
            loops, self._loops = self._loops, []
        for _, _, future in dropped:
            future.set_exception(RuntimeError("closed before it was started"))
        for loop in loops:
            loop.stop()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the queue is closed and starts no further calls")

    def _work(self) -> None:
        """One call after another, until none is queued."""
        while True:
            with self._lock:
                if not self._queued:
                    self._running -= 1
                    return
                call, seconds, future = self._queued.popleft()
            try:
                future.set_result(self.run(call, seconds))
            except BaseException as error:  # noqa: BLE001 (raised by the future)
                future.set_exception(error)

    def run(self, call: Callable[[], Any], seconds: float) -> Any:
        """The result of `call()`, awaited where it is awaitable, without a place in the queue.

        Raises what it raises, and TimeoutError after `seconds`.
        """
        loops: list[EventLoop] = []

        def run() -> Any:
            result = call()
            return self._await(result, seconds, loops) if isawaitable(result) else result

        try:
            return BackgroundCall(run).result(min(seconds, threading.TIMEOUT_MAX))
        except DeadlinePassed:
            blocker = next((each.blocked_by() for each in loops if not each.responds(0.1)), "")
            message = f"no answer after {seconds:g} s{blocker and '; '}{blocker}"
            raise TimeoutError(message) from None

    def _await(self, awaitable: Any, seconds: float, loops: list[EventLoop]) -> Any:
        try:
            loops.append(self._responsive_loop(seconds))
        except BaseException:
            if iscoroutine(awaitable):
                awaitable.close()  # or Python warns that it was never awaited
            raise
        return loops[0].start(awaitable, seconds).result()

    def _responsive_loop(self, seconds: float) -> EventLoop:
        """The shared loop; a new one where a coroutine blocks it."""
        while True:
            with self._lock:
                self._refuse_closed()
                if not self._loops:
                    self._loops.append(EventLoop())
                loop = self._loops[-1]
            if loop.responds(min(PATIENCE, seconds / 4)):
                return loop
            blocker = loop.blocked_by()
            with self._lock:
                if self._loops and self._loops[-1] is loop:
                    self._loops.append(EventLoop())
                    if blocker and blocker not in self._warned:
                        self._warned.add(blocker)
                        logger.warning("%s", blocker)
