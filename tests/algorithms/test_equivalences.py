"""Methods that must coincide, and the figures that practitioners know."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from algorithms.fixture import GROUP_IDS, MASK, NEW, OLD, REWARDS, SAMPLER, f64, run_loss
from conformance.cases import make as preset
from groupwise.algorithms.divergences import DivergenceMask
from groupwise.algorithms.surrogates import Cispo, Clip

ADVANTAGES = preset("grpo", kl_coef=0).advantages(REWARDS, GROUP_IDS)


def gradient_of(name: str, **overrides: Any) -> torch.Tensor:
    sampler = overrides.pop("sampler", SAMPLER)
    algorithm = preset(name, **overrides)
    inputs = {"sampler_logprobs": sampler} if algorithm.needs.sampler_logprobs else {}
    if algorithm.needs.ref_logprobs:
        inputs["ref_logprobs"] = OLD
    if algorithm.needs.top_k:
        inputs["top_logprobs"] = NEW.unsqueeze(2)
        inputs["sampler_top_logprobs"] = sampler.unsqueeze(2)
    _, gradient = run_loss(
        algorithm,
        logprobs=NEW,
        mask=MASK,
        advantages=ADVANTAGES,
        old_logprobs=overrides.get("old", OLD),
        group_ids=GROUP_IDS,
        max_tokens=4,
        **inputs,
    )
    return gradient


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_leave_one_out_is_centring_times_g_over_g_minus_one() -> None:
    loo = preset("rloo", kl_coef=0).advantages(REWARDS, GROUP_IDS)
    centred = preset("dr_grpo").advantages(REWARDS, GROUP_IDS)
    same(loo, centred * 4 / 3)
    by_hand = preset("rloo", kl_coef=0).advantages(f64([[1.2, 0.2, 1.2, 0.0]]))
    torch.testing.assert_close(
        by_hand[0], f64([0.733333, -0.6, 0.733333, -0.866667]), atol=1e-6, rtol=0
    )
    assert by_hand.sum().item() == pytest.approx(0.0, abs=1e-12)


def test_gspo_token_is_gspo_where_a_row_has_one_advantage() -> None:
    wide = {"surrogate": {"low": 0.2, "high": 0.28}}
    same(gradient_of("gspo_token", **wide), gradient_of("gspo", **wide))


def test_trl_delta_is_the_dual_clip() -> None:
    for bound in (1.28, 1.5, 3.0):
        dual = gradient_of("dapo", surrogate={"dual": bound})
        same(gradient_of("dapo", surrogate={"delta": bound}), dual)


def test_mask_only_is_rejection_without_the_weight() -> None:
    kept = (OLD - SAMPLER).exp().clamp(0.5, 2) == (OLD - SAMPLER).exp()
    plain = gradient_of("dapo")
    same(gradient_of("dapo", correction="mask_only"), torch.where(kept, plain, 0))


def test_cispo_without_a_cap_is_importance_weighted_reinforce() -> None:
    free = gradient_of("cispo", surrogate=Cispo(cap=math.inf))
    same(free, gradient_of("cispo", surrogate="unclipped"))
    same(free, gradient_of("dapo", surrogate=Clip(low=1.0, high=math.inf)))


def test_dppo_without_a_threshold_is_cispo_on_the_sampler() -> None:
    open_mask = DivergenceMask(low=math.inf, high=math.inf, cap=5.0)
    same(gradient_of("dppo_binary_tv", surrogate=open_mask), gradient_of("cispo", anchor="sampler"))


ON_POLICY_SHAPES = [
    ("dapo", {}),
    ("cispo", {}),
    ("sapo", {"weight": "per_token"}),
    ("dppo_binary_tv", {}),
    ("dppo_binary_kl", {}),
    ("dppo_topk_tv", {}),
    ("vespo", {}),
    ("dcpo", {"weight": "per_token"}),
    ("reinforce", {"weight": "per_token"}),
    ("symmetric_tv_mask", {}),
    ("gspo_token", {"weight": "per_token"}),
]


@pytest.mark.parametrize(("name", "overrides"), ON_POLICY_SHAPES)
def test_every_shape_is_minus_a_at_ratio_one(name: str, overrides: dict[str, Any]) -> None:
    algorithm = preset(name, **overrides)
    inputs: dict[str, Any] = {}
    if algorithm.needs.sampler_logprobs:
        inputs["sampler_logprobs"] = NEW
    if algorithm.needs.top_k:
        inputs["top_logprobs"] = inputs["sampler_top_logprobs"] = NEW.unsqueeze(2)
    _, gradient = run_loss(
        algorithm, logprobs=NEW, mask=MASK, advantages=ADVANTAGES, group_ids=GROUP_IDS, **inputs
    )
    same(gradient, torch.where(MASK, -ADVANTAGES.unsqueeze(1) / 23, 0))


@pytest.mark.parametrize("level", ["sequence_geometric", "sequence_product", "sequence_arithmetic"])
def test_sequence_ratios_agree_on_rows_of_one_token(level: str) -> None:
    column = {"logprobs": NEW[:, :1], "mask": MASK[:, :1], "old_logprobs": OLD[:, :1]}
    _, want = run_loss(preset("grpo", kl_coef=0), advantages=ADVANTAGES, **column)
    algorithm = preset("grpo", kl_coef=0, ratio=level)
    _, found = run_loss(algorithm, advantages=ADVANTAGES, **column)
    same(found, want)


def test_the_group_mean_shrinks_the_expected_gradient_by_one_over_g() -> None:
    """Exact expectation over all groups of 2 from a Bernoulli policy: (1 - 1/G) the true one."""
    p = 0.3
    score = {1: 1 - p, 0: -p}
    expected = {"dr_grpo": 0.0, "rloo": 0.0}
    for a in (0, 1):
        for b in (0, 1):
            chance = (p if a else 1 - p) * (p if b else 1 - p)
            for name in expected:
                algorithm = preset(name, kl_coef=0)
                adv = algorithm.advantages(f64([[float(a), float(b)]]))[0]
                gradient = (adv[0] * score[a] + adv[1] * score[b]).item() / 2
                expected[name] += chance * gradient
    true = p * (1 - p)
    assert expected["rloo"] == pytest.approx(true, abs=1e-12)
    assert expected["dr_grpo"] == pytest.approx(true / 2, abs=1e-12)


# practice.md's figures that are formulas


@pytest.mark.parametrize(
    ("right", "up", "down"), [(1, 2.645751, -0.377964), (3, 1.290994, -0.774597), (8, 0.0, 0.0)]
)
def test_advantages_of_k_right_of_eight(right: int, up: float, down: float) -> None:
    rewards = f64([[1.0] * right + [0.0] * (8 - right)])
    out = preset("grpo").advantages(rewards)[0]
    assert out[0].item() == pytest.approx(up, abs=1e-6)
    assert out[-1].item() == pytest.approx(down, abs=1e-6)


def test_four_tokens_against_one_token() -> None:
    mask = torch.tensor([[True] * 4, [True] + [False] * 3])
    lp = torch.full((2, 4), -1.0, dtype=torch.float64)
    inputs = {"logprobs": lp, "mask": mask, "advantages": f64([1.0, -1.0])}
    _, rows = run_loss(preset("grpo", kl_coef=0), **inputs)
    _, tokens = run_loss(preset("dapo"), **inputs)
    assert rows.sum().item() == pytest.approx(0.0, abs=1e-15)
    assert tokens.sum().item() == pytest.approx(-3 / 5, abs=1e-15)


def test_clip_higher_lets_a_rare_token_rise_further() -> None:
    old = f64([[math.log(0.01)]])
    for name, reach in (("grpo", 0.012), ("dapo", 0.0128)):
        for step, moves in ((reach - 1e-6, True), (reach + 1e-6, False)):
            _, gradient = run_loss(
                preset(name, kl_coef=0),
                logprobs=f64([[math.log(step)]]),
                mask=torch.tensor([[True]]),
                advantages=f64([1.0]),
                old_logprobs=old,
            )
            assert bool(gradient.any()) is moves


def test_two_grpo_ties_and_pairs() -> None:
    out = preset("two_grpo").advantages(f64([[1.0, 0.0], [1.0, 1.0], [0.2, 0.7]]))
    same(out, f64([[1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]]))


def test_gopo_by_hand() -> None:
    out = preset("gopo").advantages(f64([[0.9, 0.1, 0.4, 0.35], [-1.0, 2.0, 0.3, 0.3]]))
    want = f64([[2.0, -2.0, 2 / 3, -2 / 3], [-2.0, 2.0, 0.0, 0.0]])
    torch.testing.assert_close(out, want, atol=1e-12, rtol=0)
