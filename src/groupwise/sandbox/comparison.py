"""Whether what came back is what was expected. Runs in the parent, and nowhere else.

The expected value drives: what came back is told data (`guest/values.py`) that is only looked into,
never turned into an object whose methods or hashes the solution could choose. Types count: a list
is no tuple and True is not 1, but 2 equals 2.0. A NaN equals a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from groupwise.sandbox.guest.values import decode, plain

_HASHED_IN_KEYS = 1000


def matches(expected: Any, told: Any, *, tolerance: float = 0.0, alike: bool = False) -> bool:
    """Whether the told value is `expected`.

    >>> matches((1, 2.0), ["t", [1, 2]]), matches([1], ["l", [True]]), matches([1], ["t", [1]])
    (True, False, False)
    >>> matches([1], ["t", [1]], alike=True), matches(0.5, 0.500001, tolerance=1e-4)
    (True, True)
    """
    return same_value(plain(expected), told, tolerance, alike)


def same_value(expected: Any, told: Any, tolerance: float, alike: bool) -> bool:
    """`matches` for an expected value that is in built-in types already."""
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return _same_number(expected, told, tolerance)
    if expected is None or isinstance(expected, (bool, str)):
        return type(told) is type(expected) and bool(told == expected)
    if type(told) is not list or len(told) != 2:
        return False
    tag, body = told
    if isinstance(expected, (list, tuple)):
        wanted = ("l", "t") if alike else ("l" if isinstance(expected, list) else "t",)
        return (
            tag in wanted
            and type(body) is list
            and len(body) == len(expected)
            and all(same_value(one, other, tolerance, alike) for one, other in zip(expected, body))
        )
    if isinstance(expected, (set, frozenset)):
        wanted = ("s", "f") if alike else ("s" if isinstance(expected, set) else "f",)
        return tag in wanted and type(body) is list and _same_keys(expected, body)
    if isinstance(expected, dict):
        return bool(tag == "d") and _same_dict(expected, body, tolerance, alike)
    try:
        found = decode(told, max_hashed=_HASHED_IN_KEYS)
        return type(found) is type(expected) and bool(found == expected)
    except (ValueError, ArithmeticError):  # a signalling NaN cannot be compared
        return False


def _same_number(expected: int | float, told: Any, tolerance: float) -> bool:
    if type(told) is list:
        try:
            told = decode(told)
        except ValueError:
            return False
    if type(told) not in (int, float):
        return False
    if told == expected or (told != told and expected != expected):
        return True
    if tolerance <= 0:
        return False
    try:
        close = math.isclose(told, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond every float
        return False
    return close and math.isfinite(expected)


def _same_keys(expected: Iterable[Any], told: list[Any]) -> bool:
    """Whether the told elements are exactly the expected ones; looks up, never hashes into."""
    left = {each: each for each in expected}
    if len(told) != len(left):
        return False
    for each in told:
        found, key = _find(left, each)
        if not found:
            return False
        del left[key]
    return True


def _find(known: dict[Any, Any], told: Any) -> tuple[bool, Any]:
    try:
        value = decode(told, max_hashed=_HASHED_IN_KEYS)
        key = known[value]
    except (ValueError, TypeError, KeyError):
        return False, None
    return same_value(key, told, 0.0, False), key


def _same_dict(expected: dict[Any, Any], body: Any, tolerance: float, alike: bool) -> bool:
    if type(body) is not list or len(body) != len(expected):
        return False
    left = {key: key for key in expected}
    for pair in body:
        if type(pair) is not list or len(pair) != 2:
            return False
        found, key = _find(left, pair[0])
        if not found or not same_value(expected[key], pair[1], tolerance, alike):
            return False
        del left[key]
    return True


def same_output(expected: str, printed: str, tolerance: float = 0.0) -> bool:
    """Whether a program printed what it should: line by line, white space at ends aside.

    With a tolerance, words that are numbers on both sides may differ by it.

    >>> same_output("1 2\\n", "1 2"), same_output("1 2", "1  2")
    (True, False)
    >>> same_output("0.5", "0.50001", tolerance=1e-3)
    True
    """
    if _lines(expected) == _lines(printed):
        return True
    if tolerance <= 0:
        return False
    one, other = expected.split(), printed.split()
    return len(one) == len(other) and all(
        a == b or _close(a, b, tolerance) for a, b in zip(one, other)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _close(expected: str, printed: str, tolerance: float) -> bool:
    try:
        return math.isclose(float(expected), float(printed), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False
