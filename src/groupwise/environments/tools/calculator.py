"""The tool `calculator`: exact arithmetic on an expression, parsed here and never run as code.

Numbers, + - * / ** and parentheses. Whole numbers stay whole; others are given with 12 digits. A
comma stands between groups of three digits, as in 1,000, and nowhere else.
"""

from __future__ import annotations

import re
import sys
from decimal import Context, Decimal
from fractions import Fraction

from groupwise.environments.tools.tool import ToolError

LONGEST = 200
DEEPEST = 40
_LARGEST_EXPONENT = 1000
_LARGEST_DIGITS = 1000
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+)|(\*\*|[-+*/()^]))")
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "_": ""})
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")


def calculator(expression: str) -> str:
    """Calculates an arithmetic expression.

    Args:
        expression: numbers with +, -, *, /, ** and parentheses, as "(3 + 4) * 12"
    """
    value = _Parser(expression).value()
    if value.denominator == 1:
        return str(value.numerator)
    if abs(value) < sys.float_info.min:  # a float would be 0, or have fewer digits
        digits = Context(prec=12)
        tiny = digits.divide(Decimal(value.numerator), Decimal(value.denominator))
        return f"{tiny.normalize(digits):e}"
    try:
        return f"{float(value):.12g}"
    except OverflowError as error:
        raise ToolError("the result is too large") from error


class _Parser:
    """Recursive descent: sum, product, sign, power, atom; `DEEPEST` bounds it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ToolError(f"the expression has more than {LONGEST} characters")
        text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
        if "," in text:
            raise ToolError(
                "a comma stands between groups of three digits alone, as in 1,000; "
                "write decimals with a point"
            )
        text = text.translate(_SIGNS).strip()
        self.tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ToolError(f"{text[at:].strip()[:20]!r} is no number and no operator")
            self.tokens.append(found[1] or found[2])
            at = found.end()
        self.at = 0
        self.depth = 0

    def value(self) -> Fraction:
        if not self.tokens:
            raise ToolError("the expression is empty")
        value = self._sum()
        if self.at < len(self.tokens):
            raise ToolError(f"{self.tokens[self.at]!r} is not expected there")
        return value

    def _take(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = _bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while sign := self._take("*", "/"):
            other = self._signed()
            if sign == "/" and other == 0:
                raise ToolError("division by zero")
            value = _bounded(value * other if sign == "*" else value / other)
        return value

    def _signed(self) -> Fraction:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ToolError(f"more than {DEEPEST} signs or parentheses within each other")
        sign = self._take("+", "-")
        value = self._signed() if sign else self._power()
        self.depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Fraction:
        base = self._atom()
        if not self._take("**", "^"):
            return base
        exponent = self._signed()
        if exponent.denominator != 1 or abs(exponent) > _LARGEST_EXPONENT:
            raise ToolError(f"an exponent must be whole and at most {_LARGEST_EXPONENT}")
        if base == 0 and exponent < 0:
            raise ToolError("division by zero")
        digits = len(str(abs(base.numerator))) + len(str(base.denominator))
        if digits * abs(exponent) > 4 * _LARGEST_DIGITS:
            raise ToolError("the result is too large")
        return _bounded(base ** int(exponent))

    def _atom(self) -> Fraction:
        if self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise ToolError("a parenthesis is not closed")
            return value
        if self.at >= len(self.tokens):
            raise ToolError("the expression ends too early")
        token = self.tokens[self.at]
        if not (token[0].isdigit() or token[0] == "."):
            raise ToolError(f"{token!r} is not expected there")
        self.at += 1
        return Fraction(token)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 4 * _LARGEST_DIGITS:
        raise ToolError("the result is too large")
    return value
