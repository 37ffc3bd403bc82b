"""Combinations that cannot work are refused with the reason; suspicious ones are warned of."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from algorithms.fixture import GROUP_IDS, MASK, NEW, OLD, REWARDS, f64
from conformance.cases import make as preset
from groupwise.algorithms import PRESETS
from groupwise.errors import RecipeError

SEQUENCE = ("sequence_geometric", "sequence_product", "sequence_arithmetic")


@pytest.mark.parametrize("ratio", SEQUENCE)
@pytest.mark.parametrize(
    "weight", ["per_token", "per_prompt_token", "constant", "per_sequence_sum"]
)
def test_a_clipped_sequence_ratio_with_token_weights(ratio: str, weight: str) -> None:
    with pytest.raises(RecipeError, match="length_weighted"):
        preset("gspo", ratio=ratio, weight=weight)
    assert preset("gspo_length_weighted").weight.kind == "length_weighted"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("cispo", {"surrogate": {"cap": 0.28}}, r"reads like an epsilon.*cap = 1\.28"),
        (
            "cispo",
            {"surrogate": {"floor": 1.5}},
            "floor = 1.5: it should be less than or equal to 1",
        ),
        ("dapo", {"surrogate": {"dual": 0.8}}, "for example 3.0"),
        ("dapo", {"surrogate": {"delta": 0.8}}, "for example 4.0"),
        ("dapo", {"surrogate": {"delta": 4.0, "dual": 3.0}}, "give one"),
        (
            "dapo",
            {"surrogate": {"low": -0.1}},
            "low = -0.1: it should be greater than or equal to 0, for example 0.2",
        ),
        ("grpo", {"anchor": "none"}, "do not go together"),
        ("grpo", {"ratio": "none"}, "do not go together"),
        ("grpo", {"anchor": "none", "ratio": "none"}, "needs a ratio"),
        ("cispo", {"anchor": "sampler", "correction": "truncate"}, "count twice"),
        ("dapo", {"correction": {"kind": "mask", "level": "sequence_product"}}, "explicit bound"),
        ("dapo", {"correction": {"kind": "mask", "low": 2.0, "high": 0.5}}, "above high"),
        ("grpo_process", {"spread": "broadcast"}, "suffix_sum"),
        ("gtpo", {"spread": "broadcast"}, "per_token"),
        ("reinforce_pp", {"spread": "broadcast"}, "suffix_sum"),
        ("ppo", {"spread": "broadcast"}, "per_token"),
        ("ppo", {"scale": "group_std"}, "batch_whiten"),
        ("dcpo", {"scale": "group_std"}, "scaled already"),
        ("dapo", {"filters": ["dynamic_sampling"] * 2}, "one dynamic_sampling at most"),
        (
            "dapo",
            {"filters": [{"kind": "dynamic_sampling", "max_batches": 0}]},
            "dynamic_sampling.max_batches = 0",
        ),
        (
            "dapo",
            {"filters": [{"kind": "dynamic_sampling", "oversample": 0.5}]},
            "oversample = 0.5: it should be greater than or equal to 1",
        ),
        ("grpo", {"extras": ["value_loss"]}, 'baseline = "gae"'),
        ("grpo", {"extras": ["adaptive_entropy"] * 2}, "one adaptive_entropy"),
        ("grpo", {"filters": [{"kind": "top_entropy", "share": 0.0}]}, "top_entropy.share"),
        ("grpo", {"kl_coef": -0.1}, "kl.coef = -0.1: .*for example 0.04"),
        (
            "grpo",
            {"scale": {"ddof": -1}},
            r"scale\.ddof = -1: it should be .* or equal to 0, for example 0",
        ),
        ("grpo", {"scale": {"eps": -0.5}}, r"scale\.eps = -0\.5: it should be"),
        ("reinforce_pp", {"scale": {"variance_eps": -1}}, r"scale\.variance_eps = -1"),
        ("dcpo", {"baseline": {"eps": -0.5}}, r"baseline\.eps = -0\.5"),
        ("gdpo", {"transform": {"ddof": -2}}, r"transform\.ddof = -2"),
        ("grpo", {"kl": {"refresh_mix": 0.0}}, "refresh_mix"),
        ("online_pair_logistic", {"weight": "per_token"}, "per_sequence"),
        ("gmpo", {"weight": "per_token"}, "per_sequence"),
        ("grpo_process", {"kl": {"placement": "sequence_reward"}}, "one reward a row"),
    ],
)
def test_refused_with_the_reason(name: str, overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        preset(name, **overrides)


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("grpo", {"kl": {"estimator": "k1"}}, "zero gradient in expectation"),
        ("gopo", {"scale": "group_std"}, "scales it twice"),
        ("grpo", {"surrogate": "logp"}, "does not read the ratio"),
        ("dppo_binary_tv", {"anchor": "old"}, "divergence from the sampler"),
        ("vespo", {"anchor": "old"}, "behaviour policy"),
        ("dapo", {"surrogate": {"delta": 1.1}}, "below 1 \\+ high"),
        ("raft", {"filters": []}, "without filter min_reward"),
        ("dapo", {"filters": ["overlong_mask", "overlong_mask"]}, "the same filter twice"),
    ],
)
def test_warned_of_with_the_reason(name: str, overrides: dict[str, Any], reason: str) -> None:
    (warning,) = preset(name, **overrides).check(group_size=8)
    assert re.search(reason, warning)


def test_no_preset_warns() -> None:
    for name in PRESETS:
        assert preset(name).warnings == []


@pytest.mark.parametrize(
    ("name", "context", "field"),
    [
        ("grpo", {"group_size": 1}, "sampling.group_size = 1"),
        ("two_grpo", {"group_size": 8}, "takes exactly 2"),
        ("grpo", {"temperature": 0.0}, "sampling.temperature = 0.0"),
        ("dppo_topk_tv", {"top_p": 0.9}, "sampling.top_p = 0.9"),
        ("dppo_topk_tv", {"top_k": 50}, "top_k = 50"),
        ("dppo_topk_tv", {"min_p": 0.1}, "min_p = 0.1"),
        ("grpo", {"reference": False}, "term against a reference"),
        ("grpo_process", {"step_rewards": False}, "needs step rewards"),
        ("gdpo", {"num_components": 0}, "reward components"),
    ],
)
def test_what_the_rest_of_a_recipe_makes_impossible(
    name: str, context: dict[str, Any], field: str
) -> None:
    with pytest.raises(RecipeError, match=field):
        preset(name).check(**context)


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.1}])
def test_a_cut_distribution_is_legal_where_only_the_sampled_token_counts(
    cut: dict[str, Any],
) -> None:
    assert preset("grpo").check(**cut) == []


DDOF = [
    ("grpo", {"scale": {"ddof": 2}}, "scale"),
    ("dcpo", {"baseline": {"ddof": 2}}, "baseline"),
    ("gdpo", {"transform": {"ddof": 2}}, "transform"),
    ("gdpo", {"scale": {"ddof": 2}}, "scale"),
    ("gtpo", {"scale": {"kind": "none"}, "transform": {"kind": "z_score_each", "ddof": 2},
              "spread": "broadcast"}, "transform"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "overrides", "slot"), DDOF)
def test_a_group_has_more_completions_than_ddof(
    name: str, overrides: dict[str, Any], slot: str
) -> None:
    algorithm = preset(name, **overrides)
    message = rf"algorithm\.{slot}\.ddof = 2: a group of 2 .* example 0, or .*group_size = 3"
    with pytest.raises(RecipeError, match=message):
        algorithm.check(group_size=2)
    with pytest.raises(RecipeError, match=message):
        algorithm.advantages([[1.0, 0.0]], components=[[[1.0, 2.0], [0.0, 3.0]]])
    assert algorithm.check(group_size=3) == []


def test_too_few_scored_completions_for_ddof_have_no_advantage() -> None:
    rewards = f64([[1.0, 0.0, float("nan")], [1.0, 0.0, 0.5]])
    out = preset("dr_grpo", scale={"kind": "group_std", "ddof": 2}).advantages(rewards)
    torch.testing.assert_close(out[1], f64([0.5, -0.5, 0.0]) / 0.5**0.5)
    assert not out[0].any()
    smoothed = preset("dcpo", kl_coef=0, baseline={"ddof": 2})
    for state in (None, smoothed.init_state()):
        out = smoothed.advantages(rewards, prompt_ids=["a", "b"], state=state)
        assert not out[0].any()
        assert out.isfinite().all()
        assert out[1].any()
    for scale in ({"kind": "batch_std", "ddof": 2}, {"kind": "batch_whiten", "ddof": 2}):
        alone = preset("dr_grpo", scale=scale).advantages([[1.0, 0.0]])
        assert not alone.any()


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinite_reward_is_refused_by_name(value: float) -> None:
    bad = [[1.0, 0.0], [0.0, value]]
    grpo, mask = preset("grpo"), torch.ones(4, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=rf"rewards\[1, 1\] = {value}.* example 1\.0, or NaN"):
        grpo.advantages(bad)
    flat, ids = f64(bad).flatten(), [0, 0, 1, 1]
    with pytest.raises(ValueError, match=rf"rewards\[3\] = {value}"):
        grpo.advantages(flat, ids)
    with pytest.raises(ValueError, match=rf"rewards\[3\] = {value}"):
        grpo.filter_mask(mask, rewards=flat, group_ids=ids, truncated=torch.zeros(4))
    good = [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match=r"components\[1, 0, 1\]|components\[2, 1\]"):
        preset("gdpo").advantages(good, components=[[[1.0, 2.0]] * 2, [[0.0, value]] * 2])
    with pytest.raises(ValueError, match=rf"greedy_rewards\[1\] = {value}"):
        preset("remax").advantages(good, greedy_rewards=[0.0, value])
    with pytest.raises(ValueError, match=rf"step_rewards\[3, 1\] = {value}"):
        preset("grpo_process").advantages(
            flat.clamp(0, 1), ids, step_rewards=[[1.0]] * 3 + [[0.0, value]],
            step_ends=[[0]] * 3 + [[0, 1]],
        )  # fmt: skip


@pytest.mark.parametrize("name", ["reinforce", "reinforce_pp", "raft", "remax", "ppo"])
def test_methods_without_a_group_take_one_completion(name: str) -> None:
    assert preset(name).check(group_size=1) == []


def test_one_scored_completion_left_in_a_group_has_no_advantage() -> None:
    rewards = f64([[1.0, float("nan"), float("nan")], [1.0, 0.0, float("nan")]])
    for name in ("grpo", "rloo", "dr_grpo", "gopo", "max_rl", "dcpo"):
        out = preset(name, kl_coef=0).advantages(rewards)
        assert not out[0].any()
        assert out[1].isfinite().all()
        assert out[1, 0] > 0


NEEDED = [
    ("grpo", "loss", {}, "kl in the loss needs ref_logprobs"),
    ("cispo", "loss", {"anchor": "sampler"}, "anchor sampler needs sampler_logprobs"),
    ("dapo", "loss", {"correction": "mask"}, "correction mask needs sampler_logprobs"),
    ("dppo_topk_tv", "loss", {"anchor": "old"}, "topk_tv.*needs top_logprobs"),
    ("dapo_per_prompt", "loss", {}, "per_prompt_token needs group_ids"),
    ("dr_grpo", "loss", {}, "constant needs max_tokens"),
    ("dapo", "loss", {"filters": ["top_entropy"]}, "top_entropy needs entropies"),
    ("dapo", "loss", {"extras": ["entropy_bonus"]}, "entropy_bonus needs entropies"),
    ("ref_surprise_weight", "loss", {}, "ref_surprise_weight needs ref_logprobs"),
    ("online_pair_logistic", "loss", {}, "online_pair_logistic needs group_ids"),
    ("rloo", "advantages", {}, "kl in the sequence reward needs mask"),
    ("reinforce_pp", "advantages", {}, "token rewards needs mask"),
    ("gdpo", "advantages", {}, "transform z_score_each needs components"),
    ("grpo_process", "advantages", {}, "transform steps needs step_rewards"),
    ("remax", "advantages", {}, "baseline greedy needs greedy_rewards"),
    ("gtpo", "advantages", {}, "transform entropy_shaped needs mask"),
    ("ppo", "advantages", {"kl_coef": 0}, "needs mask"),
]


@pytest.mark.parametrize(("name", "verb", "overrides", "reason"), NEEDED)
def test_a_missing_input_names_the_part(
    name: str, verb: str, overrides: dict[str, Any], reason: str
) -> None:
    algorithm = preset(name, **overrides)

    def call() -> None:
        if verb == "loss":
            algorithm.loss(NEW, mask=MASK, advantages=torch.ones(8).double(), old_logprobs=OLD)
        else:
            algorithm.advantages(REWARDS, GROUP_IDS)

    with pytest.raises(ValueError, match=reason):
        call()


def test_needs_say_what_the_loop_has_to_provide() -> None:
    assert preset("grpo").needs.ref_logprobs
    assert not preset("grpo", kl_coef=0).needs.ref_logprobs
    assert not preset("grpo").needs.old_logprobs
    assert preset("rloo").needs.old_logprobs
    assert preset("grpo").needs.ratio_anchor == "old"
    assert preset("reinforce").needs.ratio_anchor is None
    assert preset("vespo").needs.sampler_logprobs
    assert preset("dppo_topk_kl").needs.top_k == 20
    assert preset("dppo_binary_kl").needs.top_k == 0
    assert preset("remax").needs.greedy
    assert preset("grpo_process").needs.step_rewards
    assert preset("gdpo").needs.components
    assert preset("gtpo").needs.entropies == "detached"
    assert preset("dapo", extras=["entropy_bonus"]).needs.entropies == "live"
    assert preset("dr_grpo").needs.max_tokens
    assert preset("two_grpo").needs.group_size == 2
    assert preset("online_pair_logistic").needs.whole_groups
    assert preset("dcpo").needs.state
    assert preset("scale_rl").needs.state
    assert preset("ppo").needs.values
    assert preset("dapo", correction="truncate").needs.sampler_logprobs
