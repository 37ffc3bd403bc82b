"""Gold answers of every kind that a column can hold, and lists of accepted answers."""

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers import AnswerVerifier, BadAnswer, Case, accepted_answers, score_cases
from groupwise.verifiers.core import registry
from groupwise.verifiers.core.scores import no_answer, verdict


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("4", ("4",)),
        (" 4\n", ("4",)),
        (4, ("4",)),
        (4.0, ("4", "4.0")),
        (0.5, ("0.5",)),
        (1e300, ("1e+300",)),
        (Fraction(1, 2), ("1/2",)),
        (np.int64(7), ("7",)),
        (np.float32(0.5), ("0.5",)),
        (["4", "four"], ("4", "four")),
        (("4", 4, "4"), ("4",)),
        ({"b", "a"}, ("a", "b")),
        (np.array([1, 2]), ("1", "2")),
        ([2.0], ("2", "2.0")),
    ],
)
def test_accepted_answers(answer, texts):
    assert accepted_answers(answer) == texts


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "missing"),
        (math.nan, "missing"),
        (np.float64("nan"), "missing"),
        ("", "empty"),
        (" \n", "empty"),
        (True, "truth value"),
        (np.bool_(False), "truth value"),
        (math.inf, "not finite"),
        ({"a": 1}, "is a dict"),
        ([], "empty list"),
        (["4", None], "missing"),
        ([["4"], ["5"]], "is a list"),
        (["4", ""], "empty"),
        (b"4", "is a bytes"),
    ],
)
def test_what_states_no_answer_is_refused(answer, message):
    with pytest.raises(BadAnswer, match=message):
        accepted_answers(answer)
    (score,) = score_cases(LastWord(), [Case(Prompt("p", text="q", answer=answer), "it is 4")])
    assert (score.value, score.outcome) == (None, "bad_answer")
    assert message in score.reason
    assert message in LastWord().check_answer(Prompt("p", text="q", answer=answer))


class LastWord(AnswerVerifier):
    """The last word; golds of several words cannot be read."""

    verifier_name: ClassVar[str] = "last_word"

    def compare(self, case: Case, gold: str) -> Score:
        if " " in gold:
            raise BadAnswer(f"{gold!r} is more than a word")
        given = case.text.split()
        return verdict(given[-1] == gold, given[-1], gold) if given else no_answer("nothing")

    def write(self, gold: str) -> str:
        return f"The answer is {gold}"


@pytest.mark.parametrize(
    ("text", "answer", "outcome"),
    [
        ("it is 4", ["4", "four"], "correct"),
        ("it is four", ["4", "four"], "correct"),
        ("it is 5", ["4", "four"], "incorrect"),
        ("", ["4", "four"], "no_answer"),
        ("it is four", ["no word", "four"], "correct"),
        ("it is five", ["no word", "four"], "incorrect"),
        ("it is word", ["no word", "two words"], "bad_answer"),
        ("it is 4", 4.0, "correct"),
    ],
)
def test_any_accepted_answer_is_right(text, answer, outcome):
    (score,) = score_cases(LastWord(), [Case(Prompt("p", text="q", answer=answer), text)])
    assert score.outcome == outcome


def test_a_list_is_checked_by_the_first_answer_that_can_be_read():
    assert LastWord().check_answer(Prompt("p", text="q", answer=["no word", "four"])) is None
    reason = LastWord().check_answer(Prompt("p", text="q", answer=["no word", "two words"]))
    assert reason.startswith("'no word' is more than a word")


def test_a_removed_name_is_refused_with_its_replacement(monkeypatch):
    monkeypatch.setitem(registry.REMOVED, "old", "`new`")
    with pytest.raises(RecipeError, match="verifier 'old' was removed; use `new`"):
        registry.load_verifier("old")
