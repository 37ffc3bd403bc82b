"""The tool `calculator`: exact arithmetic on an expression, parsed and never run as code.

Numbers, + - * / ** and parentheses. Whole numbers stay whole; others are given with 12 digits. A
comma stands between groups of three digits, as in 1,000, and nowhere else.
"""

from __future__ import annotations

import re
import sys
from decimal import Context, Decimal

from groupwise.environments.tools.tool import ToolError
from groupwise.verifiers.answers.arithmetic import value

LONGEST = 200
"""Characters of an expression."""
_MAX_BITS = 4000
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")


def calculator(expression: str) -> str:
    """Calculates an arithmetic expression.

    Args:
        expression: numbers with +, -, *, /, ** and parentheses, as "(3 + 4) * 12"
    """
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has more than {LONGEST} characters")
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), expression)
    if "," in text:
        raise ToolError(
            "a comma stands between groups of three digits alone, as in 1,000; "
            "write decimals with a point"
        )
    try:
        result = value(text.replace("_", ""))
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error
    except ValueError as error:
        raise ToolError(str(error)) from error
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > _MAX_BITS:
        raise ToolError("the result is too large")
    if result.denominator == 1:
        return str(result.numerator)
    if abs(result) < sys.float_info.min:  # a float would be 0, or have fewer digits
        digits = Context(prec=12)
        tiny = digits.divide(Decimal(result.numerator), Decimal(result.denominator))
        return f"{tiny.normalize(digits):e}"
    try:
        return f"{float(result):.12g}"
    except OverflowError as error:
        raise ToolError("the result is too large") from error
