"""The verifiers that find one answer and compare it: exact, number, tagged, boxed.

All read only what follows the reasoning section. 1 where the answer is right, 0 where it is wrong
or absent. Left out: algebra (`math.py`), format alone (`formats.py`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.comparison import gold_text, same_answer
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.answers.numbers import Quantity, last_number, parse_number, same_number
from groupwise.verifiers.core.contract import Case, SettingsVerifier

Percent = Literal["ignore", "divide"]
TOLERANCE = "Largest absolute difference that still counts as equal; 0 compares exactly."
RELATIVE = "The same as a share of the gold answer's size."
PERCENT = "ignore: 28% reads as 28. divide: 28% reads as 0.28."
TAG = "The reasoning section's tag; only what follows its end is read."
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False, description=TOLERANCE)]
Relative = Annotated[float, Field(ge=0, allow_inf_nan=False, description=RELATIVE)]


def bad_answer(reason: str) -> Score:
    """The gold answer cannot be used: not scored."""
    return Score(None, "bad_answer", reason)


def no_answer(reason: str) -> Score:
    """The completion holds no answer: 0."""
    return Score(0.0, "no_answer", reason)


def verdict(right: bool, given: str, gold: str) -> Score:
    """1 or 0, with both answers in the reason."""
    if right:
        return Score(1.0, "correct", f"{_short(given)} equals {_short(gold)}")
    return Score(0.0, "incorrect", f"{_short(given)} is not {_short(gold)}")


def graded(value: float, reason: str) -> Score:
    """A value between wrong (0 and below) and right (1 and above)."""
    if value >= 1:
        return Score(value, "correct", reason)
    return Score(value, "partial" if value > 0 else "incorrect", reason)


class Exact(SettingsVerifier):
    """The whole text after the reasoning is the answer, character by character.

    Outer white space never counts; runs of white space count as one blank unless told otherwise.
    """

    verifier_name: ClassVar[str] = "exact"

    ignore_case: bool = Field(default=False, description="Compare without case.")
    collapse_whitespace: bool = Field(
        default=True, description="Read runs of white space as one blank."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    def score_case(self, case: Case) -> Score:
        if case.prompt.answer is None:
            return bad_answer("the prompt has no answer")
        gold = self._normal(str(case.prompt.answer))
        if not gold:
            return bad_answer("the answer is empty")
        text = after_reasoning(case.whole, self.reasoning_tag)
        given = "" if text is None else self._normal(text)
        return verdict(given == gold, given, gold) if given else no_answer("nothing was written")

    def _normal(self, text: str) -> str:
        text = " ".join(text.split()) if self.collapse_whitespace else text.strip()
        return text.casefold() if self.ignore_case else text

    def gold_completion(self, prompt: Prompt) -> str:
        return str(prompt.answer)


class Number(SettingsVerifier):
    """The last number of the text after the reasoning is the answer.

    A number that is a piece of something larger (`4\\sqrt{2}`, `(0,1)`, `12:00`) is no answer.
    """

    verifier_name: ClassVar[str] = "number"

    tolerance: Tolerance = 0.0
    relative_tolerance: Relative = 0.0
    percent: Percent = Field(default="ignore", description=PERCENT)
    reasoning_tag: str = Field(default="think", description=TAG)

    def score_case(self, case: Case) -> Score:
        gold = _gold_number(case.prompt.answer)
        if gold is None:
            return bad_answer(f"the answer {case.prompt.answer!r} is not a number")
        text = after_reasoning(case.whole, self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        given = last_number(text)
        if given is None:
            return no_answer("no number, or only a piece of an expression")
        right = same_number(
            gold,
            given,
            tolerance=self.tolerance,
            relative_tolerance=self.relative_tolerance,
            percent=self.percent,
        )
        return verdict(right, _show(given), _show(gold))

    def gold_completion(self, prompt: Prompt) -> str:
        return gold_text(prompt.answer) or ""


class Tagged(SettingsVerifier):
    """The content of the last `<answer>...</answer>` after the reasoning is the answer.

    Of a box inside, the content.
    """

    verifier_name: ClassVar[str] = "tagged"

    tag: str = Field(default="answer", min_length=1, description="The tag's name.")
    tolerance: Tolerance = 0.0
    relative_tolerance: Relative = 0.0
    percent: Percent = Field(default="ignore", description=PERCENT)
    reasoning_tag: str = Field(default="think", description=TAG)

    def score_case(self, case: Case) -> Score:
        text = after_reasoning(case.whole, self.reasoning_tag)
        given = None if text is None else last_tagged(repaired(text), self.tag)
        if given is not None and r"\boxed" in given:
            given = last_box(given)
        return compared(case, given, f"<{self.tag}>", self)

    def gold_completion(self, prompt: Prompt) -> str:
        return f"<{self.tag}>{prompt.answer}</{self.tag}>"


class Boxed(SettingsVerifier):
    """The content of the last balanced `\\boxed{...}` after the reasoning is the answer."""

    verifier_name: ClassVar[str] = "boxed"

    tolerance: Tolerance = 0.0
    relative_tolerance: Relative = 0.0
    percent: Percent = Field(default="ignore", description=PERCENT)
    reasoning_tag: str = Field(default="think", description=TAG)

    def score_case(self, case: Case) -> Score:
        text = after_reasoning(repaired(case.whole), self.reasoning_tag)
        given = None if text is None else last_box(text)
        return compared(case, given, "\\boxed", self)

    def gold_completion(self, prompt: Prompt) -> str:
        return f"\\boxed{{{gold_text(prompt.answer) or ''}}}"


def compared(case: Case, given: str | None, where: str, rule: Tagged | Boxed) -> Score:
    """An extracted answer against the gold one, by the number and text rule."""
    gold = gold_text(case.prompt.answer)
    if gold is None:
        return bad_answer(f"the answer {case.prompt.answer!r} is empty")
    if given is None:
        return no_answer(f"no {where} with content after the reasoning")
    right = same_answer(
        gold,
        given,
        tolerance=rule.tolerance,
        relative_tolerance=rule.relative_tolerance,
        percent=rule.percent,
    )
    return verdict(right, given, gold)


def _gold_number(answer: object) -> Quantity | None:
    text = gold_text(answer)
    return None if text is None else parse_number(text)


def _show(quantity: Quantity) -> str:
    value = quantity.value
    text = str(value.numerator) if value.denominator == 1 else str(value)
    return _short(text) + ("%" if quantity.is_percent else "")


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
