"""Call queues: deadlines hold for code that never ends; a stuck call does not stop others."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

from groupwise.waiting.calls import CallQueue


def test_results_and_errors_come_through() -> None:
    queue = CallQueue()

    async def later() -> str:
        await asyncio.sleep(0.01)
        return "later"

    def fails() -> None:
        raise KeyError("x")

    assert queue.start(lambda: 3, 1.0).result() == 3
    assert queue.start(later, 1.0).result() == "later"
    with pytest.raises(KeyError, match="x"):
        queue.start(fails, 1.0).result()
    queue.close()
    queue.close()
    with pytest.raises(RuntimeError, match="closed"):
        queue.start(lambda: 3, 1.0)


def test_awaitables_share_one_loop() -> None:
    queue = CallQueue()

    async def loop() -> int:
        return id(asyncio.get_running_loop())

    assert len({queue.start(loop, 1.0).result() for _ in range(3)}) == 1
    queue.close()


@pytest.mark.parametrize("kind", ["sleeps", "awaits", "blocks the loop"])
def test_what_never_ends_fails_at_its_deadline(kind: str) -> None:
    queue = CallQueue()
    release = threading.Event()

    async def awaits() -> None:
        await asyncio.sleep(60)

    async def blocks() -> None:
        release.wait(5)

    call = {"sleeps": lambda: release.wait(5), "awaits": awaits, "blocks the loop": blocks}[kind]
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        queue.start(call, 0.1).result()
    assert time.monotonic() - started < 3.0
    release.set()
    queue.close()


def test_a_stuck_call_gives_its_place_to_the_next() -> None:
    queue = CallQueue(at_once=1)
    release = threading.Event()
    stuck = queue.start(lambda: release.wait(10), 0.2)
    behind = [queue.start(lambda number=number: number, 5.0) for number in range(3)]  # type: ignore[misc]
    assert [future.result() for future in behind] == [0, 1, 2]
    with pytest.raises(TimeoutError, match=r"no answer after 0.2 s"):
        stuck.result()
    release.set()
    queue.close()


def test_what_waits_in_line_fails_at_the_end() -> None:
    queue = CallQueue(at_once=1)
    release = threading.Event()
    queue.start(lambda: release.wait(10), 10.0)
    waiting = queue.start(lambda: 1, 1.0)
    queue.close()
    with pytest.raises(RuntimeError, match="closed before it was started"):
        waiting.result()
    release.set()


async def sleeper(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


async def brief() -> str:
    await asyncio.sleep(0.01)
    return "brief"


def test_a_coroutine_that_holds_up_the_loop_is_named_and_stops_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = CallQueue()
    held = queue.start(lambda: sleeper(3.0), 0.4)
    time.sleep(0.1)
    beside = queue.start(brief, 4.0)  # another loop takes it once a second has passed
    with pytest.raises(TimeoutError) as error:
        held.result()
    assert re.fullmatch(
        r"no answer after 0\.4 s; sleeper \(.*test_calls\.py, line \d+\) blocks the event loop "
        r"of all rollouts: await what is slow in it .*",
        str(error.value),
    )
    started = time.monotonic()
    assert beside.result() == "brief"
    assert queue.start(brief, 4.0).result() == "brief"
    assert time.monotonic() - started < 2.0
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["sleeper"]
    queue.close()


def test_who_shares_a_loop_that_is_held_up_is_told_why() -> None:
    queue = CallQueue()
    beside = queue.start(lambda: asyncio.sleep(0.3, "late"), 0.8)
    time.sleep(0.1)
    held = queue.start(lambda: sleeper(2.0), 5.0)
    with pytest.raises(TimeoutError, match=r"no answer after 0\.8 s; sleeper .* blocks"):
        beside.result()
    assert held.result() == "slept"
    plain = queue.start(lambda: time.sleep(0.5), 0.1)
    with pytest.raises(TimeoutError, match=r"no answer after 0\.1 s$"):
        plain.result()
    queue.close()


def test_a_coroutine_that_would_end_the_process_fails_alone() -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    queue = CallQueue()
    with pytest.raises(RuntimeError, match="it raised SystemExit: 3"):
        queue.start(leaves, 4.0).result(5.0)
    assert queue.start(brief, 4.0).result() == "brief"
    queue.close()
