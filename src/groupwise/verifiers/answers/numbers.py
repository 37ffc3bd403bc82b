r"""Numbers as people and models write them, read exactly as fractions.

Read: `8,000`, `8{,}000`, `-3`, `.5`, `28\%`, `1/2`, `\frac12`, `2\frac{1}{2}`, `2 1/2`, `1.2e3`,
`1.23\times10^{4}`, `10^{100}`, `5 million`, `$12`, `10\text{ cm}`, `0.1\overline{6}`. Sums,
products, roots, lists and times of day are not numbers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from groupwise.verifiers.answers.evaluator import rational
from groupwise.verifiers.answers.final_answer import formula_runs
from groupwise.verifiers.answers.reading import Value, read
from groupwise.verifiers.answers.tokens import UnreadableError
from groupwise.verifiers.answers.units import canonical, singular


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value and the unit written behind it (`%` and currency included; empty where none)."""

    value: Fraction
    unit: str = ""


def parse_number(answer: object, words: Collection[str] | None = None) -> Quantity | None:
    r"""The number that `answer` is as a whole, or None.

    `words`: which words besides known units may stand behind it; None for any.

    >>> parse_number(r"2\frac{1}{2}").value, parse_number("8,000").value, parse_number("(0,1)")
    (Fraction(5, 2), Fraction(8000, 1), None)
    """
    if answer is None or isinstance(answer, bool):
        return None
    if isinstance(answer, float) and not math.isfinite(answer):
        return None
    try:
        return _quantity(read(str(answer)), words)
    except UnreadableError:
        return None


def last_number(text: str) -> Quantity | None:
    r"""The last number that a text states; None if the last formula with a digit is not a number.

    Words around it are not read: the last number of `7 is wrong` is 7.

    >>> last_number("3 + 4 = 7.").value, last_number(r"so $x = -2\frac12$").value
    (Fraction(7, 1), Fraction(-5, 2))
    >>> last_number(r"it is 4\sqrt{2}"), last_number("at 12:00"), last_number("5 or 6")
    (None, None, None)
    """
    runs = [run for run in formula_runs(text) if any(map(str.isnumeric, run))]
    try:
        value = read(runs[-1].replace("$", " ")) if runs else Value("text")
    except UnreadableError:
        return None
    if value.kind == "relation" and set(value.operators) <= {"="}:
        value = value.items[-1]
    return _quantity(value, None)


def _quantity(value: Value, words: Collection[str] | None) -> Quantity | None:
    if value.node is None or not _is_number(value.node):
        return None
    unit = value.unit
    known = words is None or not unit or canonical(unit) is not None
    if not known and not all(singular(word) in (words or ()) for word in unit.split()):
        return None
    found = rational(value.node)
    return None if found is None else Quantity(found, "%" if canonical(unit) == "%" else unit)


def _is_number(node: ast.expr) -> bool:
    """Whether a formula is the writing of one number."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp():
            return _is_number(node.operand)
        case ast.BinOp(op=ast.Mult(), right=ast.BinOp(op=ast.Pow(), left=ast.Constant(value=10))):
            return _is_number(node.left)
        case ast.BinOp(op=ast.Div() | ast.Pow()):
            return not any(isinstance(each, (ast.BinOp, ast.Call, ast.Name)) for each in
                           (*ast.walk(node.left), *ast.walk(node.right)))  # fmt: skip
    return False
