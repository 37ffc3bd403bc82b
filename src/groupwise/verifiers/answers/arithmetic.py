"""Plain arithmetic such as `(3 + 4) * 12`, read by Python's parser and never executed.

The puzzles, the step verifier and the calculator tool use it; values are exact (`evaluator.py`).
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from groupwise.verifiers.answers.evaluator import TooLargeError, constant, evaluate

MAX_LENGTH = 2000
"""Characters of an expression."""
MAX_DEPTH = 250
"""Operations inside each other."""

_SIGNS = str.maketrans({"×": "*", "·": "*", "∙": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})
_COMMANDS = ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""))
_LETTER_X = re.compile(r"(?<=[\d)\s])(?<!(?<![\d.])0)[xX](?=\s*[\d(])")  # not 0x7
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*([\d.]+)\s*\}\s*\{\s*([\d.]+)\s*\}")
_ALLOWED = re.compile(r"[A-Za-z\d+\-*/().\s]*")
_NUMBER = re.compile(r"(?<![\w.])0+(?=\d)|\d(?:[_A-Za-df-zDF-Z]|[eE](?![+-]?\d{1,4}(?!\d)))")
_OPERATIONS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


def plain_signs(text: str) -> str:
    r"""The text with + - * / in place of `×`, `÷`, `\times`, `\frac{1}{2}` and their like.

    >>> plain_signs(r"3 x 4 ÷ \frac{1}{2}")
    '3 * 4 / (1/2)'
    """
    text = text.translate(_SIGNS)
    for command, sign in _COMMANDS:
        text = text.replace(command, sign)
    return _LETTER_X.sub("*", _FRACTION.sub(r"(\1/\2)", text))


def parse(text: str) -> ast.expr:
    r"""The tree of a plain expression such as `(3 + 4) * 12`, `2 × x**2` or `\frac{24}{2}`.

    `^` is a power, `x` between numbers a multiplication. `ValueError` if `text` as a whole is not
    an expression of numbers, names, + - * / ** and parentheses.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
    text = text.translate(_SIGNS)
    for command, sign in _COMMANDS:
        text = text.replace(command, sign)
    text = _LETTER_X.sub("*", _FRACTION.sub(r"(\1/\2)", text).replace("^", "**"))
    text = " ".join(_NUMBER.sub(lambda m: "" if m.group().strip("0") == "" else "@", text).split())
    if not text:
        raise ValueError("the expression is empty")
    if not _ALLOWED.fullmatch(text) or "//" in text:
        raise ValueError(f"{text[:40]!r} is not arithmetic")
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:40]!r} cannot be read: {getattr(error, 'msg', error)}") from error
    check_depth(node)
    for each in ast.walk(node):
        if isinstance(each, ast.Constant):  # as it is written: a float would lose digits
            each.value = Fraction(text[each.col_offset : each.end_col_offset])  # type: ignore[assignment]
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
    return found | {_OPERATIONS.get(type(each), "?") for each in operators}


def check_depth(node: ast.AST) -> None:
    """Raises TooLargeError for a tree that is too deep to be walked recursively."""
    level: list[ast.AST] = [node]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in ast.iter_child_nodes(each)
                 if isinstance(child, ast.expr)]  # fmt: skip
        if not level:
            return
    raise TooLargeError(f"more than {MAX_DEPTH} operations inside each other")
