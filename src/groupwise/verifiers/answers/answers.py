"""The verifiers that compare one answer exactly: exact, number, tagged, boxed, text, sequence."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.comparing import Percent
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.answers.final_answer import FinalAnswer
from groupwise.verifiers.answers.gold import without_box
from groupwise.verifiers.answers.judging import judge, prompt_words
from groupwise.verifiers.answers.numbers import last_number, parse_number, same_number
from groupwise.verifiers.answers.tokens import normal
from groupwise.verifiers.core.contract import AnswerVerifier, Case
from groupwise.verifiers.core.scores import (
    TAG,
    BadAnswer,
    answer_members,
    no_answer,
    verdict,
)

TOLERANCE = "Largest absolute difference that still counts as equal; 0 compares exactly."
RELATIVE = "The same as a share of the gold answer's size."
PERCENT = "ignore: 28% reads as 28. divide: 28% reads as 0.28."
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False, description=TOLERANCE)]
Relative = Annotated[float, Field(ge=0, allow_inf_nan=False, description=RELATIVE)]


class Exact(AnswerVerifier):
    """The whole text after the reasoning is the answer, character by character.

    Outer white space never counts; runs of white space count as one blank unless told otherwise.
    """

    verifier_name: ClassVar[str] = "exact"

    ignore_case: bool = Field(default=False, description="Compare without case.")
    collapse_whitespace: bool = Field(
        default=True, description="Read runs of white space as one blank."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    def compare(self, case: Case, gold: str) -> Score:
        text = after_reasoning(case.whole, self.reasoning_tag)
        given, wanted = self._normal(text or ""), self._normal(gold)
        return verdict(given == wanted, given, wanted) if given else no_answer("nothing is written")

    def _normal(self, text: str) -> str:
        text = " ".join(text.split()) if self.collapse_whitespace else text.strip()
        return text.casefold() if self.ignore_case else text

    def write(self, gold: str) -> str:
        return gold


class _Compared(FinalAnswer):
    """An answer that is the gold one by exact arithmetic, within a tolerance, or as written."""

    tolerance: Tolerance = 0.0
    relative_tolerance: Relative = 0.0
    percent: Percent = Field(default="ignore", description=PERCENT)

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        found = judge(
            gold,
            given,
            percent=self.percent,
            words=prompt_words(prompt.text or ""),
            tolerance=self.tolerance,
            relative_tolerance=self.relative_tolerance,
        )
        if found.kind == "bad_answer":
            raise BadAnswer(found.reason)
        if found.kind == "no_answer":
            return no_answer(found.reason)
        return verdict(found.kind == "equal", given, gold)


class Number(_Compared):
    """A number: the last box, else the last answer tag, else the last number of the text.

    In a box or tag the number is all there is. In a text, words around the last number are not
    read; a number that is a piece of a formula (`4\\sqrt{2}`, `(0,1)`, `12:00`) is no answer.
    """

    verifier_name: ClassVar[str] = "number"

    def unmarked(self, text: str) -> str | None:
        found = last_number(text)
        return None if found is None else f"{found.value} {found.unit}".strip()

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        if parse_number(gold) is None:
            raise BadAnswer(f"the answer {gold[:60]!r} is not a number")
        return super().judge(given, gold, prompt)

    def write(self, gold: str) -> str:
        return without_box(gold)


class Tagged(_Compared):
    """The content of the last `<answer>...</answer>` after the reasoning is the answer.

    Of a box inside, the content.
    """

    verifier_name: ClassVar[str] = "tagged"

    def located(self, text: str) -> str | Score:
        rest = after_reasoning(repaired(text), self.reasoning_tag)
        given = None if rest is None else last_tagged(rest, self.tag)
        if given is not None and r"\boxed" in given:
            given = last_box(given)
        return given or no_answer(f"no <{self.tag}> with content after the reasoning")


class Boxed(_Compared):
    """The content of the last balanced `\\boxed{...}` after the reasoning is the answer."""

    verifier_name: ClassVar[str] = "boxed"

    def located(self, text: str) -> str | Score:
        rest = after_reasoning(repaired(text), self.reasoning_tag)
        given = None if rest is None else last_box(rest)
        return given or no_answer("no \\boxed with content after the reasoning")

    def write(self, gold: str) -> str:
        return f"\\boxed{{{without_box(gold)}}}"


class Text(FinalAnswer):
    """The final answer is the gold answer, letter by letter; a number by its value.

    Quotation marks around it, their kind, markdown and a final period do not count; runs of white
    space are one blank. A unit belongs to the text, and so do zeros in front of a number.
    """

    verifier_name: ClassVar[str] = "text"

    ignore_case: bool = Field(default=False, description="Compare without case.")

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        wanted, found = self._normal(gold), self._normal(given)
        if not found:
            return no_answer("nothing is written")
        return verdict(found == wanted or _same_number(wanted, found), found, wanted)

    def _normal(self, text: str) -> str:
        text = _BOLD.sub("", normal(text)).translate(_QUOTES)
        text = " ".join(text.split()).strip(" .$")
        if len(text) > 1 and text[0] in "\"'" and text[-1] in "\"'":
            text = text[1:-1].strip(" .")
        return text.casefold() if self.ignore_case else text


_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
_BOLD = re.compile(r"\*\*|__|`")
_ZEROS = re.compile(r"[+-]?0\d")


def _same_number(gold: str, given: str) -> bool:
    """Equal numbers of one unit, none of them a text of digits such as 007."""
    first, second = parse_number(gold), parse_number(given)
    if first is None or second is None or any(_ZEROS.match(each) for each in (gold, given)):
        return False
    return bool(first.unit) == bool(second.unit) and same_number(first, second)


class ItemSequence(FinalAnswer):
    """The gold answer's items in the gold answer's order, nothing more and nothing less.

    Items are numbers or single words, separated by commas, blanks, arrows or lines; the gold answer
    is such a text, or a list of items (not of alternatives). Words are compared without case,
    numbers by value. Numbers with < or > between them must be in that order.
    """

    verifier_name: ClassVar[str] = "sequence"

    def score_case(self, case: Case) -> Score:
        return self.compare(case, self._listed(case.prompt))

    def _listed(self, prompt: Prompt) -> str:
        return ", ".join(written[0] for written in answer_members(prompt.answer))

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        wanted = _items(gold)
        if not wanted:
            raise BadAnswer(f"the answer {gold[:60]!r} has no items")
        lead = _LABEL.match(given)
        if lead is not None and not set(_items(lead.group(1))) & set(wanted):
            given = given[lead.end() :]
        found = _items(given)
        if "and" not in wanted:
            found = [item for item in found if item != "and"]
        if not found:
            return no_answer("no items are listed")
        right = len(found) == len(wanted) and all(map(_same_item, wanted, found))
        return verdict(right and _in_order(given, found), ", ".join(found), ", ".join(wanted))

    def gold_completion(self, prompt: Prompt) -> str | None:
        return self.write(self._listed(prompt))


_MARKS = re.compile(r"[\[\](){}\"'`$“”‘’<>]")
_BREAKS = re.compile(r"[,;\s]+")
_ARROWS = re.compile(r"\s*(?:->|→|⟶|⇒|\\(?:to|rightarrow|longrightarrow)(?![A-Za-z]))\s*")
_FRACTION = re.compile(r"(?<![\d}])\\frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))")
_LABEL = re.compile(r"([^\d,;:<>\[\](){}]*):(?=\D)")


def _items(text: str) -> list[str]:
    text = _FRACTION.sub(
        lambda m: f"{m.group(1) or m.group(2)}/{m.group(3) or m.group(4)}",
        normal(_ARROWS.sub(", ", text)),
    )
    text = _MARKS.sub(" ", text).strip()
    text = text if text.endswith("..") else text.removesuffix(".")  # "3, 10, ..." is unfinished
    return [item.casefold() for item in _BREAKS.split(text) if item]


def _in_order(text: str, items: list[str]) -> bool:
    """Whether numbers stand as the comparison signs between them say."""
    text = _ARROWS.sub(", ", text)
    values = [number.value for number in map(parse_number, items) if number is not None]
    if len(values) < len(items):
        return True
    if ("<" in text) == (">" in text):  # no sign, or angle brackets
        return True
    return all(a <= b if "<" in text else a >= b for a, b in pairwise(values))


def _same_item(gold: str, given: str) -> bool:
    first, second = parse_number(gold), parse_number(given)
    if first is not None and second is not None:
        return first == second
    return gold == given
