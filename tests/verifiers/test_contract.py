"""The contract: order, types, lengths, exceptions, skip, async. Faults 11, 12, 17 and 35."""

import asyncio
import json
import math
import sys
import time

import numpy as np
import pytest

from groupwise.errors import VerifierError
from groupwise.types import Prompt, Score, StepReward
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.verifiers.core import scores as core_scores


def cases(*texts, answer="7"):
    return [
        Case(Prompt(f"p{row}", text="q", answer=answer), text) for row, text in enumerate(texts)
    ]


class Whole(Verifier):
    """Returns what it is given, whatever that is."""

    def __init__(self, result):
        self.result = result

    @property
    def name(self):
        return "whole"

    def score(self, cases):
        return self.result


class PerCase(Verifier):
    def __init__(self, function):
        self.function = function

    @property
    def name(self):
        return "per_case"

    def score_case(self, case):
        return self.function(case)


def test_numbers_bools_scores_and_none_become_scores_in_order():
    given = [1, 0.25, True, None, np.float64(0.5), np.float32(0.0), Score(2.0, "correct"), -1]
    scores = score_cases(Whole(given), cases(*"abcdefgh"))
    assert [score.value for score in scores] == [1.0, 0.25, 1.0, None, 0.5, 0.0, 2.0, -1.0]
    assert [score.outcome for score in scores] == [
        "correct", "partial", "correct", "not_applicable", "partial", "incorrect", "correct",
        "incorrect",
    ]  # fmt: skip
    assert all(type(score.value) in (float, type(None)) for score in scores)


def test_arrays_are_lists_of_numbers():
    scores = score_cases(Whole(np.array([0.5, 1.0])), cases("a", "b"))
    assert [score.value for score in scores] == [0.5, 1.0]


def test_no_cases_no_scores():
    assert score_cases(Whole("never looked at"), []) == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0], "'whole': expected 2 scores, one a completion; got 1"),
        ([1.0, 2.0, 3.0], "got 3"),
        ("ab", "expected a list of 2 numbers or None, one a completion; got str"),
        ({"a": 1}, "got dict"),
        (None, "got NoneType"),
        (1.0, "got float"),
        ([1.0, "1"], "row 1: expected a number, a bool, a Score or None; got str"),
        ([[1.0], [2.0]], "row 0: expected a number, a bool, a Score or None; got list"),
        ([1.0, math.nan], "row 1: expected a finite number, got nan"),
        ([math.inf, 1.0], "row 0: expected a finite number, got inf"),
        ([1.0, 10**400], "row 1: expected a finite number, got inf"),
        (np.ones((2, 1)), "row 0"),
    ],
)
def test_a_broken_result_names_verifier_expected_and_got(result, message):
    with pytest.raises(VerifierError, match="whole") as error:
        score_cases(Whole(result), cases("a", "b"))
    assert message in str(error.value)
    with pytest.raises(VerifierError):
        score_cases(Whole(result), cases("a", "b"), on_error="skip")


def raises_on(*bad):
    def function(case):
        if case.text in bad:
            raise KeyError(case.text)
        return 1.0

    return PerCase(function)


def test_an_exception_names_verifier_row_and_error():
    with pytest.raises(
        VerifierError, match=r"'per_case' raised on row 2 of 4 .*'p2'.*KeyError: 'c'"
    ):
        score_cases(raises_on("c"), cases(*"abcd"))
    with pytest.raises(VerifierError) as error:
        score_cases(raises_on("c"), cases(*"abcd"))
    assert isinstance(error.value.__cause__, KeyError)


def test_skip_excludes_the_row_and_says_why():
    scores = score_cases(raises_on("c"), cases(*"abcd"), on_error="skip")
    assert [score.value for score in scores] == [1.0, 1.0, None, 1.0]
    assert scores[2].outcome == "infrastructure_error"
    assert "KeyError: 'c'" in scores[2].reason


def test_all_rows_failing_stops_under_skip_too():
    with pytest.raises(VerifierError, match=r"failed on all 4 rows .* KeyError: 'd'"):
        score_cases(raises_on(*"abcd"), cases(*"abcd"), on_error="skip")


def test_keyboard_interrupt_is_not_swallowed():
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_cases(PerCase(interrupted), cases("a"), on_error="skip")


def staggered(n):
    async def function(case):
        index = int(case.text)
        await asyncio.sleep((n - index) * 0.03)
        return index / n

    return PerCase(function)


def check_staggered():
    start = time.monotonic()
    scores = score_cases(staggered(8), cases(*"01234567"))
    assert [score.value for score in scores] == [index / 8 for index in range(8)]
    assert time.monotonic() - start < 0.7  # the sum would be 1.08 s


def test_async_cases_run_together_and_keep_their_order():
    check_staggered()


def test_async_works_where_a_loop_is_already_running():
    async def notebook():
        check_staggered()
        await asyncio.sleep(0)

    asyncio.run(notebook())


def test_async_exceptions_follow_the_same_rule():
    async def function(case):
        await asyncio.sleep(0)
        if case.text == "b":
            raise ValueError("no")
        return 1

    with pytest.raises(VerifierError, match=r"row 1 of 3 .*ValueError: no"):
        score_cases(PerCase(function), cases(*"abc"))
    scores = score_cases(PerCase(function), cases(*"abc"), on_error="skip")
    assert [score.value for score in scores] == [1.0, None, 1.0]


def test_a_sync_error_among_async_cases_leaves_nothing_waiting():
    async def good():
        return 1

    def function(case):
        if case.text == "b":
            raise ValueError("no")
        return good()

    with pytest.raises(VerifierError, match="row 1"):
        score_cases(PerCase(function), cases(*"abc"))


def test_a_whole_batch_may_be_async():
    class Batch(Whole):
        async def score(self, cases):
            await asyncio.sleep(0)
            return self.result

    assert [s.value for s in score_cases(Batch([1, None]), cases("a", "b"))] == [1.0, None]


def test_a_batch_error_that_no_row_has_alone_is_reported_for_the_batch():
    class Batch(Whole):
        def score(self, cases):
            if len(cases) > 1:
                raise RuntimeError("too many")
            return [1.0]

    with pytest.raises(VerifierError, match="raised on a batch of 2 rows: RuntimeError: too many"):
        score_cases(Batch(None), cases("a", "b"))


def test_defaults_of_the_base_class():
    verifier = Whole([1])
    assert verifier.signature() == '["whole", {}]'
    assert verifier.required_columns == frozenset()
    assert verifier.check_answer(Prompt("p", text="q")) is None
    assert verifier.needs_answer is False
    assert verifier.take_logs().columns == {}


def leave(case):
    return sys.exit(3) if case.text == "b" else 1.0


async def leave_later(case):
    return leave(case)


class Leaving(Whole):
    """A function over the batch that calls `sys.exit` where a row has the text b."""

    def score(self, cases):
        return [leave(case) for case in cases]


@pytest.mark.parametrize("verifier", [PerCase(leave), PerCase(leave_later), Leaving(None)])
def test_sys_exit_in_a_verifier_is_its_error_and_names_the_row(verifier):
    with pytest.raises(VerifierError) as error:
        score_cases(verifier, cases(*"abc"))
    assert str(error.value) == (
        f"verifier {verifier.name!r} raised on row 1 of 3 (prompt 'p1', completion 'b'): "
        "SystemExit: 3"
    )
    scores = score_cases(verifier, cases(*"abc"), "skip")
    assert [score.outcome for score in scores] == ["correct", "infrastructure_error", "correct"]


def test_an_interruption_in_a_verifier_stays_one():
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_cases(PerCase(interrupted), cases("a"))


HALF = "\ud83d"
"""Half of a character, which no encoder takes."""


def test_a_score_is_made_of_plain_floats_and_whole_characters():
    steps = (StepReward(np.float32(0.5), 1),)
    given = Score(
        np.float32(0.5), "partial", f"a{HALF}", {f"b{HALF}": np.int64(1), "c": None}, steps
    )
    (score,) = score_cases(Whole([given]), cases("x"))
    assert score == Score(
        0.5, "partial", "a\ufffd", {"b\ufffd": 1.0, "c": None}, (StepReward(0.5, 1),)
    )
    json.dumps([score.value, dict(score.parts), score.steps[0].value])  # as a checkpoint keeps it
    (score,) = score_cases(Whole([Score(1.0, "correct", None)]), cases("x"))
    assert score.reason == ""
    (score,) = score_cases(Whole([Score(1.0, "correct", ValueError("so"))]), cases("x"))
    assert score.reason == "so"


def test_a_part_that_is_no_number_is_named():
    given = Score(1.0, "correct", "", {"b": "high"})
    with pytest.raises(VerifierError) as error:
        score_cases(Whole([1.0, given]), cases("x", "y"))
    assert str(error.value) == (
        "verifier 'whole', row 1: the score's parts['b'] is 'high'; expected a number or None"
    )


@pytest.mark.parametrize(
    "given",
    [
        1e39,
        -1e39,
        10**39,
        Score(1e39, "correct"),
        Score(1.0, "correct", steps=(StepReward(-1e39, 1),)),
    ],
)
def test_a_value_beyond_float32_names_the_verifier_and_the_row(given):
    words = r"verifier 'whole', row 1: -?1e\+39 is too large; .* float32, whose largest .* 3.40282e"
    with pytest.raises(VerifierError, match=words):
        score_cases(Whole([1.0, given]), cases("x", "y"))
    assert float(np.float32(core_scores.LARGEST_VALUE)) == core_scores.LARGEST_VALUE
    (score,) = score_cases(Whole([core_scores.LARGEST_VALUE]), cases("x"))
    assert score.value == float(np.finfo(np.float32).max)


def test_what_a_verifier_raises_is_told_in_whole_characters():
    def raises(case):
        if case.text == "a":
            raise ValueError(HALF)
        return 1.0

    score, _ = score_cases(PerCase(raises), cases("a", "b"), "skip")
    assert score.reason.endswith("ValueError: \ufffd")
    with pytest.raises(VerifierError) as error:
        score_cases(PerCase(raises), cases("a"))
    str(error.value).encode()
