"""Plain arithmetic such as `(3 + 4) * 12`: the formulas of the grammar that are numbers alone.

The puzzles and the calculator tool use it; values are exact (`evaluator.py`).
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from groupwise.verifiers.answers.evaluator import constant, evaluate
from groupwise.verifiers.answers.reading import read

_LETTER_X = re.compile(r"(?<=[\d)\s])(?<!(?<![\d.])0)[xX](?=\s*[\d(])")  # not 0x7
_OPERATIONS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


def parse(text: str) -> ast.expr:
    r"""The tree of a plain expression such as `(3 + 4) * 12`, `2 × x**2` or `\frac{24}{2}`.

    `^` is a power, `x` between numbers a multiplication. `ValueError` if `text` as a whole is not
    an expression of numbers, names, + - * / ** and parentheses.
    """
    found = read(_LETTER_X.sub("*", text))
    node = found.node
    if node is None or found.unit or any(isinstance(each, ast.Call) for each in ast.walk(node)):
        raise ValueError(f"{text[:40]!r} is not arithmetic")
    return node


def value(text: str) -> Fraction:
    """The exact value of a plain expression; errors as `parse` and `evaluate`.

    >>> value("8/(3 - 1)"), value("2^10")
    (Fraction(4, 1), Fraction(1024, 1))
    """
    return evaluate(parse(text))


def numbers_in(node: ast.expr) -> list[Fraction]:
    """The numbers as they are written, in no particular order."""
    return [constant(each) for each in ast.walk(node) if isinstance(each, ast.Constant)]


def operations_in(node: ast.expr) -> set[str]:
    """The operations used: `+ - * / **` and `sign`."""
    found = {"sign" for each in ast.walk(node) if isinstance(each, ast.UnaryOp)}
    operators = [each.op for each in ast.walk(node) if isinstance(each, ast.BinOp)]
    return found | {_OPERATIONS[type(each)] for each in operators}
