"""Gold answers as texts, and the mutants of them that must be judged wrong."""

from __future__ import annotations

import re
import string

from groupwise.verifiers.answers.extraction import last_box, repaired
from groupwise.verifiers.core.scores import BadAnswer

MAX_MUTANTS = 8
"""Mutants of one gold answer."""

_COMMANDS = re.compile(
    r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+|\\.|(?<=\d)[eE](?=[+-]?\d)"  # 1e-3 is 1E-3
)
_KINDS = (string.digits, "+-", string.ascii_lowercase, string.ascii_uppercase)
_NEXT = {ord(sign): kind[(place + 1) % len(kind)] for kind in _KINDS
         for place, sign in enumerate(kind)}  # fmt: skip
_NEXT |= {ord(sign): other for sign, other in zip("()[]", ("[", "]", "(", ")"))}


def unboxed(gold: str) -> str:
    r"""The gold answer out of its box; `BadAnswer` if nothing is in it.

    >>> unboxed(r"\boxed{42}"), unboxed(" 42 ")
    ('42', '42')
    """
    text = without_box(gold)
    if not text:
        raise BadAnswer("the answer is empty")
    return text


def without_box(text: str) -> str:
    """A text out of the box around it, if one is in it; stripped."""
    text = repaired(text).strip()
    return ((last_box(text) or "") if r"\boxed" in text else text).strip()


def mutants(gold: str) -> list[str]:
    r"""A gold answer with one digit, sign, letter or bracket changed, evenly spaced places.

    >>> mutants("(1,x]"), mutants(r"\frac13")
    (['[1,x]', '(2,x]', '(1,y]', '(1,x)'], ['\\frac23', '\\frac14'])
    """
    kept = {place for match in _COMMANDS.finditer(gold) for place in range(*match.span())}
    places = [p for p, sign in enumerate(gold) if ord(sign) in _NEXT and p not in kept]
    step = max(1, len(places) / MAX_MUTANTS)
    places = [places[int(number * step)] for number in range(min(len(places), MAX_MUTANTS))]
    return [gold[:place] + gold[place].translate(_NEXT) + gold[place + 1 :] for place in places]
