"""Waits for awaitables from ordinary code, also where an event loop is already running.

A notebook, a web server or the samplers' own loop may be running in this thread; then the
awaitables run in a loop of their own in another thread, and this call waits for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Sequence
from typing import Any


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
    return _in_thread(awaitables, time_limit)


async def _all(awaitables: Sequence[Awaitable[Any]], time_limit: float | None) -> list[Any]:
    limited = [asyncio.wait_for(_as_coroutine(each), time_limit) for each in awaitables]
    return list(await asyncio.gather(*limited, return_exceptions=True))


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except SystemExit as error:  # let through, it stops the loop with the others unfinished
        return error


def _in_thread(awaitables: Sequence[Awaitable[Any]], time_limit: float | None) -> list[Any]:
    results: list[Any] = []
    failures: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            results.extend(context.run(asyncio.run, _all(awaitables, time_limit)))
        except BaseException as error:  # noqa: BLE001 (handed to the waiting thread, raised there)
            failures.append(error)

    thread = threading.Thread(target=run, name="groupwise-async-verifier", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results
