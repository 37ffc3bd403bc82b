"""Polynomials with exact coefficients, read by a parser of our own: nothing is executed.

Whole numbers, one-letter or named variables, + - * / and ** with whole exponents, parentheses;
division by numbers alone. Left out: everything else that algebra systems read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 2000
"""Characters."""
MAX_DEPTH = 40
"""Parentheses and signs inside each other."""
MAX_DIGITS = 30
"""Digits of one number."""
MAX_TERMS = 400
"""Terms at any moment."""
MAX_DEGREE = 60
"""Exponents; of products too."""

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z]\w*)|(\*\*|[-+*/()^]))")
_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})

Monomial = tuple[tuple[str, int], ...]
Terms = dict[Monomial, Fraction]


@dataclass(frozen=True, slots=True)
class Polynomial:
    """`terms`: coefficient by monomial, zeros left out; `numbers`: as they were written.

    >>> parse_polynomial("2*(x + 1)**2") == parse_polynomial("2*x^2 + 4*x + 2")
    True
    """

    terms: Mapping[Monomial, Fraction]
    numbers: tuple[int, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def constant(self) -> Fraction | None:
        """The value, where no variable is in it."""
        return self.terms.get((), Fraction(0)) if set(self.terms) <= {()} else None

    def without(self, *names: str) -> Polynomial:
        """Without the constant term and the terms that are a multiple of one of `names` alone."""
        dropped = {(), *(((name, 1),) for name in names)}
        return Polynomial({key: value for key, value in self.terms.items() if key not in dropped})


def parse_polynomial(text: str) -> Polynomial:
    """The polynomial that `text` is as a whole.

    `ValueError` says what is wrong with it; `ZeroDivisionError` where it divides by zero.

    >>> parse_polynomial("-x**2/2 + 3").terms[()], parse_polynomial("8/(3 - 1)").constant
    (Fraction(3, 1), Fraction(4, 1))
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression of {len(text)} characters")
    reader = _Reader(_tokens(text))
    terms = reader.sum(0)
    if reader.position < len(reader.tokens):
        raise ValueError(f"{reader.tokens[reader.position]!r} does not belong there")
    numbers = tuple(int(token) for token in reader.tokens if token.isdigit())
    return Polynomial(terms, numbers)


def _tokens(text: str) -> list[str]:
    text = text.translate(_SIGNS).strip()
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position : position + 12].strip()!r} cannot be read")
        token = match.group(1) or match.group(2) or match.group(3)
        if len(token) > MAX_DIGITS:
            raise ValueError(f"{token[:12]!r}... is too long")
        tokens.append("**" if token == "^" else token)
        position = match.end()
    return tokens


class _Reader:
    """Recursive descent: a sum of products of signed powers."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.position = 0

    def next_is(self, *signs: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position] in signs

    def take(self) -> str:
        if self.position == len(self.tokens):
            raise ValueError("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def sum(self, depth: int) -> Terms:
        value = self.product(depth)
        while self.next_is("+", "-"):
            sign = 1 if self.take() == "+" else -1
            value = _added(value, self.product(depth), sign)
        return value

    def product(self, depth: int) -> Terms:
        value = self.signed(depth)
        while self.next_is("*", "/"):
            if self.take() == "*":
                value = _multiplied(value, self.signed(depth))
            else:
                value = _divided(value, self.signed(depth))
        return value

    def signed(self, depth: int) -> Terms:
        """A power with signs before it, which bind weaker than the exponent."""
        if self.next_is("+", "-"):
            _check_depth(depth)
            sign = 1 if self.take() == "+" else -1
            return _added({}, self.signed(depth + 1), sign)
        value = self.atom(depth)
        if self.next_is("**"):
            self.take()
            value = _raised(value, self.signed(depth + 1))
        return value

    def atom(self, depth: int) -> Terms:
        token = self.take()
        if token == "(":
            _check_depth(depth)
            value = self.sum(depth + 1)
            if self.take() != ")":
                raise ValueError("a parenthesis is not closed")
            return value
        if token.isdigit():
            return _cleaned({(): Fraction(int(token))})
        if token[0].isalpha():
            return {((token, 1),): Fraction(1)}
        raise ValueError(f"{token!r} does not belong there")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} parentheses inside each other")


def _cleaned(terms: Terms) -> Terms:
    if len(terms) > MAX_TERMS:
        raise ValueError(f"more than {MAX_TERMS} terms")
    return {key: value for key, value in terms.items() if value}


def _added(one: Terms, other: Terms, sign: int) -> Terms:
    total = dict(one)
    for key, value in other.items():
        total[key] = total.get(key, Fraction(0)) + sign * value
    return _cleaned(total)


def _multiplied(one: Terms, other: Terms) -> Terms:
    if len(one) * len(other) > MAX_TERMS:
        raise ValueError(f"a product of {len(one)} and {len(other)} terms")
    total: Terms = {}
    for first, left in one.items():
        for second, right in other.items():
            powers = dict(first)
            for name, exponent in second:
                powers[name] = powers.get(name, 0) + exponent
            if sum(powers.values()) > MAX_DEGREE:
                raise ValueError(f"a degree above {MAX_DEGREE}")
            key = tuple(sorted(powers.items()))
            total[key] = total.get(key, Fraction(0)) + left * right
    return _cleaned(total)


def _divided(one: Terms, other: Terms) -> Terms:
    if set(other) - {()}:
        raise ValueError("a division by a variable")
    divisor = other.get((), Fraction(0))
    return {key: value / divisor for key, value in one.items()}


def _raised(base: Terms, exponent: Terms) -> Terms:
    power = exponent.get((), Fraction(0))
    if set(exponent) - {()} or power.denominator != 1 or not 0 <= power <= MAX_DEGREE:
        raise ValueError(f"an exponent that is no whole number from 0 to {MAX_DEGREE}")
    value: Terms = {(): Fraction(1)}
    for _ in range(power.numerator):
        value = _multiplied(value, base)
        if any(max(abs(c.numerator), c.denominator).bit_length() > 4000 for c in value.values()):
            raise ValueError("a number of more than a thousand digits")
    return value
