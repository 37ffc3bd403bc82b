# ruff: noqa: E501 (tables: one case a line)
"""Values as data, and their comparison: exact types, hostile forms, bounded work."""

import itertools
import time
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import RecipeError
from groupwise.sandbox import make_tests
from groupwise.sandbox.comparison import matches, same_output
from groupwise.sandbox.guest.values import (
    MAX_ITERATED,
    Unencodable,
    decode,
    encode,
    encode_given,
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.integers(min_value=1 << 62), st.complex_numbers(allow_nan=False), st.fractions(),
)  # fmt: skip
hashable = st.one_of(scalars, st.tuples(scalars, scalars), st.frozensets(st.integers()))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(hashable, inner),
        st.sets(hashable),
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(values)
def test_there_and_back(value):
    told = encode(value)
    again = decode(told)
    assert again == value
    assert type(again) is type(value)
    assert matches(value, told)


@settings(max_examples=40)
@given(values, values)
def test_only_equal_values_match(one, other):
    if matches(one, encode(other)):
        assert one == other


@pytest.mark.parametrize(
    "value", [deque([1, [2]]), deque([1, 2], 2), {1: 2}.keys(), {1: [2]}.items(), {}.keys()]
)
def test_deques_and_views_there_and_back(value):
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)
    assert getattr(again, "maxlen", None) == getattr(value, "maxlen", None)
    assert matches(value, encode(value))


def test_the_values_of_a_dict_keep_their_order():
    again = decode(encode({1: "b", 2: "a"}.values()))
    assert (type(again), list(again)) == (type({}.values()), ["b", "a"])


def test_an_iterator_is_told_by_its_items_up_to_a_number():
    assert list(decode(encode_given(iter([1, (2,)])))) == [1, (2,)]
    endless = decode(encode_given(itertools.count()))
    assert list(itertools.islice(endless, MAX_ITERATED)) == list(range(MAX_ITERATED))
    with pytest.raises(RuntimeError, match="more than 10000 items"):
        next(endless)
    with pytest.raises(Unencodable, match="generator"):
        encode(n for n in range(3))


@pytest.mark.parametrize(
    "told",
    [
        ["dq", [["l", []]]], ["dq", [["l", []], -1]], ["dq", [5, None]], ["dk", [["l", []]]],
        ["di", [5]], ["di", [["t", [1]]]], ["it", [["l", []]]], ["dv", 5], ["dk", [0] * 20_000],
    ],
)  # fmt: skip
def test_what_is_no_deque_view_or_iterator_is_refused(told):
    with pytest.raises(ValueError, match=r"."):
        decode(told)


Pair = namedtuple("Pair", "x y")


class Liar(list):
    def __iter__(self):
        return iter([1, 2, 3])

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (Pair(1, 2), (1, 2)),
        (Liar([7]), [7]),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        (type("S", (str,), {"__str__": lambda s: "x"})("y"), "y"),
        (type("I", (int,), {"__int__": lambda s: 9})(7), 7),
        (Decimal("1.50"), Decimal("1.50")),
        (range(3), range(3)),
    ],
)
def test_subclasses_are_flattened(value, flat):
    again = decode(encode(value))
    assert again == flat
    assert type(again) is type(flat)


NOT_DATA = {
    "object": object(),
    "function": len,
    "generator": (x for x in ()),
    "class": int,
    "digits": 1 << 200_000,
    "inside": {1: object()},
}


@pytest.mark.parametrize("name", NOT_DATA)
def test_what_cannot_be_told(name):
    with pytest.raises(Unencodable):
        encode(NOT_DATA[name])


def test_cycles_and_depth_are_cut():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(Unencodable, match="deep"):
        encode(cycle)
    with pytest.raises(RecipeError, match=r"tests\[0\]: nested too deep"):
        make_tests([((1,), cycle)], "calls")


@pytest.mark.parametrize(
    "told",
    [
        [], ["l"], ["l", 5], ["x", []], ["l", [], 1], {"l": []}, ["i", "zz"], ["i", 5], ["b", "0"],
        ["c", [1]], ["c", ["a", "b"]], ["r", [1]], ["q", [1, 0]], ["s", [["l", []]]], ["d", [[1]]],
        ["d", [[["l", []], 1]]], ["i", "f" * 20_000], ["n", "abc"], ["r", [1.5, 2, 3]], [[], []],
    ],
)  # fmt: skip
def test_forms_that_are_none(told):
    with pytest.raises(ValueError):
        decode(told)
    for expected in (1, "x", [], (), {}, set(), b"", 1 + 1j, Fraction(1), range(3), None, 1 << 70):
        assert not matches(expected, told)


PAIRS = [
    (2, 2.0, True), (True, 1, False), (1, True, False), ([1], (1,), False), ({1}, frozenset({1}), False),
    ("1", 1, False), (b"a", "a", False), (None, 0, False), (1 << 80, 1 << 80, True), (1 << 80, 1 << 81, False),
    (float("nan"), float("nan"), True), (0.0, -0.0, True), ({1: [2]}, {1: [2]}, True), ({1: 2}, {1: 3}, False),
    ({1: 2}, {1: 2, 3: 4}, False), ({1, 2}, {1, 3}, False), ({(1, 2)}, {(1, 2)}, True), ({True}, {1}, False),
    (Fraction(1, 2), 0.5, False), (range(3), range(3), True), ([], [], True), ("", "", True),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "given_value", "equal"), PAIRS)
def test_matching(expected, given_value, equal):
    assert matches(expected, encode(given_value)) == equal


def test_tolerance_and_json():
    assert matches([0.1, {"a": 1e9}], encode([0.1 + 1e-9, {"a": 1e9 + 1}]), tolerance=1e-6)
    assert not matches(0.0, encode(1e-3), tolerance=1e-6)
    assert not matches(float("inf"), encode(1e308), tolerance=1e-6)
    assert not matches(10**400, encode(1.0), tolerance=1e-6)
    assert matches([[1, 2]], encode([(1, 2)]), alike=True)
    assert not matches([[1, 2]], encode([(1, 2)]))


def test_a_signalling_nan_equals_nothing():
    assert not matches(Decimal(1), ["n", "sNaN"])
    assert not matches({Decimal(1): 2}, ["d", [[["n", "sNaN"], 2]]])


def test_repeated_keys_do_not_count_twice():
    assert not matches({1, 2}, ["s", [1, 1]])
    assert not matches({1: 1, 2: 1}, ["d", [[1, 1], [1, 1]]])


def test_colliding_hashes_cost_the_parent_nothing():
    step = (1 << 61) - 1  # every multiple has the hash 0
    hostile = ["s", [["i", hex(step * n)] for n in range(1, 40_000)]]
    start = time.perf_counter()
    assert not matches({1, 2}, hostile)
    assert not matches({1}, ["s", [["f", hostile[1]]]])
    with pytest.raises(ValueError, match="too many"):
        decode(hostile)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("1\n2\n", "1\n2", True), ("1 \n2", "1\n2\n\n", True), ("1\n2", "1 2", False),
        ("a", "A", False), ("", "", True), ("", "x", False), ("1\r\n2", "1\n2", True),
    ],
)  # fmt: skip
def test_printed_text(expected, printed, equal):
    assert same_output(expected, printed) == equal


def test_printed_numbers_with_a_tolerance():
    assert same_output("0.3333 yes", "0.33334 yes", 1e-3)
    assert not same_output("0.3333 yes", "0.33334 no", 1e-3)
    assert not same_output("1", "1 2", 1e-3)
