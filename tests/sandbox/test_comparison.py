"""Comparing what came back: tolerance, and values that were made to be expensive."""

import time
from fractions import Fraction

import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import Call, Job
from groupwise.sandbox.comparison import matches, same_output
from groupwise.sandbox.guest.values import encode

WITHIN = [  # expected, given, tolerance, whether they are equal
    (5, 1e300, 0.99, False), (5, 10, 0.5, False), (5, 0, 0.99, False), (5, -5, 0.99, False),
    (5, 7.5, 0.5, True), (5, 2.5, 0.5, True), (5, 7.6, 0.5, False), (5, 2.4, 0.5, False),
    (0, 0.4, 0.5, False), (0.0, 1e-12, 1e-6, True), (0.1, 0.5, 0.5, False), (0.1, 0.15, 0.5, True),
    (1e-3, 2e-3, 0.1, False), (100, 100.9, 0.01, True), (-100, -99.1, 0.01, True),
    (float("inf"), 1e308, 0.9, False), (1.0, float("nan"), 0.9, False),
    (10**400, 10**400 + 1, 0.1, False), (10**400, 10**400, 0.1, True),
    (1.0, True, 0.9, False), (1.0, "1.0", 0.9, False), (1.0, Fraction(1), 0.9, False),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "given_value", "tolerance", "equal"), WITHIN)
def test_a_tolerance_is_symmetric_and_relative_to_the_expected_value(
    expected, given_value, tolerance, equal
):
    assert matches(expected, encode(given_value), tolerance=tolerance) == equal
    assert matches([expected], encode([given_value]), tolerance=tolerance) == equal
    assert matches({1: expected}, encode({1: given_value}), tolerance=tolerance) == equal


@pytest.mark.parametrize("tolerance", [1.0, 1.5, -0.1, float("inf"), float("nan")])
def test_a_tolerance_of_one_or_more_is_refused(tolerance):
    with pytest.raises(RecipeError, match="less than 1"):
        Job("f = abs", [((1,), 1)], entry="f", tolerance=tolerance)


PRINTED = [
    ("5", "1e300", 0.99, False), ("5", "10", 0.5, False), ("1 2\n3", "1 2 3", 0.1, False),
    ("1 2", "1.05 2.1", 0.1, True), ("10", "1_0", 0.1, False), ("nan", "nan", 0.1, True),
    ("5", "nan", 0.9, False), ("5", "inf", 0.9, False), ("x 5", "y 5", 0.1, False),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "printed", "tolerance", "equal"), PRINTED)
def test_printed_numbers_within_a_tolerance(expected, printed, tolerance, equal):
    assert same_output(expected, printed, tolerance) == equal


@pytest.mark.parametrize(("value", "outcome"), [(1, "passed"), ([1], "passed"), ([[1]], "failed")])
def test_one_of_several_values_is_right(tier_b, value, outcome):
    job = Job(f"def f(): return {value}", [Call((), 1, also=([1],))], entry="f")
    assert tier_b.grade(job).outcome == outcome


_STEP = (1 << 61) - 1  # the modulus of Python's hash of numbers
COLLIDING = {
    "fractions": ["q", [["i", hex(_STEP * 2)], 3]],
    "integers": ["i", hex(_STEP)],
    "decimals": ["n", "2305843009213693951"],
    "complex": ["c", [0.0, 0.0]],
    "in tuples": ["t", [["i", hex(_STEP)]]],
    "in frozensets": ["f", [["i", hex(_STEP * n)] for n in range(1, 900)]],
}


@pytest.mark.parametrize("name", COLLIDING)
def test_hashes_that_collide_cost_nothing(name):
    many = [COLLIDING[name]] * (100 if name == "in frozensets" else 5_000)
    if name in ("fractions", "integers"):
        many = [["q", [["i", hex(_STEP * n)], 1]] for n in range(1, 5_000)]
    began = time.process_time()
    for told in (["s", many], ["d", [[each, 1] for each in many]], ["s", [["f", many]]]):
        assert not matches({1, 2}, told)
        assert not matches({1: 1}, told)
        assert not matches({frozenset({1})}, told)
        assert not matches(set(range(len(many))), told)
    assert time.process_time() - began < 2.0


EQUAL = [({1, 2.0}, {1.0, 2}), ({Fraction(1, 2)}, {Fraction(2, 4)}), ({b"a"}, {b"a"}),
         ({(1, (2,))}, {(1, (2,))}), ({None, "a"}, {"a", None}), ({1: {2: {3}}}, {1: {2: {3}}}),
         (range(0, 3, 2), range(0, 4, 2)), (range(0), range(5, 5)),
         ({1 << 90}, {1 << 90})]  # fmt: skip
DIFFERENT = [({1}, {True}), ({1}, {Fraction(1)}), ({b"a"}, {"a"}), ({(1,)}, {frozenset({1})}),
             ({"None"}, {None}), ({1: {2}}, {1: {3}}), (range(3), range(4)),
             (b"a", bytearray(b"a")), ({"a,b"}, {"a", "b"}),
             ({("a", "b")}, {("a,b",)})]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values(one, other):
    assert matches(one, encode(other))
    assert matches(other, encode(one))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_values(one, other):
    assert not matches(one, encode(other))
    assert not matches(other, encode(one))
