"""Deadlines: a call in a thread is abandoned, one in the main thread is named. Faults 13 and 35."""

import asyncio
import doctest
import re
import signal
import threading
import time

import pytest

from groupwise.errors import VerifierError
from groupwise.types import Prompt
from groupwise.verifiers import Component, Composite, Verifier, compose, score_cases
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.user import RewardFunction
from groupwise.waiting import deadlines
from groupwise.waiting.deadlines import BackgroundCall, DeadlinePassed, call_within


def cases(*texts):
    return [Case(Prompt(f"p{row}", text="q"), text) for row, text in enumerate(texts)]


RELEASE = threading.Event()
"""Set at the end of the tests, so that abandoned threads end."""


@pytest.fixture(scope="module", autouse=True)
def _released():
    RELEASE.clear()
    yield
    RELEASE.set()


def hangs():
    RELEASE.wait(60)


def hangs_in_a_bare_except():
    while not RELEASE.is_set():
        try:
            RELEASE.wait(60)
        except BaseException:  # noqa: BLE001 (what users write)
            continue


def here(check):
    return check()


def from_a_thread(check):
    return BackgroundCall(check).result(30)


def from_a_loop(check):
    async def run():
        return check()

    return asyncio.run(run())


def test_examples():
    assert doctest.testmod(deadlines).failed == 0


@pytest.mark.parametrize("call", [hangs, hangs_in_a_bare_except])
def test_a_call_outside_the_main_thread_is_abandoned_and_named(call, caplog):
    start = time.monotonic()
    where = rf"no result after 0\.1 s, in {call.__name__} \(.*test_deadlines\.py, line \d+\)"
    with pytest.raises(DeadlinePassed, match=where):
        from_a_thread(lambda: call_within(0.1, call, name="it"))
    assert time.monotonic() - start < 5
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert re.fullmatch(rf"it: {where}; it is abandoned", caplog.messages[0])


def test_a_call_that_may_be_abandoned_is_so_in_the_main_thread_too():
    for place in (here, from_a_loop):
        with pytest.raises(DeadlinePassed):
            place(lambda: call_within(0.1, hangs, name="it", abandon=True))


def test_a_slow_call_in_the_main_thread_is_named_once_and_waited_for(caplog):
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)

    def slow():
        time.sleep(0.4)
        return 7

    assert call_within(0.1, slow, name="the verifier") == 7
    (told,) = caplog.messages
    assert re.match(
        r"the verifier has not returned after its deadline of 0\.1 s, and is waited for: it is in "
        r"test_a_slow.*slow \(.*test_deadlines\.py, line \d+\)\. It runs in the main thread",
        told,
    )
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize("place", [here, from_a_thread, from_a_loop])
def test_what_ends_in_time_gives_its_value_or_its_own_error(place, caplog):
    assert place(lambda: call_within(30, lambda: 7, name="it")) == 7
    assert place(lambda: call_within(0, lambda: 7, name="it")) == 7
    assert place(lambda: call_within(float("inf"), lambda: 7, name="it")) == 7
    with pytest.raises(TimeoutError, match="mine"):
        place(
            lambda: call_within(30, lambda: (_ for _ in ()).throw(TimeoutError("mine")), name="it")
        )
    assert caplog.messages == []


def test_the_deadline_that_has_passed_is_the_one_that_raises():
    def outer():
        with pytest.raises(DeadlinePassed, match=r"0\.1 s"):
            call_within(0.1, hangs, name="inner")
        return 7

    assert from_a_thread(lambda: call_within(30, outer, name="outer")) == 7
    with pytest.raises(DeadlinePassed, match=r"0\.2 s"):
        from_a_thread(
            lambda: call_within(0.2, lambda: call_within(30, hangs, name="inner"), name="outer")
        )


def test_a_function_that_sets_alarms_works_under_a_deadline():
    """In the main thread a deadline must not move a function to another one."""
    verifier = compose([{"name": "reward_functions:sets_an_alarm", "deadline": 30}])
    assert [score.value for score in score_cases(verifier, cases("a", "b"))] == [1.0, 1.0]


def test_a_slow_reward_function_is_named_and_its_scores_count(caplog):
    def slow(completions, **kwargs):
        time.sleep(0.4)
        return [1.0] * len(completions)

    scores = score_cases(RewardFunction(slow), cases("a", "b"), deadline=0.1)
    assert [score.value for score in scores] == [1.0, 1.0]
    assert re.match(
        r"verifier 'slow', on a batch of 2 has not returned .*slow \(", *caplog.messages
    )


def check_abandoned(verifier, place):
    start = time.monotonic()
    scores = place(lambda: score_cases(verifier, cases("a", "b"), "skip", deadline=0.2))
    assert [score.outcome for score in scores] == ["verifier_timeout"] * 2
    assert all(score.value is None for score in scores)
    assert scores[0].reason.startswith("no verdict: no result after 0.2 s")
    assert time.monotonic() - start < 5


async def never(completions, **kwargs):
    await asyncio.sleep(60)


async def blocks(completions, **kwargs):
    hangs()


async def swallows_its_cancellation(completions, **kwargs):
    while not RELEASE.is_set():
        try:  # noqa: SIM105
            await asyncio.sleep(0.01)
        except BaseException:  # noqa: BLE001, S110 (what users write)
            pass


class NeverJudges(Verifier):
    name = "never_judges"

    async def score_case(self, case):
        await asyncio.sleep(60)


@pytest.mark.parametrize("place", [here, from_a_thread, from_a_loop])
@pytest.mark.parametrize(
    "verifier",
    [
        RewardFunction(never),
        RewardFunction(blocks),
        RewardFunction(swallows_its_cancellation),
        NeverJudges(),
    ],
)
def test_an_async_verifier_that_hangs_is_a_timeout_from_anywhere(verifier, place):
    check_abandoned(verifier, place)


def test_a_plain_function_outside_the_main_thread_is_a_timeout():
    check_abandoned(RewardFunction(lambda completions, **kwargs: hangs()), from_a_thread)


def test_in_a_composition_the_rows_of_an_abandoned_part_are_not_scored():
    parts = [
        Component(RewardFunction(never), deadline=0.2),
        *compose([{"name": "repetition"}]).components,
    ]
    scores = score_cases(Composite(parts), cases("a", "b"))
    assert [(score.value, score.outcome) for score in scores] == [(None, "verifier_timeout")] * 2
    assert [score.parts["repetition"] for score in scores] == [1.0, 1.0]


def test_ones_own_verifiers_have_a_deadline_and_built_in_ones_their_own_limits():
    verifier = compose(
        [
            {"name": "number"},
            {"name": "reward_functions:has_answer"},
            {"name": "reward_functions:slow", "deadline": 0},
            {"name": "reward_functions:hangs", "time_limit": 1},
        ]
    )
    assert [each.deadline for each in verifier.components] == [0.0, 600.0, 0.0, 0.0]
    verifier.close()


def test_a_slow_function_does_not_hold_up_those_that_wait():
    """Fault 35: one async, one in worker processes, one here: near the longest, not the sum."""
    begun = {}

    async def asks(completions, **kwargs):
        begun["async"] = time.monotonic()
        await asyncio.sleep(0.5)
        return [2.0] * len(completions)

    class Here(Verifier):
        name = "here"

        def score_case(self, case):
            begun.setdefault("here", time.monotonic())
            time.sleep(0.25)
            return 1.0

    verifier = Composite([Component(Here()), Component(RewardFunction(asks), label="asks")])

    def check():
        begun.clear()
        start = time.monotonic()
        scores = score_cases(verifier, cases("a", "b"))
        assert [score.value for score in scores] == [3.0, 3.0]
        assert [score.parts for score in scores] == [{"here": 1.0, "asks": 2.0}] * 2
        assert abs(begun["async"] - begun["here"]) < 0.4
        assert time.monotonic() - start < 0.95

    check()
    from_a_loop(check)
    from_a_thread(check)


def test_what_runs_beside_raises_as_if_it_had_run_here():
    async def fails(completions, **kwargs):
        raise KeyError("colour")

    verifier = Composite(
        [Component(RewardFunction(fails)), *compose([{"name": "repetition"}]).components]
    )
    with pytest.raises(VerifierError, match=r"'fails' raised on row 0 of 1 .*colour"):
        score_cases(verifier, cases("a"))


def test_no_thread_is_left():
    before = threading.active_count()
    for place in (here, from_a_thread):
        for _ in range(10):
            place(lambda: call_within(30, lambda: 1, name="it"))
    time.sleep(0.1)
    assert threading.active_count() <= before + 1
