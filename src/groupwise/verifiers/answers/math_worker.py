"""Algebra on two short answers with math-verify, inside a worker process that can be killed.

math-verify's own timers are off: they need the main thread and do not stop everything. Its numeric
comparison is loose (pi equals 3.14159265); an exact one has the last word here. Answers are read as
LaTeX alone: the other parser on offer, for plain expressions, evaluates Python.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Verdict = str


def make() -> Callable[[tuple[str, str]], Verdict]:
    """Imports math-verify; gives the function that judges (gold, given).

    The verdict is `equal`, `different`, `bad_answer` (gold cannot be parsed) or `no_answer` (given
    cannot). Given None asks for gold alone: `equal` where it can be parsed.
    """
    logging.disable(logging.WARNING)
    import sympy
    from math_verify import LatexExtractionConfig, parse, verify

    config = (LatexExtractionConfig(),)

    def parsed(text: str) -> list[Any]:
        found = parse(f"\\boxed{{{text}}}", extraction_config=config, parsing_timeout=None)
        return found if any(not isinstance(each, str) for each in found) else []

    def judge(job: tuple[str, str | None]) -> Verdict:
        gold_text, given_text = job
        gold = parsed(gold_text)
        if not gold:
            return "bad_answer"
        if given_text is None:
            return "equal"
        given = parsed(given_text)
        if not given:
            return "no_answer"
        equal = verify(gold, given, timeout_seconds=None, allow_set_relation_comp=True)
        return (
            "equal" if equal and not _exactly_different(sympy, gold[0], given[0]) else "different"
        )

    judge(("x^2+1", "1+x^2"))  # loads the parsers, so that the first job's clock is fair
    return judge


def _exactly_different(sympy: Any, gold: Any, given: Any) -> bool:
    """Whether two numbers, decimals read as fractions, are provably not equal."""
    if not (isinstance(gold, sympy.Expr) and isinstance(given, sympy.Expr)):
        return False
    if not (gold.is_number and given.is_number):
        return False
    exact = [
        each.xreplace({number: sympy.Rational(str(number)) for number in each.atoms(sympy.Float)})
        for each in (gold, given)
    ]
    return (exact[0] - exact[1]).equals(0) is False
