"""Faults that trainers of this kind have shipped, as small inputs with the right value."""

from __future__ import annotations

import math

import pytest
import torch

from algorithms.fixture import f64, run_loss
from groupwise.algorithms import MetricSums, preset
from groupwise.algorithms.groups import make_groups, uniform_rows
from groupwise.algorithms.parts import PARTS
from groupwise.errors import RecipeError


def ones(rows: int, columns: int) -> torch.Tensor:
    return torch.ones(rows, columns, dtype=torch.bool)


@pytest.mark.parametrize("parts", [[[0, 1]], [[0], [1]], [[1], [0]]])
@pytest.mark.parametrize(("weight", "right"), [("per_token", 1.5), ("per_sequence", 2.0)])
def test_fault_01_token_mean_over_micro_batches(
    parts: list[list[int]], weight: str, right: float
) -> None:
    """A: 2 tokens with c = 3, B: 6 tokens with c = 1; the gradient of c w is 12/8 every time."""
    w = f64(1.0).requires_grad_(True)
    mask = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])
    c = f64([3.0, 1.0])
    algorithm = preset("reinforce", weight=weight)
    plan = algorithm.plan_update(mask)
    for rows in parts:
        terms = algorithm.loss_terms(
            w.expand(2, 6)[rows], plan=plan.rows(rows), mask=mask[rows], advantages=-c[rows]
        )
        terms.loss.backward()
    assert w.grad is not None
    assert w.grad.item() == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_fault_06_group_size_one_is_refused(name: str) -> None:
    algorithm = preset(name)
    with pytest.raises(RecipeError, match=r"group_size = 1.*2 or more"):
        algorithm.check(group_size=1)
    with pytest.raises(RecipeError, match="group_size >= 2"):
        preset(name, kl_coef=0).advantages([[1.0], [0.0]])


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_fault_06_identical_rewards(name: str) -> None:
    algorithm = preset(name, kl_coef=0)
    advantages = algorithm.advantages(f64([[1.0, 1.0, 1.0, 1.0]]))
    assert torch.equal(advantages, torch.zeros(1, 4, dtype=torch.float64))
    out, gradient = run_loss(
        algorithm,
        logprobs=f64([[-1.0]] * 4),
        mask=ones(4, 1),
        advantages=advantages[0],
        max_tokens=1,
    )
    assert out.loss.item() == 0.0
    assert not gradient.any()
    one_group = make_groups(torch.zeros(4, dtype=torch.long))
    assert uniform_rows(f64([1.0, 1.0, 1.0, 1.0]), one_group).all()
    assert uniform_rows(f64([0.1 + 0.2, 0.3, 0.3, 0.3]), one_group).all()


def test_fault_07_a_loss_of_zero_is_not_a_gradient_of_zero() -> None:
    equal = preset("dapo")
    advantages = equal.advantages(f64([[1.0, 0.0]]))[0]
    out, gradient = run_loss(
        equal, logprobs=f64([[-1.0, -0.5], [-0.7, -0.2]]), mask=ones(2, 2), advantages=advantages
    )
    assert out.loss.item() == pytest.approx(0.0, abs=1e-15)
    assert gradient.norm().item() == pytest.approx(0.5, abs=1e-12)
    mask = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])
    for scale, right in (({}, 0.5), ({"ddof": 1}, 0.353553)):
        algorithm = preset("dapo", scale=scale)
        advantages = algorithm.advantages(f64([[1.0, 0.0]]))[0]
        out, _ = run_loss(
            algorithm,
            logprobs=torch.full((2, 6), -0.5, dtype=torch.float64),
            mask=mask,
            advantages=advantages,
        )
        assert out.loss.item() == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("ids", [[0, 0, 1, 1], [0, 1, 0, 1], [9, -4, 9, -4]])
def test_fault_08_statistics_per_group_in_any_order(ids: list[int]) -> None:
    first = [i for i, g in enumerate(ids) if g == ids[0]]
    rewards = f64([0.0, 0.0, 0.0, 0.0])
    rewards[first] = f64([10.0, 12.0])
    rewards[[i for i in range(4) if i not in first]] = f64([0.0, 2.0])
    for scale, right in (({"ddof": 1}, 0.7071067811865476), ({}, 1.0)):
        out = preset("grpo", scale=scale).advantages(rewards, ids)
        low = rewards.eq(10) | rewards.eq(0)
        want = torch.where(low, f64(-right), f64(right))
        torch.testing.assert_close(out, want, atol=1e-12, rtol=0)


def test_fault_08_shapes_are_never_guessed() -> None:
    """B == T, so that a wrong broadcast would not crash by itself."""
    grpo = preset("grpo", kl_coef=0)
    logprobs, mask = torch.zeros(4, 4), ones(4, 4)
    with pytest.raises(ValueError, match=r"advantages must be \[B\] or \[B, T\]"):
        grpo.loss(logprobs, mask=mask, advantages=torch.zeros(1, 4))
    with pytest.raises(ValueError, match="advantages must be"):
        grpo.loss(logprobs, mask=mask, advantages=torch.zeros(3))
    with pytest.raises(ValueError, match="old_logprobs must be"):
        grpo.loss(logprobs, mask=mask, advantages=torch.zeros(4), old_logprobs=torch.zeros(4))
    with pytest.raises(ValueError, match="need group_ids"):
        grpo.advantages([1.0, 0.0])
    with pytest.raises(ValueError, match="leave group_ids out"):
        grpo.advantages([[1.0, 0.0]], [0, 0])
    row = grpo.loss(
        torch.full((4, 4), -1.0).requires_grad_(True), mask=mask, advantages=torch.arange(4.0)
    )
    assert row.loss.item() == pytest.approx(-1.5)


def test_fault_10_normalised_once_and_along_the_group() -> None:
    rewards = f64([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    cases = {
        ("grpo", 1): [[1.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, -1.5]],
        ("grpo", 0): [
            [math.sqrt(3), *[-1 / math.sqrt(3)] * 3],
            [*[1 / math.sqrt(3)] * 3, -math.sqrt(3)],
        ],
    }
    for (name, ddof), want in cases.items():
        out = preset(name, scale={"ddof": ddof}).advantages(rewards)
        torch.testing.assert_close(out, f64(want), atol=1e-12, rtol=0)
    dr = preset("dr_grpo").advantages(rewards)
    torch.testing.assert_close(dr[0], f64([0.75, -0.25, -0.25, -0.25]), atol=1e-12, rtol=0)
    loo = preset("rloo", kl_coef=0).advantages(rewards)
    torch.testing.assert_close(loo[0], f64([1.0, -1 / 3, -1 / 3, -1 / 3]), atol=1e-12, rtol=0)
    trl = preset("grpo", scale={"ddof": 1, "eps": 1e-4}).advantages(rewards)
    assert trl[0, 0].item() == pytest.approx(1.4997, abs=1e-5)


def test_fault_12_rewards_that_are_not_scored() -> None:
    rewards = f64([[1.0, math.nan, 0.0, 1.0]])
    for ddof, want in ((1, [0.57735, 0.0, -1.15470, 0.57735]), (0, [0.7071, 0, -1.4142, 0.7071])):
        out = preset("grpo", scale={"ddof": ddof}).advantages(rewards)
        torch.testing.assert_close(out[0], f64(want), atol=1e-4, rtol=0)
    loo = preset("rloo", kl_coef=0).advantages(rewards)
    torch.testing.assert_close(loo[0], f64([0.5, 0.0, -1.0, 0.5]), atol=1e-12, rtol=0)
    nothing = f64([[math.nan, math.nan]])
    assert not preset("grpo").advantages(nothing).any()
    filtered = preset("grpo").filter_mask(
        ones(4, 3),
        rewards=rewards[0],
        group_ids=[0, 0, 0, 0],
        truncated=torch.zeros(4, dtype=torch.bool),
    )
    assert filtered.mask.any(1).tolist() == [True, False, True, True]
    assert filtered.counts["filter/unscored_rows"] == 1.0


def test_fault_23_soft_overlong_counts_completion_tokens() -> None:
    lengths = torch.tensor([16, 17, 18, 20, 21])
    out = preset("dapo").shape_rewards(
        f64([0.0, 0.0, math.nan, 0.0, 0.0]),
        lengths=lengths,
        truncated=torch.zeros(5, dtype=torch.bool),
        max_tokens=20,
    )
    torch.testing.assert_close(
        out, f64([0.0, -0.25, math.nan, -1.0, -1.0]), atol=1e-12, rtol=0, equal_nan=True
    )
    half = preset("dapo").shape_rewards(
        f64([0.0]), lengths=lengths[2:3], truncated=torch.tensor([False]), max_tokens=20
    )
    assert half.item() == pytest.approx(-0.5)


def kl_of(estimator: str, policy: float, reference: float) -> tuple[float, float]:
    """(loss, slope) of a KL term alone: one token, advantage 0, coefficient 1."""
    algorithm = preset("grpo", kl={"estimator": estimator, "coef": 1.0})
    out, gradient = run_loss(
        algorithm,
        logprobs=f64([[policy]]),
        mask=ones(1, 1),
        advantages=f64([0.0]),
        ref_logprobs=f64([[reference]]),
    )
    return out.loss.item(), gradient.item()


def test_fault_24_kl_sign_direction_and_estimator() -> None:
    assert kl_of("k1", -1.0, -1.5) == pytest.approx((0.5, 1.0))
    assert kl_of("k2", -1.0, -1.5) == pytest.approx((0.125, 0.5))
    assert kl_of("k3", -1.0, -1.5) == pytest.approx((0.106531, 0.393469), abs=1e-6)
    assert kl_of("k3", -1.5, -1.0)[0] == pytest.approx(0.148721, abs=1e-6)
    assert kl_of("k3+", -1.0, -1.5) == pytest.approx((0.106531, 0.5), abs=1e-6)
    assert kl_of("k3_ratio", -1.0, -1.5) == pytest.approx((0.106531, 0.5), abs=1e-6)
    for estimator in ("k1", "k2", "k3", "k3+", "k3_ratio"):
        assert kl_of(estimator, -1.0, -1.0)[0] == 0.0
    assert "[k3]" in preset("grpo").kl.formula()
    assert any("k1 in the loss" in w for w in preset("grpo", kl={"estimator": "k1"}).warnings)


def test_fault_24_kl_in_the_reward_lowers_it_where_the_policy_moved() -> None:
    rloo = preset("rloo", kl_coef=1.0)
    old, ref = f64([[-1.0, -1.0], [-1.0, -1.0]]), f64([[-1.5, -1.5], [-1.0, -1.0]])
    out = rloo.advantages(f64([[1.0, 1.0]]), mask=ones(2, 2), old_logprobs=old, ref_logprobs=ref)
    torch.testing.assert_close(out, f64([[-1.0, 1.0]]), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("advantage", "right"), [(1.0, 1.066667), (-1.0, -1.166667)])
def test_fault_25_ratio_at_the_token_level(advantage: float, right: float) -> None:
    ratios = f64([[1.1, 0.9, 1.5]])
    grpo = preset("grpo", kl_coef=0)
    inputs = {"mask": ones(1, 3), "advantages": f64([advantage])}
    old = torch.full_like(ratios, -1.0)
    out = grpo.loss(old + ratios.log(), old_logprobs=old, **inputs)
    assert -out.loss.item() == pytest.approx(right, abs=1e-6)
    assert out.metrics["surrogate"] == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("slot", ["ratio", "weight"])
def test_fault_25_every_option_makes_a_difference(slot: str) -> None:
    """Unequal lengths; each pair of options of a slot gives two gradients."""
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True] * 3 + [False]])
    new = f64([[-0.5, -1.0, -0.2, -0.9], [-0.4, -0.8, 0, 0], [-1.1, -0.3, -0.6, 0]])
    old = new + f64([[0.1, -0.05, 0.02, 0.08], [0.03, -0.1, 0, 0], [0.2, -0.04, 0.06, 0]])
    found: dict[str, torch.Tensor] = {}
    for kind in PARTS[slot]:
        if kind in ("none", "length_weighted"):
            continue
        clip = {"low": 0.08, "high": 0.08}
        algorithm = preset("grpo", kl_coef=0, surrogate=clip, **{slot: kind})
        _, found[kind] = run_loss(
            algorithm,
            logprobs=new,
            mask=mask,
            advantages=f64([[1.0, 2.0, -1.0, 0.5], [-0.5, 1.0, 0, 0], [2.0, -1.0, 0.3, 0]]),
            old_logprobs=old,
            group_ids=[0, 0, 1],
            max_tokens=10,
        )
    names = list(found)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert (found[one] - found[other]).abs().max() > 1e-4, (one, other)


def test_fault_26_a_later_pass_has_a_ratio() -> None:
    """Old log-probabilities stay what they were; the second pass sees a ratio away from 1."""
    grpo = preset("grpo", kl_coef=0)
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    picked = torch.tensor([[0], [1]])
    old = logits.log_softmax(1).gather(1, picked).detach()
    seen = []
    for _ in range(2):
        lp = logits.log_softmax(1).gather(1, picked)
        out = grpo.loss(lp, mask=ones(2, 1), advantages=f64([1.0, -1.0]), old_logprobs=old)
        seen.append(out.metrics["ratio/max"])
        (gradient,) = torch.autograd.grad(out.loss, logits)
        logits = (logits - 1e-2 * gradient).detach().requires_grad_(True)
    assert seen[0] == 1.0
    assert seen[1] > 1.0


def test_fault_29_an_empty_completion() -> None:
    """Its reward is in the group's statistics; it adds no token and no row to the loss."""
    algorithm = preset("dr_grpo")
    advantages = algorithm.advantages(f64([[10.0, 0.0]]))[0]
    assert advantages.tolist() == [5.0, -5.0]
    mask = torch.tensor([[False, False], [True, True]])
    out, gradient = run_loss(
        algorithm,
        logprobs=f64([[math.nan, 1e9], [-1.0, -1.0]]),
        mask=mask,
        advantages=advantages,
        max_tokens=2,
    )
    assert gradient.tolist() == [[0.0, 0.0], [2.5, 2.5]]
    assert out.metrics["tokens"] == 2.0


def test_fault_36_metrics_merge_as_sums() -> None:
    a = MetricSums(means={"x": (1.0, 10.0)}, lows={"m": 0.5}, highs={"h": 2.0})
    b = MetricSums(means={"x": (2.0, 2.0), "y": (0.0, 0.0)}, lows={"m": 0.2}, highs={"h": 1.0})
    merged = (a + b).finish()
    assert merged["x"] == 0.25
    assert math.isnan(merged["y"])
    assert (merged["m"], merged["h"]) == (0.2, 2.0)


@pytest.mark.parametrize(("advantage", "high", "low"), [(1.0, 0.5, 0.0), (-1.0, 0.0, 0.5)])
def test_fault_37_clip_fraction_by_the_sign_of_the_advantage(
    advantage: float, high: float, low: float
) -> None:
    ratios = f64([[1.5, 0.5]])
    old = torch.full_like(ratios, -2.0)
    out = preset("grpo", kl_coef=0).loss(
        old + ratios.log(), mask=ones(1, 2), advantages=f64([advantage]), old_logprobs=old
    )
    assert (out.metrics["clip/high"], out.metrics["clip/low"]) == (high, low)


def test_fault_39_low_precision_log_probabilities_are_computed_with_in_float32() -> None:
    lp = torch.full((2, 3), -1.0, dtype=torch.bfloat16).requires_grad_(True)
    out = preset("grpo", kl_coef=0).loss(lp, mask=ones(2, 3), advantages=f64([1.0, 0.5]))
    assert out.loss.dtype == torch.float32
    assert out.loss.item() == pytest.approx(-0.75)


def test_fault_62_the_same_metrics_for_every_algorithm() -> None:
    common = None
    for name in ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "scale_rl"):
        algorithm = preset(name, kl_coef=0)
        lp = f64([[-1.0], [-2.0]])
        out = algorithm.loss(
            lp,
            mask=ones(2, 1),
            advantages=f64([1.0, -1.0]),
            sampler_logprobs=lp,
            group_ids=[0, 0],
            max_tokens=1,
        )
        assert all(isinstance(value, float) for value in out.metrics.values())
        common = common or out.metrics.keys()
        assert out.metrics.keys() == common
    assert common is not None
    assert {
        "ratio/mean", "ratio/min", "ratio/max", "clip/low", "clip/high", "kl", "kl/token",
        "surrogate", "entropy", "sampler_gap/mean", "sampler_gap/max", "tokens",
    } == set(common)  # fmt: skip
