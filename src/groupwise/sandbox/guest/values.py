"""Values as data: exact built-in types to JSON and back, and nothing that could act.

Scalars stand for themselves; everything else is a list whose first item names the type. A subclass
is flattened to the built-in type it derives from, through that type's own methods; numpy scalars
and arrays become numbers and lists. An unknown type is an error.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 64
MAX_DIGITS = 10_000
MAX_HASHED = 10_000
"""Elements of a set or dict that `decode` builds: colliding hashes stay cheap."""

ANY_NUMBER = 1 << 40
"""In place of it where the value is trusted, or only the child's own time is at stake."""

MAX_ITERATED = 10_000
"""Items of an iterator that are told; asking for more is an error."""

_SMALL = 1 << 62
_BITS_PER_DIGIT = 3.33
_SEQUENCES: tuple[tuple[type, str], ...] = (
    (list, "l"),
    (tuple, "t"),
    (set, "s"),
    (frozenset, "f"),
)


_LENGTHS = {"c": 2, "r": 3, "q": 2, "it": 2, "dq": 2}
_VIEWS: tuple[tuple[type, str], ...] = (
    (type({}.keys()), "dk"),
    (type({}.values()), "dv"),
    (type({}.items()), "di"),
)


class Unencodable(ValueError):  # noqa: N818 (it names the value, not a failure of ours)
    """The value cannot be told as data."""


def encode(value: Any, depth: int = MAX_DEPTH, digits: int = MAX_DIGITS) -> Any:
    """The value as JSON-able data; `Unencodable` says what was in the way.

    >>> encode((1, [True, None]))
    ['t', [1, ['l', [True, None]]]]
    """
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return _encode_int(value, digits)
    if depth == 0:
        raise Unencodable("nested too deep")
    for base, tag in _SEQUENCES:
        if issubclass(kind, base):
            return [tag, [encode(item, depth - 1, digits) for item in _iterate(base, value)]]
    if issubclass(kind, dict):
        pairs = [
            [encode(key, depth - 1, digits), encode(item, depth - 1, digits)]
            for key, item in dict.items(value)
        ]
        return ["d", pairs]
    return _encode_rare(value, kind, depth, digits)


def encode_given(value: Any) -> Any:
    """`encode`, and an iterator by its items: for what goes between a test and the solution.

    >>> list(decode(encode_given(n * n for n in range(3))))
    [0, 1, 4]
    """
    if not isinstance(value, Iterator):
        return encode(value)
    items: list[Any] = []
    for item in value:
        if len(items) == MAX_ITERATED:
            return ["it", [["l", items], True]]
        items.append(encode(item, MAX_DEPTH - 1))
    return ["it", [["l", items], False]]


def _iterated(items: list[Any], cut: bool) -> Iterator[Any]:
    yield from items
    if cut:
        raise RuntimeError(f"an iterator of more than {MAX_ITERATED} items")


def plain(value: Any) -> Any:
    """The value in built-in types: numpy arrays, named tuples and the like flattened."""
    return decode(encode(value, digits=1_000_000), max_hashed=ANY_NUMBER, max_digits=1_000_000)


def _iterate(base: Any, value: Any) -> Any:
    """The items, by the built-in type's own method."""
    return base.__iter__(value)


def _encode_int(value: int, digits: int) -> Any:
    if -_SMALL < value < _SMALL:
        return value
    if value.bit_length() > digits * _BITS_PER_DIGIT:
        raise Unencodable(f"an integer of more than {digits} digits")
    return ["i", hex(value)]


def _encode_rare(value: Any, kind: type, depth: int, digits: int) -> Any:
    if issubclass(kind, bytes):
        return ["b", bytes.hex(value)]
    if issubclass(kind, bytearray):
        return ["ba", bytearray.hex(value)]
    if issubclass(kind, int):
        return _encode_int(int.__int__(value), digits)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if kind is deque:
        items = [encode(item, depth - 1, digits) for item in value]
        return ["dq", [["l", items], value.maxlen]]
    for view, tag in _VIEWS:
        if kind is view:
            return [tag, [encode(item, depth - 1, digits) for item in value]]
    if kind is complex:
        return ["c", [value.real, value.imag]]
    if kind is range:
        return ["r", [_encode_int(each, digits) for each in (value.start, value.stop, value.step)]]
    if kind is Fraction:
        return ["q", [_encode_int(value.numerator, digits), _encode_int(value.denominator, digits)]]
    if kind is Decimal:
        if len(value.as_tuple().digits) > digits:
            raise Unencodable(f"a decimal of more than {digits} digits")
        return ["n", str(value)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.ndarray):
            return encode(numpy.ndarray.tolist(value), depth - 1, digits)
        if issubclass(kind, numpy.generic):
            return encode(numpy.generic.item(value), depth - 1, digits)
    raise Unencodable(f"a value of type {kind.__name__}")


def decode(
    data: Any,
    depth: int = MAX_DEPTH,
    max_hashed: int = MAX_HASHED,
    max_digits: int = MAX_DIGITS,
) -> Any:
    """The value that `encode` told; `ValueError` for anything that `encode` does not make.

    >>> decode(["t", [1, ["l", [True, None]]]])
    (1, [True, None])
    """
    kind = type(data)
    if data is None or kind is bool or kind is str or kind is float or kind is int:
        return data
    if depth == 0:
        raise ValueError("nested too deep")
    if kind is not list or len(data) != 2 or type(data[0]) is not str:
        raise ValueError("not a told value")
    tag, body = data
    try:
        return _decode_tagged(tag, body, depth - 1, max_hashed, max_digits)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"not a told value: {error}") from error


def _decode_tagged(tag: str, body: Any, *rest: int) -> Any:
    _, max_hashed, max_digits = rest
    if tag in ("i", "b", "ba", "n"):
        if type(body) is not str:
            raise ValueError("not a told value")
        if tag in ("i", "n") and len(body) > max_digits + 10:
            raise ValueError(f"a number of more than {max_digits} digits")
        if tag == "i":
            return int(body, 16)
        if tag == "n":
            return Decimal(body)
        raw = bytes.fromhex(body)
        return raw if tag == "b" else bytearray(raw)
    if type(body) is not list:
        raise ValueError("not a told value")
    if tag in ("s", "f", "d", "dk", "di") and len(body) > max_hashed:
        raise ValueError(f"a set or dict of more than {max_hashed} elements")
    if tag == "d":
        return {decode(key, *rest): decode(value, *rest) for key, value in body}
    items = [decode(each, *rest) for each in body]
    if len(items) != _LENGTHS.get(tag, len(items)):
        raise ValueError("not a told value")
    makers: dict[str, Any] = {
        "l": list,
        "t": tuple,
        "s": set,
        "f": frozenset,
        "c": lambda pair: complex(*pair),
        "r": lambda ends: range(*ends),
        "q": lambda pair: Fraction(*pair),
        "dq": lambda pair: deque(*pair),
        "dk": lambda keys: dict.fromkeys(keys).keys(),
        "dv": lambda values: dict(enumerate(values)).values(),
        "di": lambda pairs: dict(pairs).items(),
        "it": lambda pair: _iterated(*pair),
    }
    if tag not in makers:
        raise ValueError(f"no such type: {tag[:20]!r}")
    return makers[tag](items)
