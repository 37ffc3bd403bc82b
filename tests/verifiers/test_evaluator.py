"""The one evaluator: exact values, and bounds that end at once."""

import time
from fractions import Fraction

import pytest

from groupwise.verifiers.answers.arithmetic import operations_in, parse, value


@pytest.mark.parametrize(
    ("text", "result"),
    [("0.1 + 0.2", Fraction(3, 10)), ("0." + "0" * 30 + "1 * 10", Fraction(1, 10**30)),
     ("-2**2", -4), ("2**-1", Fraction(1, 2)), ("2^10", 1024), ("007 + 1", 8), ("1e3 / 4", 250),
     (r"\frac{24}{2}", 12), ("3 x 4", 12), ("7 ÷ 2", Fraction(7, 2)), ("+".join("1" * 200), 200)],
)  # fmt: skip
def test_values_are_exact(text, result):
    assert value(text) == result


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "x", "1.5.2", "0x7", "1_0", "2j", "1e99999", "9**9**9", "(x+1)**61",
     "f(2)", "1 if 1 else 2", "1 < 2", "a.b", "'a'", "5 // 2", "5 % 2", "(" * 300 + "1" + ")" * 300,
     "-" * 400 + "1", "1" + "+1" * 500, "1" * 3000, "(a+b+c+d+e+f)**60", "2**0.5", "lambda: 1"],
)  # fmt: skip
def test_everything_else_is_a_value_error_at_once(text):
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"\w"):
        value(text)
    assert time.monotonic() - start < 1


def test_a_division_by_zero_is_named():
    with pytest.raises(ZeroDivisionError):
        value("1/(2 - 2)")


def test_operations_are_named():
    assert operations_in(parse("-2 + 3*4**5/6 - 7")) == {"sign", "+", "*", "**", "/", "-"}
