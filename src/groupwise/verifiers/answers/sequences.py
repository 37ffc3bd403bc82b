"""Short answers compared as what they are: `sequence` (order counts), `assignment`, `text`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import no_answer, verdict
from groupwise.verifiers.answers.cleaning import cleaned
from groupwise.verifiers.answers.comparison import same_answer
from groupwise.verifiers.answers.final_answer import FinalAnswer
from groupwise.verifiers.answers.numbers import parse_number, same_number

_BRACKETS = re.compile(r"[\[\](){}\"'`$“”‘’<>]")
_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
_ZEROS = re.compile(r"[+-]?0\d")
_BREAKS = re.compile(r"[,;\s]+")
_PIECES = re.compile(r"\s*(?:(?<!\d),|,(?!\d{3}(?!\d))|[;\n]|\band\b)\s*")
_ARROWS = re.compile(r"\s*(?:->|→|⟶|⇒|\\(?:to|rightarrow|longrightarrow)(?![A-Za-z]))\s*")
_FRACTION = re.compile(r"(?<![\d}])\\frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))")
_LEAD = re.compile(r"([^\d,;:<>\[\](){}]*):(?=\D)")
_PAIR = re.compile(r"([^\W\d]\w*)\s*(?:\bis\b|=|:|->|→)\s*(?:(?:an?|the)\s+)?(\S.*)", re.IGNORECASE)


class ItemSequence(FinalAnswer):
    """The gold answer's items in the gold answer's order, nothing more and nothing less.

    Items are numbers or single words, separated by commas, blanks, arrows or lines; the gold answer
    is such a text, or a list. Words are compared without case, numbers by value. Numbers with < or
    > between them must be in that order.
    """

    verifier_name: ClassVar[str] = "sequence"

    def judge(self, given: str, prompt: Prompt) -> Score:
        gold = prompt.answer
        if isinstance(gold, (list, tuple)):
            gold = ", ".join(str(each) for each in gold)
        wanted = _items(str(gold))
        lead = _LEAD.match(given)
        if lead is not None and not set(_items(lead.group(1))) & set(wanted):
            given = given[lead.end() :]
        found = _items(given)
        if "and" in found and "and" not in wanted:
            found = [item for item in found if item != "and"]
        if not found:
            return no_answer("no items are listed")
        right = len(found) == len(wanted) and all(map(_same_item, wanted, found))
        return verdict(right and _in_order(given, found), ", ".join(found), ", ".join(wanted))

    def gold_completion(self, prompt: Prompt) -> str | None:
        gold = prompt.answer
        if isinstance(gold, (list, tuple)):
            gold = ", ".join(str(each) for each in gold)
        return f"<{self.tag}>{gold}</{self.tag}>" if gold else None


class Assignment(FinalAnswer):
    """Every name with its value, as `Anna: knight, Ben: knave` or `x = 3, y = -2`.

    All of the gold answer's names must be there and no other; a name given two values is wrong.
    Where there is one name, the value alone will do. Numbers are compared by value, exactly. The
    gold answer is such a text, or a mapping.
    """

    verifier_name: ClassVar[str] = "assignment"

    def problem(self, prompt: Prompt) -> str | None:
        gold = self._gold(prompt)
        return None if gold else f"the answer {prompt.answer!r:.60} assigns nothing"

    def judge(self, given: str, prompt: Prompt) -> Score:
        gold = self._gold(prompt) or {}
        found = _pairs(given)
        if found is None and len(gold) == 1:
            (name,) = gold
            found = {name: cleaned(given).strip(" .$")}
        if found is None:
            return no_answer(f"{given[:60]!r} assigns nothing, or one name twice")
        right = found.keys() == gold.keys() and all(
            same_answer(gold[name], found[name]) for name in gold
        )
        return verdict(right, _shown(found), _shown(gold))

    def _gold(self, prompt: Prompt) -> dict[str, str] | None:
        if isinstance(prompt.answer, Mapping):
            return {str(name).casefold(): str(value) for name, value in prompt.answer.items()}
        return _pairs(str(prompt.answer or ""))

    def gold_completion(self, prompt: Prompt) -> str | None:
        gold = prompt.answer
        if isinstance(gold, Mapping):
            gold = ", ".join(f"{name}: {value}" for name, value in gold.items())
        return f"<{self.tag}>{gold}</{self.tag}>" if gold else None


class Text(FinalAnswer):
    """The final answer is the gold answer, letter by letter; a number by its value.

    Quotation marks around it, their kind, markdown and a final period do not count; runs of white
    space are one blank. A unit belongs to the text, and so do zeros in front of a number.
    """

    verifier_name: ClassVar[str] = "text"

    ignore_case: bool = Field(default=False, description="Compare without case.")

    def judge(self, given: str, prompt: Prompt) -> Score:
        wanted, found = self._normal(str(prompt.answer)), self._normal(given)
        if not found:
            return no_answer("nothing is written")
        return verdict(found == wanted or _same_number(wanted, found), found, wanted)

    def _normal(self, text: str) -> str:
        text = " ".join(cleaned(text).translate(_QUOTES).split()).strip(" .$")
        if len(text) > 1 and text[0] in "\"'" and text[-1] in "\"'":
            text = text[1:-1].strip(" .")
        return text.casefold() if self.ignore_case else text


def _items(text: str) -> list[str]:
    text = _BRACKETS.sub(" ", _ARROWS.sub(", ", _fractions(cleaned(text)))).strip()
    text = text if text.endswith("..") else text.removesuffix(".")  # "3, 10, ..." goes on
    return [item.casefold() for item in _BREAKS.split(text) if item]


def _fractions(text: str) -> str:
    """Fractions of whole numbers with a stroke, since braces are taken for brackets here."""
    return _FRACTION.sub(
        lambda match: f"{match.group(1) or match.group(2)}/{match.group(3) or match.group(4)}", text
    )


def _in_order(text: str, items: list[str]) -> bool:
    """Whether numbers stand as the comparison signs between them say."""
    text = _ARROWS.sub(", ", cleaned(text))
    values = [number.value for number in map(parse_number, items) if number is not None]
    if len(values) < len(items):
        return True
    if ("<" in text) == (">" in text):  # no sign, or angle brackets
        return True
    return all(a <= b if "<" in text else a >= b for a, b in pairwise(values))


def _same_number(gold: str, given: str) -> bool:
    """Equal numbers of one unit, none of them a text of digits such as 007."""
    first, second = parse_number(gold), parse_number(given)
    if first is None or second is None or any(_ZEROS.match(each) for each in (gold, given)):
        return False
    return bool(first.unit) == bool(second.unit) and same_number(first, second)


def _same_item(gold: str, given: str) -> bool:
    first, second = parse_number(gold), parse_number(given)
    if first is not None and second is not None:
        return first == second
    return gold == given


def _pairs(text: str) -> dict[str, str] | None:
    """Value by case-folded name; None where a piece is no pair or a name has two values."""
    text = _fractions(cleaned(text.replace("\n", "; ")))
    pieces = _PIECES.split(_BRACKETS.sub(" ", text).strip(" ."))
    found: dict[str, str] = {}
    for piece in pieces:
        if not piece.strip():
            continue
        match = _PAIR.fullmatch(piece.strip())
        if match is None:
            return None
        name, value = match.group(1).casefold(), match.group(2).strip(" .")
        if found.setdefault(name, value) != value:
            return None
    return found or None


def _shown(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in pairs.items())
