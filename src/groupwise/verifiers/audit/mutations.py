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
from groupwise.verifiers.audit.forms import gold_of

Change = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """`change(gold)` is the changed answer, None where it does not apply; `keep`: same meaning."""

    name: str
    keep: bool
    change: Change


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


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("white space around", True, lambda gold: f"  {gold} "),
    Mutation("in dollars", True, _dollars),
    Mutation("a decimal point and a zero", True, _of_whole(lambda n: f"{n}.0")),
    Mutation("thousands separators", True, _of_whole(lambda n: f"{n:,}" if abs(n) > 999 else None)),
    Mutation("as a fraction of itself", True, _of_whole(lambda n: rf"\frac{{{2 * n}}}{{2}}")),
    Mutation("not reduced", True, _of_fraction(lambda a, b: rf"\frac{{{3 * a}}}{{{3 * b}}}")),
    Mutation("one more", False, _of_whole(lambda n: str(n + 1))),
    Mutation("one less", False, _of_whole(lambda n: str(n - 1))),
    Mutation("the other sign", False, _of_whole(lambda n: str(-n) if n else None)),
    Mutation("ten times", False, _of_whole(lambda n: f"{n}0" if n else None)),
    Mutation("a digit in front", False, _of_whole(lambda n: f"{'-' * (n < 0)}3{abs(n)}")),
    Mutation(
        "upside down", False, _of_fraction(lambda a, b: rf"\frac{{{b}}}{{{a}}}" if a else None)
    ),
    Mutation("numerator alone", False, _of_fraction(lambda a, _b: str(a))),
    Mutation("members swapped", False, _swapped_members),
    Mutation("the next letter", False, _next_letter),
    Mutation("spelt backwards", False, _reversed),
)


_OF_OPTIONS = frozenset({"white space around", "the next letter", "spelt backwards"})
"""What applies where the answer is one of the prompt's options, compared as text."""


def mutated(prompt: Prompt) -> list[tuple[Mutation, str]]:
    """Every mutation that applies to the prompt's gold answer, with the changed answer."""
    gold = gold_of(prompt)
    if gold is None:
        return []
    options = any(prompt.columns.get(name) for name in ("choices", "options"))
    mutations = [each for each in MUTATIONS if not options or each.name in _OF_OPTIONS]
    applied = [(mutation, mutation.change(gold)) for mutation in mutations]
    return [(mutation, answer) for mutation, answer in applied if answer is not None]
