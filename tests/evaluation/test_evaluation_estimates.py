"""pass@k, maj@k and intervals against enumeration, published values and simulated coverage."""

from __future__ import annotations

import doctest
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import groupwise.evaluation.estimates as estimates
from groupwise.evaluation import maj_at_k, mean_interval, pass_at_k, wilson_interval


def test_examples():
    assert doctest.testmod(estimates).failed == 0


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n: int):
    for c in range(n + 1):
        right = [i < c for i in range(n)]
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(right, k))
            expected = sum(any(s) for s in subsets) / len(subsets)
            found = pass_at_k(num_samples=n, num_correct=c, k=k)
            assert found == pytest.approx(expected, abs=1e-15)


def test_pass_at_k_edges():
    assert pass_at_k(num_samples=4, num_correct=2, k=5) is None
    assert pass_at_k(num_samples=5, num_correct=0, k=5) == 0.0
    assert pass_at_k(num_samples=5, num_correct=1, k=5) == 1.0
    assert pass_at_k(num_samples=0, num_correct=0, k=1) is None
    assert pass_at_k(num_samples=200, num_correct=1, k=100) == 0.5
    for wrong in ({"num_correct": 6}, {"num_correct": -1}, {"k": 0}):
        with pytest.raises(ValueError):
            pass_at_k(**{"num_samples": 5, "num_correct": 1, "k": 1, **wrong})


def brute_majority(votes, correct, k):
    """Every subset; ties by the correct share of the tied answers."""
    total, count = 0.0, 0
    for chosen in itertools.combinations(range(len(votes)), k):
        tally: dict[tuple[str, bool], int] = {}
        for i in chosen:
            if votes[i] is not None:
                key = (votes[i], correct[i])
                tally[key] = tally.get(key, 0) + 1
        if tally:
            top = max(tally.values())
            tied = [right for (_, right), number in tally.items() if number == top]
            total += sum(tied) / len(tied)
        count += 1
    return total / count


@settings(max_examples=150)
@given(
    votes=st.lists(st.sampled_from(["7", "8", "9", "ten", None]), min_size=1, max_size=7),
    k=st.integers(1, 7),
)
def test_maj_at_k_is_exact(votes, k):
    correct = [vote == "7" or vote == "ten" for vote in votes]
    found = maj_at_k(votes, correct, k=k)
    if k > len(votes):
        assert found is None
    else:
        assert found == pytest.approx(brute_majority(votes, correct, k), abs=1e-12)


def test_maj_at_k_by_hand():
    assert maj_at_k(["7", "7", "8", "9"], [True, True, False, False]) == 1.0
    assert maj_at_k(["7", "8", "8"], [True, False, False]) == 0.0
    assert maj_at_k(["7", "8", None], [True, False, False]) == 0.5
    assert maj_at_k([None, None], [False, False]) == 0.0
    assert maj_at_k(["7", "8"], [True, False], k=1) == 0.5
    with pytest.raises(ValueError, match="give one verdict per vote"):
        maj_at_k(["7"], [])
    with pytest.raises(ValueError, match="k = 0"):
        maj_at_k([], [])


def test_maj_at_k_of_many_samples_is_quick():
    votes = [str(i % 7) for i in range(64)]
    found = maj_at_k(votes, [v == "0" for v in votes], k=32)
    assert found is not None
    assert 0.1 < found < 0.6


def test_wilson_published_values():
    """Newcombe 1998, table I, method 3 (score, no continuity correction)."""
    for right, trials, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = wilson_interval(right / trials, trials)
        assert found == pytest.approx((low, high), abs=5e-5)


def test_wilson_edges():
    assert wilson_interval(1.0, 11)[1] == 1.0
    assert wilson_interval(1.0, 11)[0] == pytest.approx(0.7412, abs=1e-4)
    with pytest.raises(ValueError):
        wilson_interval(0.5, 0)
    with pytest.raises(ValueError):
        wilson_interval(1.5, 10)


def test_one_completion_a_prompt_is_wilson_itself():
    values = [1.0, 0.0, 0.0, 1.0, 1.0]
    assert mean_interval(values, 5) == wilson_interval(0.6, 5)
    assert mean_interval([0.75], 4) == wilson_interval(0.75, 1)


def test_intervals_are_never_empty_and_shrink_with_prompts():
    for values in ([1.0] * 11, [0.0] * 11, [0.5] * 11, [0.25, 0.75] * 5):
        low, high = mean_interval(values, 4 * len(values))
        assert 0 <= low < high <= 1
        assert low <= sum(values) / len(values) <= high
        wider = mean_interval(values[:4], 16)
        assert wider[1] - wider[0] > high - low
    with pytest.raises(ValueError):
        mean_interval([], 0)


def test_more_samples_of_the_same_prompts_do_not_help_without_end():
    """Prompts that are all right or all wrong: the interval is that of the prompts."""
    values = [1.0, 0.0] * 10
    low, high = mean_interval(values, 20 * 1000)
    reference = wilson_interval(0.5, 20)
    assert high - low >= reference[1] - reference[0] - 0.01


@pytest.mark.parametrize(
    ("prompts", "samples", "a", "b"),
    [(11, 4, 5, 5), (11, 16, 1, 9), (55, 4, 0.5, 0.5), (55, 16, 1, 9), (200, 4, 0.2, 3)],
)
def test_coverage_is_near_95_percent(prompts: int, samples: int, a: float, b: float):
    rng = np.random.default_rng(0)
    truth = a / (a + b)
    covered = 0
    for _ in range(600):
        rates = rng.beta(a, b, prompts)
        values = rng.binomial(samples, rates) / samples
        low, high = mean_interval(values.tolist(), prompts * samples)
        covered += low <= truth <= high
    assert 0.92 <= covered / 600 <= 0.995


def test_student_quantiles():
    """Published two-sided 95 % quantiles."""
    for degrees, value in ((1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281)):
        assert estimates._student_t(degrees) == pytest.approx(value, rel=2e-3)
    assert estimates._student_t(10**6) == pytest.approx(estimates.Z, abs=1e-5)
    assert math.isclose(estimates.Z, 1.959964, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 10.0, "num_correct": 3, "k": 5}, "num_samples = 10.0; give a count"),
        ({"num_samples": 10, "num_correct": 3.0, "k": 5}, "num_correct = 3.0; give a count"),
        ({"num_samples": 10, "num_correct": 3, "k": None}, "k = None; give a count"),
    ],
)
def test_pass_at_k_takes_counts(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pass_at_k(**arguments)
