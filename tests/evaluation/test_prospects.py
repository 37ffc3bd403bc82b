"""Whether there is anything to amplify: the estimator, its interval, verdicts and group sizes."""

from __future__ import annotations

import math
import random

import pytest

from groupwise.errors import RecipeError
from groupwise.evaluation import mean_interval, no_signal_share, prospects_of
from groupwise.types import Completion, FinishReason, Group, Outcome, Prompt, Rollout, Score, Turn


def groups(counts: list[int], samples: int = 32, finish: FinishReason = "stop") -> list[Group]:
    """One group a prompt with so many right completions, whose lengths are 1, 2, 3, ..."""
    made = []
    for number, right in enumerate(counts):
        prompt = Prompt(f"p{number}", text="q")
        rollouts = [
            rollout(prompt, place, "correct" if place < right else "incorrect", finish)
            for place in range(samples)
        ]
        made.append(Group(prompt, tuple(rollouts), greedy=rollouts[0]))
    return made


def rollout(prompt: Prompt, place: int, outcome: Outcome, finish: FinishReason = "stop") -> Rollout:
    ids = (5,) * (place + 1)
    value = {"correct": 1.0, "incorrect": 0.0}.get(outcome)
    turn = Turn((1,), Completion(ids, "x", (-1.0,) * len(ids), finish))
    return Rollout(prompt, (turn,), Score(value, outcome, "because"), place, 0, 0)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.42, 1.0])
def test_the_estimate_is_unbiased(rate: float) -> None:
    """Its expectation over the binomial count is p^G + (1 - p)^G, exactly."""
    samples = 9
    for size in range(1, samples + 1):
        expected = math.fsum(
            math.comb(samples, count)
            * rate**count
            * (1 - rate) ** (samples - count)
            * (no_signal_share(num_samples=samples, num_correct=count, size=size) or 0.0)
            for count in range(samples + 1)
        )
        assert expected == pytest.approx(rate**size + (1 - rate) ** size, abs=1e-12)
    assert no_signal_share(num_samples=4, num_correct=2, size=5) is None


def test_known_counts() -> None:
    shares = [no_signal_share(num_samples=4, num_correct=c, size=2) for c in range(5)]
    assert shares == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2, 1])
    for wrong in ({"num_correct": 5}, {"size": 0}):
        with pytest.raises(ValueError, match=r"is not within|give 1 or more"):
            no_signal_share(**{"num_samples": 4, "num_correct": 2, "size": 2, **wrong})


def test_the_interval_agrees_with_a_bootstrap_over_prompts() -> None:
    draw = random.Random(3)
    counts = [sum(draw.random() < rate for _ in range(32)) for rate in [0.05, 0.2, 0.5, 0.8] * 15]
    shares = [no_signal_share(num_samples=32, num_correct=c, size=8) or 0.0 for c in counts]
    means = sorted(math.fsum(draw.choices(shares, k=60)) / 60 for _ in range(2000))
    found = prospects_of(groups(counts)).no_signal[8]
    assert found[0] == pytest.approx(sum(shares) / 60)
    assert found[1] == pytest.approx((means[50], means[1949]), abs=0.02)
    assert found[1] == mean_interval(shares, 60 * 32)


@pytest.mark.parametrize(
    ("counts", "verdict", "sure", "size"),
    [
        ([16] * 40, "amplify", True, 4),
        ([3] * 40, "amplify", True, 16),
        ([1] * 40, "amplify", True, 32),
        ([0] * 40, "too_hard", True, 2),
        ([32] * 40, "too_easy", True, 2),
        ([0, 32] * 20, "split", True, 2),
        ([0, 32, 16, 32] * 10, "amplify", True, 4),  # no size gets below a half
        ([0] * 5, "too_hard", False, 2),
        ([16] + [0] * 8, "amplify", False, 4),
    ],
)
def test_verdict_and_group_size(counts: list[int], verdict: str, sure: bool, size: int) -> None:
    found = prospects_of(groups(counts))
    assert (found.verdict, found.is_sure, found.group_size()) == (verdict, sure, size)


def test_completions_that_were_cut_off_prove_nothing_against_rl() -> None:
    found = prospects_of(groups([0] * 40, finish="length"))
    assert (found.verdict, found.is_sure, found.is_cut) == ("too_hard", False, True)
    assert prospects_of(groups([16] * 40, finish="length")).is_sure


def test_figures() -> None:
    found = prospects_of(groups([0, 16, 32])).figures
    assert found["prompts"] == 3
    assert found["accuracy"] == pytest.approx(0.5)
    assert found["no_signal@2"] == pytest.approx((1 + 1 + 240 / 496) / 3)
    assert found["pass@32"] == pytest.approx(2 / 3)
    assert (found["never_solved"], found["always_solved"]) == (1, 1)
    assert (found["tokens_mean"], found["tokens_q50"], found["tokens_q100"]) == (16.5, 17, 32)
    assert "no_signal@32" not in prospects_of(groups([4], samples=16)).figures


def test_what_has_no_verdict_is_refused() -> None:
    with pytest.raises(RecipeError, match="samples = 4; give 8 or more"):
        prospects_of(groups([1], samples=4))
    prompt = Prompt("p", text="q")
    unscored = [rollout(prompt, place, "not_applicable") for place in range(8)]
    with pytest.raises(RecipeError, match=r"none of 8 completions could be scored.*because"):
        prospects_of([Group(prompt, tuple(unscored))])
