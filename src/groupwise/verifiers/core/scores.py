"""How a verifier reads a gold answer and states its verdict: the shared rules and wordings.

A gold answer is what a data set's column holds: a text, a number, a list of accepted answers.
`accepted_answers` is the one rule for all verifiers that compare with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from groupwise.errors import VerifierError
from groupwise.texts import whole_text
from groupwise.types import Score, StepReward

_CONTAINERS = (list, tuple, set, frozenset)
LARGEST_VALUE = (2 - 2**-23) * 2.0**127
"""The largest number of float32, in which rewards are learned from."""
TAG = "The reasoning section's tag; only what follows its end is read."


class BadAnswer(ValueError):  # noqa: N818 (it names the outcome)
    """The gold answer (or another column) cannot be used: the row is `bad_answer`, not scored.

    A verifier may raise it anywhere in `score_case`.
    """


def accepted_answers(answer: object) -> tuple[str, ...]:
    """The accepted answers as texts: one of a text or a number, several of a list or a set.

    >>> accepted_answers("  4 "), accepted_answers(4.0), accepted_answers(["4", "four"])
    (('4',), ('4', '4.0'), ('4', 'four'))

    A whole float is accepted with and without its point: a column of whole numbers with gaps is
    read as floats.

    Raises BadAnswer for what states no answer: a missing value (None, NaN), a blank text, an
    infinity, a truth value, a mapping, an empty or a nested list, or a list with one of these.
    """
    return tuple(dict.fromkeys(text for texts in answer_members(answer) for text in texts))


def answer_members(answer: object) -> list[list[str]]:
    """The ways of writing each member of an answer; one member if it is not a list or a set.

    For verifiers in which a list is one answer of several parts. Raises as `accepted_answers`.
    """
    answer = _plain(answer)
    if not isinstance(answer, _CONTAINERS):
        return [_texts(answer)]
    if not answer:
        raise BadAnswer("the answer is an empty list; give at least one accepted answer")
    members = sorted(answer, key=str) if isinstance(answer, (set, frozenset)) else answer
    return [_texts(_plain(member)) for member in members]


def _texts(answer: object) -> list[str]:
    if answer is None or (isinstance(answer, float) and math.isnan(answer)):
        raise BadAnswer("the answer is missing (None or NaN)")
    if isinstance(answer, bool):
        raise BadAnswer(f'the answer {answer} is a truth value; give a text, for example "yes"')
    if isinstance(answer, float) and math.isinf(answer):
        raise BadAnswer(f"the answer {answer} is not finite; give a text")
    if isinstance(answer, (*_CONTAINERS, Mapping, bytes)):
        raise BadAnswer(
            f"the answer {shorten(repr(answer), 60)} is a {type(answer).__name__}; "
            "give a text, a number or a flat list of accepted answers"
        )
    text = str(answer).strip()
    if not text:
        raise BadAnswer("the answer is empty")
    if isinstance(answer, float) and answer.is_integer() and abs(answer) < 1e15:
        return [str(int(answer)), text]
    return [text]


def _plain(value: Any) -> Any:
    """numpy and torch arrays and scalars as Python's own values."""
    return value.tolist() if hasattr(value, "tolist") and hasattr(value, "shape") else value


def best_of(answer: object, judge: Callable[[str], Score]) -> Score:
    """The best of `judge`'s scores over the accepted answers: any of them is right.

    An accepted answer that the verifier cannot read counts only if it can read none of them.
    """
    found: list[Score] = []
    for accepted in accepted_answers(answer):
        try:
            found.append(judge(accepted))
        except BadAnswer as error:
            found.append(bad_answer(str(error)))
        if found[-1].outcome == "correct":
            return found[-1]
    return max(found, key=lambda score: -math.inf if score.value is None else score.value)


def bad_answer(reason: str) -> Score:
    """The gold answer cannot be used: not scored."""
    return Score(None, "bad_answer", reason)


def no_answer(reason: str) -> Score:
    """The completion holds no answer: 0."""
    return Score(0.0, "no_answer", reason)


def verdict(right: bool, given: str, gold: str) -> Score:
    """1 or 0, with both answers in the reason."""
    given, gold = shorten(given, 60), shorten(gold, 60)
    if right:
        return Score(1.0, "correct", f"{given} equals {gold}")
    return Score(0.0, "incorrect", f"{given} is not {gold}")


def graded(value: float, reason: str, correct_from: float = 1.0) -> Score:
    """`correct` from `correct_from` on, `incorrect` at 0 and below, `partial` between."""
    if value >= correct_from:
        return Score(value, "correct", reason)
    return Score(value, "partial" if value > 0 else "incorrect", reason)


def rated(value: float, reason: str) -> Score:
    """`graded` for a value up to 1; above 1 the scale is unknown, so there is no verdict."""
    return graded(value, reason) if value < 1 + 1e-9 else Score(value, "no_verdict", reason)


def shorten(text: str, limit: int = 80) -> str:
    """The text, cut at `limit` characters with three dots."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def as_score(name: str, row: int, value: Any) -> Score:
    """What the verifier `name` returned for a row, as a `Score` of plain floats and whole texts.

    Numbers: 1 is `correct`, 0 and below `incorrect`, between `partial`, above 1 `no_verdict`. None
    is `not_applicable`. numpy and torch scalars count as numbers. Raises VerifierError for anything
    else, and for a number that is not finite or beyond float32.
    """
    where = f"verifier {name!r}, row {row}:"
    if value is None:
        return Score(None, "not_applicable", f"{name} does not apply")
    if isinstance(value, Score):
        return _recordable(where, value)
    if getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise VerifierError(
            f"{where} expected a number, a bool, a Score or None; "
            f"got {type(value).__name__} ({shorten(repr(value))})"
        )
    number = _in_range(where, value)
    return rated(number, f"{name} gave {number:g}")


def _recordable(where: str, score: Score) -> Score:
    parts: dict[str, float | None] = {}
    given: Mapping[Any, Any] = score.parts
    for part, each in given.items():
        if not (each is None or isinstance(each, Real)):
            raise VerifierError(
                f"{where} the score's parts[{part!r}] is {each!r:.80}; expected a number or None"
            )
        parts[whole_text(str(part))] = None if each is None else float(each)
    steps, value, reason = score.steps, score.value, score.reason
    if steps is not None:
        steps = tuple(StepReward(_in_range(where, step.value), step.end) for step in steps)
    value = None if value is None else _in_range(where, value)
    return Score(value, score.outcome, whole_text(str(reason or "")), parts, steps)


def _in_range(where: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:  # a whole number above the largest float
        number = math.inf
    if not math.isfinite(number):
        raise VerifierError(
            f"{where} expected a finite number, got {number}; return None where it does not apply"
        )
    if abs(number) > LARGEST_VALUE:
        raise VerifierError(
            f"{where} {number:g} is too large; rewards are learned from in float32, whose largest "
            f"number is {LARGEST_VALUE:g}"
        )
    return number
