"""The event loop on which awaitables of other people's code run, and what is known when one of them
does not give it back.

A coroutine that computes or sleeps without awaiting holds up every other one on its loop. Python
cannot interrupt it: such a loop is left behind, and another one takes what comes next. Left out:
deadlines (`waits.py`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from types import FrameType
from typing import Any


class EventLoop:
    """An event loop in a thread of its own, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._forever, daemon=True)
        self._thread.start()

    def start(self, awaitable: Awaitable[Any], seconds: float) -> Future[Any]:
        """A future of the awaitable; cancelled with TimeoutError after `seconds`."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable, seconds), self._loop)

    def answers(self, seconds: float) -> bool:
        """Whether the loop gets to run something new within so many seconds."""
        heard = threading.Event()
        try:
            self._loop.call_soon_threadsafe(heard.set)
        except RuntimeError:  # it has ended
            return False
        return heard.wait(seconds)

    @property
    def holder(self) -> str | None:
        """The coroutine that runs at this moment, and where; None where none does.

        As `next (play.py, line 12)`.
        """
        frame = sys._current_frames().get(self._thread.ident or 0)
        own: FrameType | None = None
        while frame is not None and frame.f_code is not _awaited.__code__:
            own, frame = frame, frame.f_back
        if frame is None or own is None:
            return None
        return f"{own.f_code.co_qualname} ({own.f_code.co_filename}, line {own.f_lineno})"

    def stop(self) -> None:
        """The loop ends as soon as it gets to run."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _forever(self) -> None:
        asyncio.set_event_loop(self._loop)
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
