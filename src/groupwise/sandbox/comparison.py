"""Whether what came back is what was expected. Runs in the parent, and nowhere else.

Both sides are compared as encoded data (`guest/values.py`): what came back is never turned into an
object whose methods or hashes the solution could choose. Types count: a list is not a tuple and
True is not 1, but 2 equals 2.0, and a NaN equals a NaN.
"""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import MAX_EMAX, MIN_EMIN, Context
from typing import Any

from groupwise.sandbox.guest.values import FORMS, MAX_DEPTH, MAX_DIGITS, decode, encode

ROUNDING = 1e-9
"""With a tolerance, numbers this close are equal whatever their size, or within it if smaller."""

_EXACT = Context(prec=2 * MAX_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_ALIKE = {"t": "l", "f": "s"}
_ORDERED, _UNORDERED = ("l", "t", "dv", "dq", "c"), ("s", "f", "d", "dk", "di")


def matches(expected: Any, encoded: Any, *, tolerance: float = 0.0, alike: bool = False) -> bool:
    """Whether the encoded value equals `expected`.

    >>> matches((1, 2.0), ["t", [1, 2]]), matches([1], ["l", [True]]), matches([1], ["t", [1]])
    (True, False, False)
    >>> matches([1], ["t", [1]], alike=True), matches(0.5, 0.500001, tolerance=1e-4)
    (True, True)
    """
    return same_data(encode(expected), encoded, tolerance, alike)


def same_data(expected: Any, given: Any, tolerance: float, alike: bool) -> bool:
    """Whether encoded data is what `encode` made of the expected value."""
    number = _number(expected)
    if number is not None:
        return _same_number(number, _number(given), tolerance)
    if not _is_pair(expected):
        return type(given) is type(expected) and bool(given == expected)
    if not _is_pair(given):
        return False
    (wanted, parts), (tag, body) = expected, given
    if alike:
        wanted, tag = _ALIKE.get(wanted, wanted), _ALIKE.get(tag, tag)
    if wanted != tag or type(body) is not type(parts):
        return False
    if len(body) != len(parts) and tag != "n":
        return False
    if tag in _ORDERED:
        return all(same_data(one, other, tolerance, alike) for one, other in zip(parts, body))
    try:
        if tag == "d":
            return _same_dict(parts, body, tolerance, alike)
        return _key([tag, parts]) == _key([tag, body])
    except ValueError:
        return False


def _is_pair(data: Any) -> bool:
    return type(data) is list and len(data) == 2 and type(data[0]) is str


def _number(data: Any) -> int | float | None:
    """The number that encoded data is; None for anything else."""
    if type(data) in (int, float):
        return data  # type: ignore[no-any-return]
    if _is_pair(data) and data[0] == "i":
        with suppress(ValueError):
            return decode(data)  # type: ignore[no-any-return]
    return None


def _same_number(expected: int | float, given: int | float | None, tolerance: float) -> bool:
    return given is not None and (
        given == expected
        or (given != given and expected != expected)
        or (tolerance > 0 and _near(expected, given, tolerance))
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


def _same_dict(expected: list[Any], body: list[Any], tolerance: float, alike: bool) -> bool:
    """`ValueError` for a key that is not an encoded value."""
    left = {_key(key): value for key, value in expected}
    return all(
        type(pair) is list
        and len(pair) == 2
        and (key := _key(pair[0])) in left
        and same_data(left.pop(key), pair[1], tolerance, alike)
        for pair in body
    )


def _key(encoded: Any, depth: int = MAX_DEPTH) -> str:
    """Text that equal encoded values share; `ValueError` for anything else.

    Text, because a value's own hash and comparison can be made to collide.

    >>> _key(["s", [2, 1.0]]) == _key(["s", [1, 2]]), _key(["t", [1]]) == _key(["l", [1]])
    (True, False)
    """
    if encoded is None or type(encoded) in (bool, str):
        return repr(encoded)
    if type(encoded) in (int, float):
        return repr(encoded) if encoded % 1 else hex(int(encoded))
    if depth == 0 or not _is_pair(encoded) or encoded[0] not in FORMS:
        raise ValueError("not an encoded value")
    tag, body = encoded
    if tag == "n":
        return f"n:{_EXACT.normalize(decode(encoded)) or 0}"
    if type(body) is str:
        return f"{tag}:{body!r}"
    if type(body) is not list:
        raise ValueError("not an encoded value")
    if tag == "r":  # equal ranges have the same items, not the same ends
        items = decode(encoded)
        body = [items[0], items[-1], items.step if items[1:] else 1] if items else []
    if tag == "d":
        body = [["t", pair] for pair in body]
    parts = [_key(each, depth - 1) for each in body]
    return f"{tag}({','.join(sorted(parts) if tag in _UNORDERED else parts)})"


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
        a == b or _near(_float(a), _float(b), tolerance) for a, b in zip(expected, printed)
    )


def _float(word: str) -> float:
    """The number that a word is; NaN for any other."""
    try:
        return math.nan if "_" in word else float(word)
    except ValueError:
        return math.nan
