"""Whether an extracted answer is the gold one: as a number where both are, else as text.

The gold answer is always the first argument. Left out: algebra (`math.py`).
"""

from __future__ import annotations

import re

from groupwise.verifiers.answers.cleaning import plain
from groupwise.verifiers.answers.extraction import last_box, repaired
from groupwise.verifiers.answers.numbers import parse_number, same_number

_NAMED = re.compile(r"^\s*\\?[A-Za-z](?:_\{?\w\}?)?\s*=\s*(?=[^=])")


def gold_text(answer: object) -> str | None:
    r"""The gold answer as text, out of its box if it is in one; None where there is none.

    >>> gold_text(r"\boxed{42}"), gold_text(7), gold_text("  ")
    ('42', '7', None)
    """
    if answer is None or isinstance(answer, bool):
        return None
    text = repaired(str(answer)).strip()
    return (last_box(text) if r"\boxed" in text else text) or None


def same_answer(
    gold: str,
    given: str,
    *,
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    percent: str = "ignore",
) -> bool:
    r"""Equal as numbers where both are numbers (`numbers.same_number`), else equal as plain text.

    >>> same_answer("0.5", r"\frac12"), same_answer("(0,1)", "(0,1.5)"), same_answer("5", "x=5")
    (True, False, True)
    """
    if bool(_NAMED.match(gold)) != bool(_NAMED.match(given)):
        gold, given = _NAMED.sub("", gold), _NAMED.sub("", given)
    first, second = parse_number(gold), parse_number(given)
    if first is not None and second is not None:
        return same_number(
            first,
            second,
            tolerance=tolerance,
            relative_tolerance=relative_tolerance,
            percent=percent,
        )
    text = plain(gold)
    return bool(text) and text == plain(given)
