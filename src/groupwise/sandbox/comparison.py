"""Whether what came back is what was expected. Runs in the parent, and nowhere else.

What came back is encoded data (`guest/values.py`) and compared as such: it is never turned into an
object whose methods or hashes the solution could choose. Types count: a list is not a tuple and
True is not 1, but 2 equals 2.0, and a NaN equals a NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from groupwise.sandbox.guest.values import MAX_DEPTH, decode, encode, plain

ROUNDING = 1e-9
"""With a tolerance, numbers this close are equal whatever their size, or within it if smaller."""

_DIGITS = 1_000_000
_ORDERED, _UNORDERED = {"l", "t", "dv"}, {"s", "f", "dk", "di"}


@dataclass(frozen=True, slots=True)
class Either:
    """An expected value that stands for several: each of `values` is right."""

    values: tuple[Any, ...]


def matches(expected: Any, encoded: Any, *, tolerance: float = 0.0, alike: bool = False) -> bool:
    """Whether the encoded value equals `expected`.

    >>> matches((1, 2.0), ["t", [1, 2]]), matches([1], ["l", [True]]), matches([1], ["t", [1]])
    (True, False, False)
    >>> matches([1], ["t", [1]], alike=True), matches(0.5, 0.500001, tolerance=1e-4)
    (True, True)
    """
    return same_value(plain(expected), encoded, tolerance, alike)


def same_value(expected: Any, encoded: Any, tolerance: float, alike: bool) -> bool:
    """`matches` for an expected value that is in built-in types already."""
    if isinstance(expected, Either):
        return any(same_value(each, encoded, tolerance, alike) for each in expected.values)
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return _same_number(expected, encoded, tolerance)
    if expected is None or isinstance(expected, (bool, str)):
        return type(encoded) is type(expected) and bool(encoded == expected)
    if type(encoded) is not list or len(encoded) != 2:
        return False
    tag, body = encoded
    if isinstance(expected, (list, tuple)):
        wanted = ("l", "t") if alike else ("l" if isinstance(expected, list) else "t",)
        return (
            tag in wanted
            and type(body) is list
            and len(body) == len(expected)
            and all(same_value(one, other, tolerance, alike) for one, other in zip(expected, body))
        )
    if isinstance(expected, dict):
        return bool(tag == "d") and _same_dict(expected, body, tolerance, alike)
    wanted = encode(expected, digits=_DIGITS)
    if isinstance(expected, complex) and tolerance and tag == "c":
        return same_value(wanted[1], ["l", body], tolerance, alike)
    if type(body) is list and type(wanted[1]) is list and len(body) != len(wanted[1]):
        return False
    if alike and tag in ("s", "f") and wanted[0] in ("s", "f"):
        wanted[0] = tag
    try:
        return _key(wanted) == _key(encoded)
    except ValueError:
        return False


def _same_number(expected: int | float, encoded: Any, tolerance: float) -> bool:
    if type(encoded) is list and encoded[:1] == ["i"]:
        try:
            encoded = decode(encoded)
        except ValueError:
            return False
    if type(encoded) not in (int, float):
        return False
    return (
        encoded == expected
        or (encoded != encoded and expected != expected)
        or (tolerance > 0 and _near(expected, encoded, tolerance))
    )


def _near(expected: int | float, given: int | float, tolerance: float) -> bool:
    """Whether they differ by at most `tolerance` times the expected one, or by rounding.

    >>> _near(5, 7.5, 0.5), _near(5, 10, 0.5), _near(0.0, 1e-12, 1e-6), _near(0.0, 1e-7, 1e-6)
    (True, False, True, False)
    """
    try:
        if not (math.isfinite(expected) and math.isfinite(given)):
            return False
        return abs(given - expected) <= max(tolerance * abs(expected), min(tolerance, ROUNDING))
    except OverflowError:  # an integer beyond every float
        return False


def _same_dict(expected: dict[Any, Any], body: Any, tolerance: float, alike: bool) -> bool:
    if type(body) is not list or len(body) != len(expected):
        return False
    left = {_key(encode(each, digits=_DIGITS)): value for each, value in expected.items()}
    for pair in body:
        if type(pair) is not list or len(pair) != 2:
            return False
        try:
            encoded_key = _key(pair[0])
        except ValueError:
            return False
        if encoded_key not in left or not same_value(
            left.pop(encoded_key), pair[1], tolerance, alike
        ):
            return False
    return True


def _key(encoded: Any, depth: int = MAX_DEPTH) -> str:
    """Text that equal encoded values share; `ValueError` for anything else.

    Text, because a value's own hash and comparison can be made to collide.

    >>> _key(["s", [2, 1.0]]) == _key(["s", [1, 2]]), _key(["t", [1]]) == _key(["l", [1]])
    (True, False)
    """
    if encoded is None or type(encoded) in (bool, str):
        return repr(encoded)
    if type(encoded) in (int, float):
        return _number_key(encoded)
    if depth == 0 or type(encoded) is not list or len(encoded) != 2 or type(encoded[0]) is not str:
        raise ValueError("not an encoded value")
    tag, body = encoded
    if tag == "dq":
        if type(body) is not list or len(body) != 2 or type(body[0]) is not list:
            raise ValueError("not an encoded value")
        body = body[0][1] if len(body[0]) == 2 else None
    elif tag not in _ORDERED | _UNORDERED | {"d"}:
        return f"{tag}:{_scalar_key(decode(encoded))}"
    if type(body) is not list:
        raise ValueError("not an encoded value")
    if tag == "d":
        tag, body = "di", [["t", pair] for pair in body]
    parts = [_key(each, depth - 1) for each in body]
    return f"{tag}({','.join(sorted(parts) if tag in _UNORDERED else parts)})"


def _number_key(value: int | float) -> str:
    if isinstance(value, float) and not value.is_integer():
        return repr(value)
    return hex(int(value))


def _scalar_key(value: Any) -> str:
    """Of bytes, a large integer, or a number of another type."""
    if isinstance(value, complex):
        return f"{_number_key(value.real)} {_number_key(value.imag)}"
    if isinstance(value, range):
        return f"{value[0]} {value[-1]} {value.step if value[1:] else 1}" if value else "empty"
    if isinstance(value, Fraction):
        return f"{value.numerator:x}/{value.denominator:x}"
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        kept = "".join(map(str, digits)).rstrip("0")
        places = exponent + len(digits) - len(kept) if isinstance(exponent, int) else exponent
        return f"{sign} {kept} {places}" if kept or not value.is_finite() else "0"
    if not isinstance(value, (int, bytes, bytearray)):  # an iterator: no value to compare
        raise ValueError("not an encoded value")
    return hex(value) if isinstance(value, int) else value.hex()


def same_output(expected: str, printed: str, tolerance: float = 0.0) -> bool:
    """Whether a program printed what it should: line by line, white space at ends aside.

    With a tolerance, words of a line that are numbers on both sides may differ by it.

    >>> same_output("1 2\\n", "1 2"), same_output("1 2", "1  2")
    (True, False)
    >>> same_output("0.5", "0.50001", tolerance=1e-3)
    True
    """
    one, other = _lines(expected), _lines(printed)
    if one == other or tolerance <= 0:
        return one == other
    return len(one) == len(other) and all(
        a == b or _same_words(a.split(), b.split(), tolerance) for a, b in zip(one, other)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_words(expected: list[str], printed: list[str], tolerance: float) -> bool:
    return len(expected) == len(printed) and all(
        a == b or _near(_number(a), _number(b), tolerance) for a, b in zip(expected, printed)
    )


def _number(word: str) -> float:
    """The number that a word is; NaN for any other."""
    try:
        return math.nan if "_" in word else float(word)
    except ValueError:
        return math.nan
