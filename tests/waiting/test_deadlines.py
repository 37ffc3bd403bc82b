"""Deadlines that hold in the main thread, in others and in an event loop. Faults 13 and 35."""

import asyncio
import doctest
import os
import subprocess
import sys
import threading
import time

import pytest

from groupwise.errors import VerifierError
from groupwise.types import Prompt
from groupwise.verifiers import CaseVerifier, Component, Composite, compose, score_cases
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.functions import RewardFunction
from groupwise.waiting import deadlines as waiting
from groupwise.waiting.deadlines import Beside, DeadlinePassed, within


def cases(*texts):
    return [Case(Prompt(f"p{row}", text="q"), text) for row, text in enumerate(texts)]


def spin():
    while True:
        continue


def sleep():
    time.sleep(60)


def sleep_in_a_bare_except():
    try:
        time.sleep(60)
    except BaseException:  # noqa: BLE001 (what users write)
        return 0.0
    return 1.0


def from_a_thread(check):
    return Beside(check).result(30)


def from_a_loop(check):
    async def run():
        return check()

    return asyncio.run(run())


def test_examples():
    assert doctest.testmod(waiting).failed == 0


@pytest.mark.parametrize("call", [spin, sleep, sleep_in_a_bare_except])
@pytest.mark.parametrize("place", [lambda check: check(), from_a_thread, from_a_loop])
def test_a_deadline_ends_the_wait_from_anywhere(call, place):
    if call is spin and place is from_a_thread:
        pytest.skip("the thread that is left behind would spin beside the other tests")
    start = time.monotonic()
    with pytest.raises(DeadlinePassed):
        place(lambda: within(0.2, call))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("place", [lambda check: check(), from_a_thread, from_a_loop])
def test_what_ends_in_time_gives_its_value_or_its_own_error(place):
    assert place(lambda: within(30, lambda: 7)) == 7
    assert place(lambda: within(0, lambda: 7)) == 7
    with pytest.raises(TimeoutError, match="mine"):
        place(lambda: within(30, lambda: (_ for _ in ()).throw(TimeoutError("mine"))))


def test_the_deadline_that_has_passed_is_the_one_that_raises():
    def inner():
        return within(30, sleep)

    with pytest.raises(DeadlinePassed):
        within(0.2, inner)
    reached = []

    def outer():
        with pytest.raises(DeadlinePassed):
            within(0.2, sleep)
        reached.append(True)
        return 7

    assert within(30, outer) == 7
    assert reached == [True]
    assert waiting._watches == []


def test_a_function_that_sets_alarms_works_under_a_deadline():
    """In the main thread a deadline must not move a function to another one."""
    verifier = compose([{"name": "reward_functions:sets_an_alarm", "deadline": 30}])
    assert [score.value for score in score_cases(verifier, cases("a", "b"))] == [1.0, 1.0]


@pytest.mark.parametrize("name", ["hangs", "waits_in_a_bare_except"])
def test_a_function_that_hangs_stops_the_run_naming_it(name):
    verifier = compose([{"name": f"reward_functions:{name}", "deadline": 0.3, "on_error": "skip"}])
    wanted = rf"'{name}' gave no scores for a batch of 2 rows within its deadline of 0.3 s .*'p0'"
    with pytest.raises(VerifierError, match=wanted):
        score_cases(verifier, cases("a", "b"))


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


def test_an_async_function_that_hangs_has_the_deadline_too():
    async def never(completions, **kwargs):
        await asyncio.sleep(60)

    with pytest.raises(VerifierError, match="'never' gave no scores"):
        score_cases(RewardFunction(never), cases("a"), deadline=0.2)


def test_a_slow_function_does_not_hold_up_those_that_wait():
    """Fault 35: one async, one in worker processes, one here: near the longest, not the sum."""
    begun = {}

    async def asks(completions, **kwargs):
        begun["async"] = time.monotonic()
        await asyncio.sleep(0.5)
        return [2.0] * len(completions)

    class Here(CaseVerifier):
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
    for _ in range(20):
        within(30, lambda: 1)
    time.sleep(0.05)
    assert threading.active_count() <= before + 1


NEVER_GIVE_IN = [
    "swallows_everything",
    "catastrophic_pattern",
    "counts_for_ever",
    "swallows_its_cancellation",
]

ONE_BATCH = """
import sys, threading
from groupwise.types import Prompt
from groupwise.verifiers import compose, score_cases
from groupwise.waiting import deadlines as waiting
from groupwise.verifiers.core.contract import Case

waiting.GIVING_IN = 1.5
verifier = compose([{"name": f"reward_functions:{sys.argv[1]}", "deadline": 0.3}])

def score():
    print(score_cases(verifier, [Case(Prompt("p", text="q"), "good")])[0].value, flush=True)
    try:
        score_cases(verifier, [Case(Prompt("p", text="q"), "stuck")])
    except Exception as error:
        print(type(error).__name__, flush=True)

if sys.argv[2] == "here":
    score()
else:
    thread = threading.Thread(target=score)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("name", NEVER_GIVE_IN)
@pytest.mark.parametrize("place", ["here", "in a thread"])
def test_a_call_that_never_gives_in_ends_with_the_process(name, place):
    """Where it runs in the main thread or lets no other run; else its thread is left behind."""
    run = subprocess.run(
        [sys.executable, "-c", ONE_BATCH, name, place],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    swallows = name.startswith("swallows")
    if swallows and (place == "in a thread" or name == "swallows_its_cancellation"):
        assert (run.returncode, run.stdout) == (0, "1.0\nVerifierError\n"), run.stderr
        return
    assert (run.returncode, run.stdout) == (1, "1.0\n"), run.stderr
    assert "Timeout" in run.stderr
    assert f" in {name}" in run.stderr
    told = "did not end at its deadline of 0.3 s and swallows every interruption"
    assert (told in run.stderr) == swallows


def test_a_call_that_ended_leaves_no_clock():
    for place in (lambda check: check(), from_a_thread):
        assert place(lambda: within(30, lambda: list(waiting._ends)))
        with pytest.raises(DeadlinePassed):
            place(lambda: within(0.1, sleep))
        assert waiting._ends == []
