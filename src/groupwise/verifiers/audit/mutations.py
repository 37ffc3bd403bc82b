r"""Small changes of a gold answer whose effect on the verdict is known: it must flip, or must stay.

A change that means the same (white space, dollars, `7.0`) must keep the verdict; one that means
something else (one more, another sign, two members swapped) must flip it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from groupwise.types import Prompt
from groupwise.verifiers.answers.numbers import parse_number

Change = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed gold answer; `keep`: it still means the same."""

    name: str
    keep: bool
    text: str


def _whole(gold: str) -> int | None:
    text = gold.replace(",", "")
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else None


def _of_whole(change: Callable[[int], str | None]) -> Change:
    def apply(gold: str) -> str | None:
        value = _whole(gold)
        return None if value is None else change(value)

    return apply


def _of_fraction(change: Callable[[int, int], str | None]) -> Change:
    def apply(gold: str) -> str | None:
        quantity = parse_number(gold)
        if quantity is None or quantity.unit or quantity.value.denominator == 1:
            return None
        return change(quantity.value.numerator, quantity.value.denominator)

    return apply


def _swapped_members(gold: str) -> str | None:
    match = re.fullmatch(r"\(\s*([^(),]+?)\s*,\s*([^(),]+?)\s*\)", gold)
    if match is None or match.group(1) == match.group(2) or re.search(r"\d,\d{3}", gold):
        return None
    return f"({match.group(2)},{match.group(1)})"


def _next_letter(gold: str) -> str | None:
    return chr(ord(gold) + 1) if re.fullmatch("[A-C]", gold) else None


def _reversed(gold: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z]{3,}", gold) or gold.casefold() == gold[::-1].casefold():
        return None
    return gold[::-1]


def _dollars(gold: str) -> str | None:
    quantity = parse_number(gold)
    return f"${gold}$" if quantity is not None and not quantity.unit and "$" not in gold else None


CHANGES: tuple[tuple[str, bool, Change], ...] = (
    ("white space around", True, lambda gold: f"  {gold} "),
    ("in dollars", True, _dollars),
    ("a decimal point and a zero", True, _of_whole(lambda n: f"{n}.0")),
    ("thousands separators", True, _of_whole(lambda n: f"{n:,}" if abs(n) > 999 else None)),
    ("as a fraction of itself", True, _of_whole(lambda n: rf"\frac{{{2 * n}}}{{2}}")),
    ("not reduced", True, _of_fraction(lambda a, b: rf"\frac{{{3 * a}}}{{{3 * b}}}")),
    ("one more", False, _of_whole(lambda n: str(n + 1))),
    ("one less", False, _of_whole(lambda n: str(n - 1))),
    ("the other sign", False, _of_whole(lambda n: str(-n) if n else None)),
    ("ten times", False, _of_whole(lambda n: f"{n}0" if n else None)),
    ("a digit in front", False, _of_whole(lambda n: f"{'-' * (n < 0)}3{abs(n)}")),
    ("upside down", False, _of_fraction(lambda a, b: rf"\frac{{{b}}}{{{a}}}" if a else None)),
    ("numerator alone", False, _of_fraction(lambda a, _b: str(a))),
    ("members swapped", False, _swapped_members),
    ("the next letter", False, _next_letter),
    ("spelt backwards", False, _reversed),
)


_OF_OPTIONS = frozenset({"white space around", "the next letter", "spelt backwards"})
"""What applies where the answer is one of the prompt's options, compared as text."""


def mutated(prompt: Prompt, gold: str | None) -> list[Mutation]:
    """Every change that applies to a prompt's gold answer."""
    if gold is None:
        return []
    options = any(prompt.columns.get(name) for name in ("choices", "options"))
    return [
        Mutation(name, keep, text)
        for name, keep, change in CHANGES
        if (not options or name in _OF_OPTIONS) and (text := change(gold)) is not None
    ]
