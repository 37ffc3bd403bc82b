"""Values as data: exact built-in types to JSON and back, and nothing that could act.

Scalars stand for themselves; everything else is a pair of the type's tag and its parts (`FORMS`). A
subclass is sent as the type that it derives from; numpy scalars and arrays become numbers and
lists. An unknown type is an error.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple

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


class Unencodable(ValueError):  # noqa: N818 (it names the value, not a failure)
    """The value cannot be sent as data."""


class Form(NamedTuple):
    """How a type is sent: as text, or as parts that are values themselves.

    `parts` takes a value apart, by the type's own methods; `make` puts it together again, from one
    argument a part where the `types` of the parts are fixed. `hashed` parts are elements of a set
    or keys.
    """

    kind: Any
    parts: Callable[[Any], Any]
    make: Callable[..., Any]
    types: tuple[Any, ...] = ()
    hashed: bool = False


TEXT = (str,)


def _integer(text: str) -> int:
    number = int(text, 16)
    if hex(number) != text:
        raise ValueError("malformed integer")
    return number


def _iterated(items: list[Any], cut: bool) -> Iterator[Any]:
    yield from items
    if cut:
        raise RuntimeError(f"an iterator of more than {MAX_ITERATED} items")


FORMS: dict[str, Form] = {
    "l": Form(list, list.__iter__, list),
    "t": Form(tuple, tuple.__iter__, tuple),
    "s": Form(set, set.__iter__, set, hashed=True),
    "f": Form(frozenset, frozenset.__iter__, frozenset, hashed=True),
    "d": Form(dict, dict.items, dict, hashed=True),
    "dk": Form(type({}.keys()), iter, lambda keys: dict.fromkeys(keys).keys(), hashed=True),
    "di": Form(type({}.items()), iter, lambda pairs: dict(pairs).items(), hashed=True),
    "dv": Form(type({}.values()), iter, lambda items: dict(enumerate(items)).values()),
    "dq": Form(deque, lambda d: ([*d], d.maxlen), deque, ((list, int), (list, type(None)))),
    "it": Form(None, iter, _iterated, ((list, bool),)),  # `encode_given` alone makes it
    "c": Form(complex, attrgetter("real", "imag"), complex, ((float, float),)),
    "r": Form(range, attrgetter("start", "stop", "step"), range, ((int, int, int),)),
    "q": Form(Fraction, attrgetter("numerator", "denominator"), Fraction, ((int, int),)),
    "b": Form(bytes, bytes.hex, bytes.fromhex, TEXT),
    "ba": Form(bytearray, bytearray.hex, bytearray.fromhex, TEXT),
    "i": Form(int, hex, _integer, TEXT),
    "n": Form(Decimal, Decimal.__str__, Decimal, TEXT),
}
"""By tag."""

_TAGS = {form.kind: tag for tag, form in FORMS.items()}
_FLAT: dict[Any, Any] = {int: int.__int__, float: float.__float__, str: str.__str__}


def encode(value: Any, depth: int = MAX_DEPTH, digits: int = MAX_DIGITS) -> Any:
    """The value as JSON-able data; `Unencodable` says what was in the way.

    >>> encode((1, [True, None]))
    ['t', [1, ['l', [True, None]]]]
    """
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int and -_SMALL < value < _SMALL:
        return value
    if depth == 0:
        raise Unencodable("nested too deep")
    tag = _TAGS.get(kind)
    if tag is None:
        numpy = sys.modules.get("numpy")
        arrays = {each: each.tolist for each in (numpy.ndarray, numpy.generic)} if numpy else {}
        for base in kind.__mro__:
            if flat := (_FLAT | arrays).get(base):
                return encode(flat(value), depth - 1, digits)
            if tag := _TAGS.get(base):
                break
        else:
            raise Unencodable(f"a value of type {kind.__name__}")
    if tag == "i" and value.bit_length() > digits * _BITS_PER_DIGIT:
        raise Unencodable(f"an integer of more than {digits} digits")
    if tag == "n" and len(value.as_tuple().digits) > digits:
        raise Unencodable(f"a decimal of more than {digits} digits")
    parts = FORMS[tag].parts(value)
    if type(parts) is str:
        return [tag, parts]
    if tag == "d":
        return [tag, [[encode(each, depth - 1, digits) for each in pair] for pair in parts]]
    return [tag, [encode(each, depth - 1, digits) for each in parts]]


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


def decode(data: Any, max_hashed: int = MAX_HASHED) -> Any:
    """The value that `encode` or `encode_given` made data of; `ValueError` for any other data.

    Safe for data that an attacker wrote: every part is checked before a value is built from it, and
    the work is linear in the size of the data, but for the square of `max_hashed`.

    >>> decode(["t", [1, ["l", [True, None]]]])
    (1, [True, None])
    """
    try:
        return _Decoder(max_hashed).value(data, MAX_DEPTH)
    except (TypeError, ArithmeticError) as error:  # an unhashable key, a number that is not one
        raise ValueError(f"malformed value: {error}") from error


class _Decoder:
    def __init__(self, max_hashed: int) -> None:
        self._hashed = max_hashed

    def value(self, data: Any, depth: int) -> Any:
        kind = type(data)
        if data is None or kind is bool or kind is str or kind is float or kind is int:
            return data
        if depth == 0:
            raise ValueError("nested too deep")
        if kind is not list or len(data) != 2 or type(data[0]) is not str:
            raise ValueError("malformed value")
        tag, body = data
        form = FORMS.get(tag)
        if form is None:
            raise ValueError(f"unknown type {tag[:20]!r}")
        if type(body) is not (str if form.types is TEXT else list):
            raise ValueError("malformed value")
        if form.types is TEXT:
            if tag in ("i", "n") and len(body) > MAX_DIGITS + 10:
                raise ValueError(f"a number of more than {MAX_DIGITS} digits")
            return form.make(body)
        if tag == "d":
            pairs: Any = body
            parts = [(self._key(one, depth - 1), self.value(two, depth - 1)) for one, two in pairs]
        else:
            read = self._key if form.hashed else self.value
            parts = [read(each, depth - 1) for each in body]
        if form.types and tuple(map(type, parts)) not in form.types:
            raise ValueError("malformed value")
        made = form.make(*parts) if form.types else form.make(parts)
        if form.hashed and len(made) != len(parts):
            raise ValueError("repeated elements")
        return made

    def _key(self, data: Any, depth: int) -> Any:
        key = self.value(data, depth)
        if not (key is None or type(key) in (str, bytes) or (type(key) is int and -_P < key < _P)):
            self._hashed -= _size(data)
            if self._hashed < 0:
                raise ValueError(
                    "too many elements of sets and dicts that are not text or integers"
                )
        return key


def _size(data: Any) -> int:
    return 1 + sum(map(_size, data)) if type(data) is list else 1
