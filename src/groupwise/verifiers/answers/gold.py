"""Gold answers as texts, and the mutants of them that must be judged wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

from groupwise.verifiers.answers.extraction import last_box, repaired
from groupwise.verifiers.core.scores import BadAnswer

MAX_MUTANTS = 8
"""Mutants tried of one gold answer."""

_COMMANDS = re.compile(
    r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+|\\.|(?<=\d)[eE](?=[+-]?\d)"  # 1e-3 is 1E-3
)
_BRACKETS = str.maketrans("()[]", "[](" + ")")
_CHANGES: list[tuple[str, Callable[[str], str], int]] = [
    (r"\d", lambda c: str((int(c) + 1) % 10), 3),
    (r"[+-]", lambda c: "-" if c == "+" else "+", 2),
    (r"[A-Za-z]", lambda c: chr(ord(c) - 25) if c in "zZ" else chr(ord(c) + 1), 2),
    (r"[A-Za-z]", str.swapcase, 1),
    (r"[()\[\]]", lambda c: c.translate(_BRACKETS), 2),
]
"""What is changed, into what, and at how many places."""


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
    r"""Small changes of a gold answer that mean something else: a digit, a sign, a letter, a
    bracket, an element.

    >>> mutants("(1,x]")
    ['(2,x]', '(1,y]', '(1,X]', '[1,x]', '(1,x)', '(x,1]', '(1]']
    """
    kept = {place for match in _COMMANDS.finditer(gold) for place in range(*match.span())}
    words = re.search(r"[A-Za-z]\.?[A-Za-z]", _COMMANDS.sub("", gold))
    found: list[str] = []
    for pattern, change, number in _CHANGES:
        if change is str.swapcase and words:
            continue
        places = [each.start() for each in re.finditer(pattern, gold) if each.start() not in kept]
        changed = [gold[:at] + change(gold[at]) + gold[at + 1 :] for at in places]
        found += _spread(changed, number)
    found += _elements(gold)
    return _spread(list(dict.fromkeys(each for each in found if each != gold)), MAX_MUTANTS)


def _elements(gold: str) -> list[str]:
    """Two members swapped where order counts, and the last one left out."""
    match = re.fullmatch(r"(.*[(\[{<]|)([^()\[\]{}<>]*,[^()\[\]{}<>]*)([)\]}>\\].*|)", gold)
    if match is None or re.search(r"\d,\d{3}(?!\d)", gold):
        return []
    head, inner, tail = match.groups()
    first, *rest = inner.split(",")
    swapped = [f"{head}{','.join([*rest, first])}{tail}"] if head[-1:] in ("(", "[") else []
    fewer = [f"{head}{','.join([first, *rest[:-1]])}{tail}"]
    same = len({each.strip() for each in (first, *rest)}) == 1
    return fewer if same else [*swapped, *fewer]


def _spread(found: list[str], number: int) -> list[str]:
    """At most `number` of them, evenly spaced, the last one among them."""
    if len(found) <= number:
        return found
    if number == 1:
        return found[:1]
    return [found[place * (len(found) - 1) // (number - 1)] for place in range(number)]
