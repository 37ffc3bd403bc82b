"""Arithmetic expressions read and valued by a parser of our own: nothing is executed.

The four operations, parentheses and whole numbers without a sign; values are exact fractions. Left
out, on purpose: powers, signs, decimals, juxtaposition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 300
"""Characters in an expression."""
MAX_DEPTH = 40
"""Parentheses inside each other."""
MAX_DIGITS = 9
"""Digits of one number."""

_SIGNS = str.maketrans({"×": "*", "·": "*", "∙": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})
_COMMANDS = ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""))
_LETTER_X = re.compile(r"(?<=[\d)\s])[xX](?=[\d(\s])")
_TOKEN = re.compile(r"\s*(?:([0-9]+)|([-+*/()]))")


@dataclass(frozen=True, slots=True)
class Expression:
    """A value with the numbers and operations it was made from, in order of appearance."""

    value: Fraction
    numbers: tuple[int, ...]
    operations: frozenset[str]


def parse_expression(text: str) -> Expression:
    """The expression that `text` is as a whole.

    `ValueError` says what is wrong with it; `ZeroDivisionError` where it divides by zero.

    >>> parse_expression("(2 + 3) * 4").value, parse_expression("7 ÷ 2").value
    (Fraction(20, 1), Fraction(7, 2))
    >>> parse_expression("9 - 2 - 3").numbers
    (9, 2, 3)
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression of {len(text)} characters")
    reader = _Reader(_tokens(text))
    value = reader.sum(0)
    if reader.position < len(reader.tokens):
        raise ValueError(f"{reader.tokens[reader.position]!r} does not belong there")
    numbers = tuple(int(token) for token in reader.tokens if token.isdigit())
    return Expression(value, numbers, frozenset(reader.tokens) & frozenset("+-*/"))


def _tokens(text: str) -> list[str]:
    text = _LETTER_X.sub("*", text.translate(_SIGNS))
    for command, sign in _COMMANDS:
        text = text.replace(command, sign)
    text = text.strip()
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position : position + 12].strip()!r} cannot be read")
        token = match.group(1) or match.group(2)
        if len(token) > MAX_DIGITS:
            raise ValueError(f"a number of {len(token)} digits")
        tokens.append(token)
        position = match.end()
    return tokens


class _Reader:
    """Recursive descent: a sum of products of atoms."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.position = 0

    def next_is(self, signs: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position] in signs

    def take(self) -> str:
        if self.position == len(self.tokens):
            raise ValueError("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while self.next_is("+-"):
            sign = self.take()
            operand = self.product(depth)
            value = value + operand if sign == "+" else value - operand
        return value

    def product(self, depth: int) -> Fraction:
        value = self.atom(depth)
        while self.next_is("*/"):
            sign = self.take()
            operand = self.atom(depth)
            value = value * operand if sign == "*" else value / operand
        return value

    def atom(self, depth: int) -> Fraction:
        token = self.take()
        if token.isdigit():
            return Fraction(int(token))
        if token != "(" or depth == MAX_DEPTH:
            raise ValueError(f"{token!r} does not belong there")
        value = self.sum(depth + 1)
        if self.take() != ")":
            raise ValueError("a parenthesis is not closed")
        return value
