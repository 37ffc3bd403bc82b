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
MAX_HASHED = 500
"""Parts of keys and set elements whose hashes the sender can choose, in one decoded value: they can
all collide, so that building costs the square of their number."""

ANY_NUMBER = 1 << 40
"""Instead of it where the value is trusted, or where only the child's own time is at stake."""

MAX_ITERATED = 10_000
"""Items of an iterator that are sent; asking for more is an error."""

_SMALL = 1 << 62
_P = sys.hash_info.modulus
_BITS_PER_DIGIT = 3.33
_ITERATED: tuple[tuple[Any, str], ...] = (
    (list, "l"),
    (tuple, "t"),
    (set, "s"),
    (frozenset, "f"),
    (type({}.keys()), "dk"),
    (type({}.values()), "dv"),
    (type({}.items()), "di"),
)
"""Types that are sent by their items, which the type's own method iterates."""


class Unencodable(ValueError):  # noqa: N818 (it names the value, not a failure)
    """The value cannot be sent as data."""


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
    for base, tag in _ITERATED:
        if issubclass(kind, base):
            return [tag, [encode(item, depth - 1, digits) for item in base.__iter__(value)]]
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
    for base in (numpy.ndarray, numpy.generic) if numpy is not None else ():
        if issubclass(kind, base):
            return encode(base.tolist(value), depth - 1, digits)
    raise Unencodable(f"a value of type {kind.__name__}")


def decode(data: Any, max_hashed: int = MAX_HASHED, max_digits: int = MAX_DIGITS) -> Any:
    """The value that `encode` or `encode_given` made data of; `ValueError` for any other data.

    Safe for data that an attacker wrote: every part is checked before a value is built from it, and
    the work is linear in the size of the data, but for the square of `max_hashed`.

    >>> decode(["t", [1, ["l", [True, None]]]])
    (1, [True, None])
    """
    try:
        return _Decoder(max_hashed, max_digits).value(data, MAX_DEPTH)
    except (TypeError, ArithmeticError) as error:  # an unhashable key, a number that is not one
        raise ValueError(f"malformed value: {error}") from error


_MAKERS: dict[str, Any] = {
    "s": set,
    "f": frozenset,
    "d": dict,
    "dk": lambda keys: dict.fromkeys(keys).keys(),
    "di": lambda pairs: dict(pairs).items(),
}


class _Decoder:
    def __init__(self, max_hashed: int, max_digits: int) -> None:
        self._hashed = max_hashed
        self._digits = max_digits

    def value(self, data: Any, depth: int) -> Any:
        kind = type(data)
        if data is None or kind is bool or kind is str or kind is float or kind is int:
            return data
        if depth == 0:
            raise ValueError("nested too deep")
        if kind is not list or len(data) != 2 or type(data[0]) is not str:
            raise ValueError("malformed value")
        tag, body = data
        if tag in ("i", "n", "b", "ba"):
            return self._scalar(tag, body)
        if type(body) is not list:
            raise ValueError("malformed value")
        if tag in ("c", "r", "q", "dq", "it"):
            return self._fixed(tag, body, depth - 1)
        if tag in _MAKERS:
            if tag == "d":
                items = [
                    (self._key(key, depth - 1), self.value(each, depth - 1)) for key, each in body
                ]
            else:
                items = [self._key(each, depth - 1) for each in body]
            made = _MAKERS[tag](items)
            if len(made) != len(items):
                raise ValueError("repeated elements")
            return made
        items = [self.value(each, depth - 1) for each in body]
        if tag == "dv":
            return dict(enumerate(items)).values()
        if tag not in ("l", "t"):
            raise ValueError(f"unknown type {tag[:20]!r}")
        return items if tag == "l" else tuple(items)

    def _key(self, data: Any, depth: int) -> Any:
        key = self.value(data, depth)
        if not (key is None or type(key) in (str, bytes) or (type(key) is int and -_P < key < _P)):
            self._hashed -= _size(data)
            if self._hashed < 0:
                raise ValueError(
                    "too many elements of sets and dicts that are not text or integers"
                )
        return key

    def _scalar(self, tag: str, body: Any) -> Any:
        if type(body) is not str:
            raise ValueError("malformed value")
        if tag == "b":
            return bytes.fromhex(body)
        if tag == "ba":
            return bytearray.fromhex(body)
        if len(body) > self._digits + 10:
            raise ValueError(f"a number of more than {self._digits} digits")
        if tag == "n":
            return Decimal(body)
        number = int(body, 16)
        if hex(number) != body:
            raise ValueError("malformed integer")
        return number

    def _fixed(self, tag: str, body: list[Any], depth: int) -> Any:
        """Values of a fixed number of parts, each part of a known type."""
        parts = [self.value(each, depth) for each in body]
        types = [type(each) for each in parts]
        if tag == "c" and types == [float, float]:
            return complex(*parts)
        if tag == "r" and types == [int, int, int]:
            return range(*parts)
        if tag == "q" and types == [int, int]:
            return Fraction(*parts)
        if tag == "dq" and types in ([list, int], [list, type(None)]):
            return deque(*parts)
        if tag == "it" and types == [list, bool]:
            return _iterated(*parts)
        raise ValueError("malformed value")


def _size(data: Any) -> int:
    return 1 + sum(map(_size, data)) if type(data) is list else 1
