"""Small changes of a gold answer whose effect on the verdict is known: it must flip, or must stay.

A change that means the same (white space, dollars, `7.0`) must keep the verdict; one that means
something else (`gold.mutants`: a digit, a sign, a letter, a bracket, an element) must flip it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from groupwise.types import Prompt
from groupwise.verifiers.answers.gold import mutants
from groupwise.verifiers.answers.numbers import parse_number


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed gold answer; `keep`: it still means the same."""

    name: str
    keep: bool
    text: str


def mutated(prompt: Prompt, gold: str | None) -> list[Mutation]:
    """Every change that applies to a prompt's gold answer; letters in another case are not one."""
    if gold is None:
        return []
    same = {"white space around": f"  {gold} "}
    if any(prompt.columns.get(name) for name in ("choices", "options")):  # compared as text
        changed = [chr(ord(gold) + 1)] if re.fullmatch("[A-C]", gold) else []
    else:
        same |= _written_otherwise(gold)
        changed = [each for each in mutants(gold) if each.casefold() != gold.casefold()]
    return [
        *(Mutation(name, True, text) for name, text in same.items()),
        *(Mutation("changed", False, text) for text in changed),
    ]


def _written_otherwise(gold: str) -> dict[str, str]:
    """A number without a unit in other notations."""
    quantity = parse_number(gold)
    if quantity is None or quantity.unit:
        return {}
    found = {} if "$" in gold else {"in dollars": f"${gold}$"}
    top, bottom = quantity.value.numerator, quantity.value.denominator
    if bottom > 1:
        return {**found, "not reduced": rf"\frac{{{3 * top}}}{{{3 * bottom}}}"}
    if re.fullmatch(r"-?\d{1,15}", gold):
        found["with a decimal point"] = f"{gold}.0"
        found["as a fraction"] = rf"\frac{{{2 * top}}}{{2}}"
        if abs(top) > 999:
            found["with thousands separators"] = f"{top:,}"
    return found
