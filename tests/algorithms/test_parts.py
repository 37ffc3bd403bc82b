"""Corrections, filters, entropy terms, states: what each part does, on small inputs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from algorithms.fixture import MASK, NEW, OLD, REF, SAMPLER, f64, run_loss
from claims import claim
from conformance.cases import EVERY
from conformance.cases import make as preset
from groupwise.algorithms import AlgorithmState
from groupwise.algorithms.baselines import generalised_advantages
from groupwise.algorithms.extras import clipped_value_loss as value_loss
from groupwise.algorithms.filters import DynamicSampling, informative
from groupwise.algorithms.kl import Kl

DIFFERENTIABLE = {
    "logp", "unclipped", "clip", "dynamic_clip", "soft_gate", "symmetric_tv_mask", "geometric_clip",
    "kl_cov",
}  # fmt: skip
"""Surrogates without a stop-gradient: `torch.autograd.gradcheck` applies to the whole loss."""
ONES = torch.ones(8, dtype=torch.float64)


def rows(*values: bool) -> torch.Tensor:
    return torch.tensor(values)


def filter_rows(algorithm: Any, rewards: list[float], ids: list[int], **kwargs: Any) -> Any:
    num = len(rewards)
    truncated = kwargs.pop("truncated", torch.zeros(num, dtype=torch.bool))
    return algorithm.filter_mask(
        torch.ones(num, 2, dtype=torch.bool),
        rewards=f64(rewards),
        group_ids=ids,
        truncated=truncated,
        **kwargs,
    )


# corrections


def test_correction_metrics_are_of_the_raw_ratio() -> None:
    old = f64([[-1.0, -1.0], [-1.0, -1.0]])
    w = f64([[0.25, 1.0], [4.0, 1.0]])
    mask = torch.tensor([[True, True], [True, False]])
    algorithm = preset("dapo", correction="mask")
    out = algorithm.loss(
        old,
        mask=mask,
        advantages=f64([1.0, 1.0]),
        old_logprobs=old,
        sampler_logprobs=old - w.log(),
    )
    m = out.metrics
    assert m["correction/mean"] == pytest.approx((0.25 + 1 + 4) / 3)
    assert (m["correction/min"], m["correction/max"]) == (pytest.approx(0.25), pytest.approx(4.0))
    assert m["correction/discarded"] == pytest.approx(2 / 3)
    assert m["correction/ess"] == pytest.approx(5.25**2 / (3 * (0.0625 + 1 + 16)))
    assert out.loss.item() == pytest.approx(-1 / 3)
    assert m["sampler_gap/max"] == pytest.approx(math.log(4))


def test_sequence_correction_counts_rows() -> None:
    old = f64([[-1.0, -1.0], [-1.0, -1.0]])
    log_w = f64([[0.5, 0.5], [-3.0, 0.0]])
    correction = {"kind": "mask", "level": "sequence_product", "low": 0.5, "high": 3.0}
    out = preset("dapo", correction=correction).loss(
        old,
        mask=torch.ones(2, 2, dtype=torch.bool),
        advantages=f64([1.0, 1.0]),
        old_logprobs=old,
        sampler_logprobs=old - log_w,
    )
    assert out.metrics["correction/discarded"] == 0.5
    assert out.metrics["correction/mean"] == pytest.approx((math.e + math.exp(-3)) / 2)
    assert out.loss.item() == pytest.approx(-math.e / 2)


def test_correction_does_not_touch_the_kl_term_and_has_no_gradient() -> None:
    plain = preset("grpo", surrogate="logp", anchor="none", ratio="none", kl_coef=1.0)
    inputs = {"logprobs": NEW, "mask": MASK, "advantages": 0 * ONES, "ref_logprobs": REF}
    _, want = run_loss(plain, **inputs)
    corrected = preset(
        "grpo", surrogate="logp", anchor="none", ratio="none", kl_coef=1.0, correction="mask"
    )
    _, found = run_loss(corrected, sampler_logprobs=SAMPLER, **inputs)
    assert torch.equal(found, want)


def test_the_weight_compares_the_start_of_the_update_with_the_sampler() -> None:
    """Not the live policy: a second update keeps the weight."""
    algorithm = preset("dapo", correction={"kind": "truncate", "high": 1e9})
    inputs = {"mask": MASK, "advantages": ONES, "old_logprobs": OLD, "sampler_logprobs": SAMPLER}
    first = algorithm.loss(NEW, **inputs).metrics
    second = algorithm.loss(NEW - 0.01, **inputs).metrics
    assert first["correction/mean"] == second["correction/mean"]
    on_policy = algorithm.loss(NEW, mask=MASK, advantages=ONES, sampler_logprobs=SAMPLER)
    want = (NEW - SAMPLER).exp()[MASK].mean().item()
    assert on_policy.metrics["correction/mean"] == pytest.approx(want)


# filters


@pytest.mark.parametrize("name", ["dapo", "dapo_per_prompt", "scale_rl"])
@pytest.mark.parametrize(
    ("unshaped", "kept"),
    [
        ([1.0, 1.0, 1.0, 0.0], [False, True]),
        ([10.0, 10.0, 7.0, 9.0], [False, True]),
        ([3.0, 1.0, 10.0, 10.0], [True, False]),
        ([-5.0, -5.0, -5.0, -4.0], [False, True]),
        ([1e6, 1e6 + 1e-3, 1e-3, 2e-3], [False, True]),
        ([0.1 + 0.2, 0.3, 0.3, 0.4], [False, True]),
        ([math.nan, 2.0, math.nan, math.nan], [False, False]),
    ],
)
def test_a_group_carries_a_signal_where_its_rewards_differ(
    name: str, unshaped: list[float], kept: list[bool]
) -> None:
    """Before the shapers, and on any scale."""
    shaped = [r - 0.1 * i for i, r in enumerate(unshaped)]
    found = filter_rows(preset(name), shaped, [0, 0, 1, 1], unshaped=f64(unshaped))
    rows_kept = found.mask.any(1).tolist()
    assert [rows_kept[1], rows_kept[2] or rows_kept[3]] == kept
    scored = [not math.isnan(r) for r in unshaped]
    dropped = sum(s and not k for s, k in zip(scored, [kept[0]] * 2 + [kept[1]] * 2, strict=True))
    assert found.counts["filter/uniform_rows"] == dropped


def test_a_filter_goes_by_the_verdict_where_it_is_asked_to() -> None:
    by_verdict = preset("dapo", filters=[{"kind": "zero_variance_drop", "by": "accuracy"}])
    found = filter_rows(
        by_verdict, [1.0, 0.5, 1.0, 0.0], [0, 0, 1, 1], accuracies=f64([1.0, 1.0, 1.0, 0.0])
    )
    assert found.mask.any(1).tolist() == [False, False, True, True]


def test_overlong_rows_leave_the_batch_and_stay_in_the_statistics() -> None:
    dapo = preset("dapo", shapers=[])
    cut = rows(False, True, False, False)
    out = filter_rows(dapo, [1.0, 0.0, 1.0, 0.0], [0, 0, 0, 0], truncated=cut)
    assert out.mask.any(1).tolist() == [True, False, True, True]
    assert out.counts == {
        "filter/unscored_rows": 0.0,
        "filter/uniform_rows": 0.0,
        "filter/overlong_rows": 1.0,
    }
    kept = dapo.shape_rewards(
        f64([1.0, 0.0]), lengths=torch.ones(2), truncated=cut[:2], max_tokens=4
    )
    assert kept.tolist() == [1.0, 0.0]
    strict = preset("dapo", filters=[{"kind": "overlong_mask", "in_statistics": False}], shapers=[])
    shaped = strict.shape_rewards(
        f64([1.0, 0.0]), lengths=torch.ones(2), truncated=cut[:2], max_tokens=4
    )
    assert shaped[0].item() == 1.0
    assert math.isnan(shaped[1].item())


def test_a_removed_row_leaves_the_denominator_and_a_silenced_token_stays() -> None:
    mask = torch.tensor([[True, True], [True, True]])
    old = f64([[-1.0, -1.0], [-1.0, -1.0]])
    high = old + f64([[math.log(2.0), 0.0], [0.0, 0.0]])
    grpo = preset("grpo", kl_coef=0)
    both = grpo.loss(high, mask=mask, advantages=f64([1.0, 1.0]), old_logprobs=old)
    assert both.loss.item() == pytest.approx(-(1.2 + 1 + 1 + 1) / 4)
    one = grpo.loss(
        high, mask=mask & rows(True, False)[:, None], advantages=f64([1.0, 1.0]), old_logprobs=old
    )
    assert one.loss.item() == pytest.approx(-(1.2 + 1) / 2)


def test_raft_can_keep_the_best_of_a_group() -> None:
    best = preset("raft", filters=[{"kind": "min_reward", "at": 0.5, "per_prompt": 1}])
    out = filter_rows(best, [0.6, 0.9, 0.9, 0.1, 0.7], [0, 0, 0, 1, 1])
    assert out.mask.any(1).tolist() == [False, True, False, False, True]
    assert out.counts["filter/low_reward_rows"] == 3.0


def test_top_entropy_is_a_quantile_of_the_whole_update() -> None:
    """All the high entropies sit in row 1: per row, the answer would be another one."""
    entropies = f64([[0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 4.0]])
    algorithm = preset("dapo", filters=[{"kind": "top_entropy", "share": 0.5}])
    mask = torch.ones(2, 4, dtype=torch.bool)
    plan = algorithm.plan_update(mask, entropies=entropies)
    assert plan.keep is not None
    assert plan.keep.tolist() == [[False] * 4, [True] * 4]
    lp = torch.full((2, 4), -1.0, dtype=torch.float64)
    _, gradient = run_loss(
        algorithm, logprobs=lp, mask=mask, advantages=f64([1.0, 1.0]), entropies=entropies
    )
    assert gradient.tolist() == [[0.0] * 4, [-1 / 8] * 4]


def test_off_policy_mask_reads_the_sampler_and_falls_back_on_old() -> None:
    lp = f64([[-2.0, -2.0], [-2.0, -2.0]])
    old, far = lp + 0.05, lp + 0.5
    algorithm = preset(
        "grpo", kl_coef=0, filters=[{"kind": "off_policy_sequence_mask", "delta": 0.1}]
    )
    inputs = {
        "logprobs": lp,
        "mask": torch.ones(2, 2, dtype=torch.bool),
        "advantages": f64([1.0, -1.0]),
        "old_logprobs": old,
    }
    _, near = run_loss(algorithm, **inputs)
    assert near[1].abs().sum() > 0
    _, gone = run_loss(algorithm, sampler_logprobs=far, **inputs)
    assert not gone[1].any()
    assert torch.equal(gone[0], near[0])


def test_dynamic_sampling_keeps_informative_groups() -> None:
    keep = DynamicSampling(max_batches=4).needs.keep
    assert keep is not None
    assert keep.max_batches == 4
    assert keep.rule([1.0, 0.0])
    assert not keep.rule([0.1 + 0.2, 0.3])
    assert not informative([math.nan, 1.0])
    assert (keep.by, keep.surplus, keep.oversample, keep.when_short) == (
        "reward", "carry", 1.0, "skip",
    )  # fmt: skip


def test_dynamic_sampling_by_itself_drops_uniform_groups() -> None:
    """By accuracy: a solved group leaves although shaping tells its rows apart."""
    for by, kept in (("accuracy", [2, 3]), ("reward", [0, 1, 2, 3]), ("number", [0, 1, 2, 3])):
        filtered = preset("dapo", filters=[{"kind": "dynamic_sampling", "by": by}]).filter_mask(
            torch.ones(4, 1, dtype=torch.bool),
            rewards=f64([1.0, 0.5, 1.0, 0.0]),
            accuracies=f64([1.0, 1.0, 1.0, 0.0]),
            group_ids=[0, 0, 1, 1],
            truncated=rows(False, False, False, False),
        )
        assert filtered.mask.flatten().nonzero().flatten().tolist() == kept


@pytest.mark.parametrize("kind", ["per_sequence", "per_sequence_sum", "per_token", "constant"])
def test_every_prompt_counts_the_same_whatever_its_groups_size(kind: str) -> None:
    """A group of 1 and a group of 3 against the average of both taken alone (for a token mean: each
    row counting 1 over its group's rows)."""
    algorithm = preset("dapo", weight=kind)
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 0]], dtype=torch.bool)
    plan = algorithm.plan_update(mask, group_ids=[0, 1, 1, 1], max_tokens=8, equal_prompts=True)
    share = f64([[1.0], [1 / 3], [1 / 3], [1 / 3]])
    rows_of = {
        "per_sequence": mask / mask.sum(1, keepdim=True) * share / 2,
        "per_sequence_sum": mask * share / 2,
        "constant": mask * share / (2 * 8),
        "per_token": mask * share / (mask * share).sum(),
    }
    assert torch.allclose(plan.weight, rows_of[kind].to(plan.weight.dtype), atol=1e-15)
    even = {"group_ids": [0, 0, 1, 1], "max_tokens": 8}
    plain = algorithm.plan_update(mask, **even)
    same = algorithm.plan_update(mask, **even, equal_prompts=True)
    assert torch.allclose(same.weight, plain.weight, rtol=1e-15)


# entropy


def test_adaptive_entropy_is_a_floor() -> None:
    algorithm = preset("grpo", kl_coef=0, extras=[{"kind": "adaptive_entropy", "target": 1.0}])
    state = algorithm.init_state()
    lp, mask = f64([[-1.0, -1.0]]), torch.ones(1, 2, dtype=torch.bool)

    def update(entropy: float, training: bool = True) -> float:
        out = algorithm.loss(
            lp,
            mask=mask if training else ~mask,
            advantages=f64([0.0]),
            entropies=torch.full((1, 2), entropy, dtype=torch.float64),
            state=state,
        )
        return out.loss.item()

    losses = [update(0.4) for _ in range(15)]
    want = [-min(0.001 * i, 0.01) * 0.4 for i in range(15)]
    assert losses == pytest.approx(want, abs=1e-12)
    assert state.entropy_coef == pytest.approx(0.01)
    assert update(2.0) == pytest.approx(-0.02)
    assert state.entropy_coef == pytest.approx(0.009)
    update(0.4, training=False)
    assert state.entropy_coef == pytest.approx(0.009)
    assert state.updates == 16
    restored = AlgorithmState()
    restored.load_state_dict(json.loads(json.dumps(state.state_dict())))
    assert restored == state


# states


def test_the_pass_rate_retires_a_solved_prompt() -> None:
    algorithm = preset("scale_rl")
    state = algorithm.init_state()
    ids, names = [0, 0, 1, 1], ["easy", "hard"]
    rewards = [1.0, 1.0, 1.0, 0.0]
    first = filter_rows(algorithm, rewards, ids, prompt_ids=names, state=state)
    assert first.counts["filter/solved_rows"] == 0.0
    assert (state.passes["easy"].rate, state.passes["hard"].rate) == (1.0, 0.5)
    assert not algorithm.wants("easy", state)
    assert algorithm.wants("hard", state)
    assert algorithm.wants("new", state)
    assert preset("grpo").wants("easy", state)
    second = filter_rows(algorithm, [1.0, 0.0, 1.0, 0.0], ids, prompt_ids=names, state=state)
    assert second.mask.any(1).tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match="pass_rate needs prompt_ids"):
        filter_rows(algorithm, rewards, ids, state=state)


def test_state_is_exact_on_resume_and_keyed_by_prompt() -> None:
    """Two visits, a round trip through JSON, a third visit: as if never interrupted."""
    dcpo = preset("dcpo")
    visits = [f64([[1.0, 0.0, 0.3], [0.0, 0.0, 0.1]]), f64([[0.0, 0.0, 0.0], [1.0, 0.5, 0.0]])]
    names = ["a", "b"]
    state = dcpo.init_state()
    for rewards in visits:
        dcpo.advantages(rewards, prompt_ids=names, state=state)
    copy = dcpo.init_state()
    copy.load_state_dict(json.loads(json.dumps(state.state_dict())))
    assert copy == state
    last = f64([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    swapped = dcpo.advantages(last.flip(0), prompt_ids=["b", "a"], state=copy)
    straight = dcpo.advantages(last, prompt_ids=names, state=state)
    assert torch.equal(swapped.flip(0), straight)
    assert straight[0, 0] > 0
    by_row = dcpo.init_state()
    one = dcpo.advantages(last.flatten(), [0, 0, 0, 1, 1, 1], prompt_ids=["a"] * 3 + ["b"] * 3,
                          state=by_row)  # fmt: skip
    assert torch.equal(one.view(2, 3), dcpo.advantages(last))
    with pytest.raises(ValueError, match="smoothed needs prompt_ids"):
        dcpo.advantages(last, state=state)


def test_reference_schedule() -> None:
    kl = Kl("loss", "k3", 0.04, refresh_every=4, refresh_mix=0.6)
    assert [kl.mix_at(version) for version in range(9)] == [0, 0, 0, 0, 0.6, 0, 0, 0, 0.6]
    assert Kl("loss", "k3", 0.04).mix_at(4) == 0.0


# critic


def test_gae_skips_environment_tokens_and_bootstraps_when_asked() -> None:
    rewards, values = f64([[0.0, 9.0, 1.0]]), f64([[0.5, math.nan, 0.2]])
    mask = torch.tensor([[True, False, True]])
    out = generalised_advantages(rewards, values, mask, gamma=1.0, lam=0.5)
    last = 1.0 - 0.2
    assert out.advantages.tolist() == [[pytest.approx(0.2 - 0.5 + 0.5 * last), 0.0, last]]
    short = generalised_advantages(rewards, values, mask, gamma=1.0, lam=0.5, bootstrap=f64([0.4]))
    assert short.advantages[0, 2].item() == pytest.approx(last + 0.4)


def test_value_loss_with_and_without_its_clip() -> None:
    values, old, returns = f64([[1.0]]), f64([[0.0]]), f64([[2.0]])
    assert value_loss(values, old, returns, None).item() == 0.5
    assert value_loss(values, old, returns, 0.2).item() == pytest.approx(0.5 * 1.8**2)


@claim(
    "finite differences (gradcheck) of the loss with this surrogate, 1e-6",
    [name for name, made in EVERY.items() if made.surrogate.kind in DIFFERENTIABLE],
)
@pytest.mark.parametrize("surrogate", sorted(DIFFERENTIABLE))
@pytest.mark.parametrize(
    "ratio", ["token", "sequence_geometric", "sequence_product", "sequence_arithmetic"]
)
def test_gradcheck_of_every_part_without_a_stop_gradient(surrogate: str, ratio: str) -> None:
    algorithm = preset(
        "grpo", surrogate=surrogate, ratio=ratio, kl={"estimator": "k3_ratio", "coef": 0.1},
        extras=[{"kind": "entropy_bonus", "coef": 0.1}],
    )  # fmt: skip
    advantages, rows = f64([0.8, -0.9, 1.1]), [0, 1, 6]
    old = (NEW + (OLD - NEW).clamp(-0.1, 0.1) + 0.003)[rows]

    def loss(logprobs: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
        return algorithm.loss(
            logprobs,
            mask=MASK[rows],
            advantages=advantages,
            old_logprobs=old,
            ref_logprobs=REF[rows],
            entropies=entropies,
        ).loss

    new = NEW[rows]
    inputs = (new.clone().requires_grad_(True), torch.rand_like(new).requires_grad_(True))
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-6, atol=1e-6, rtol=0)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3_ratio"])
def test_gradcheck_of_the_kl_estimators(estimator: str) -> None:
    algorithm = preset("grpo", kl={"estimator": estimator, "coef": 1.0})

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        return algorithm.loss(
            logprobs, mask=MASK, advantages=0 * ONES, old_logprobs=OLD, ref_logprobs=REF
        ).loss

    assert torch.autograd.gradcheck(loss, (NEW.clone().requires_grad_(True),), atol=1e-7)


def test_the_critics_loss_adds_up_over_micro_batches() -> None:
    ppo = preset("ppo", kl_coef=0)
    plan = ppo.plan_update(MASK)
    values = torch.where(MASK, NEW, math.nan)
    whole = values.clone().requires_grad_(True)
    inputs = {"mask": MASK, "old_values": OLD, "returns": REF}
    out = ppo.value_terms(whole, plan=plan, **inputs)
    (want,) = torch.autograd.grad(out.loss, whole)
    assert want.isfinite().all()
    split = values.clone().requires_grad_(True)
    total = 0.0
    for part in (slice(0, 3), slice(3, 8)):
        terms = ppo.value_terms(
            split[part], plan=plan.rows(part), **{k: v[part] for k, v in inputs.items()}
        )
        terms.loss.backward()
        total += terms.loss.item()
    assert total == pytest.approx(out.loss.item(), abs=1e-12)
    torch.testing.assert_close(split.grad, want, atol=1e-12, rtol=0)
    by_hand = value_loss(NEW, OLD, REF, 0.2)[MASK].mean().item() * 0.1
    assert out.loss.item() == pytest.approx(by_hand, abs=1e-12)
    with pytest.raises(ValueError, match="no value_loss"):
        preset("grpo").value_terms(values, plan=plan, **inputs)


def test_a_micro_batch_without_rows_adds_nothing() -> None:
    dapo = preset("dapo")
    plan = dapo.plan_update(MASK)
    lp = NEW.clone().requires_grad_(True)
    terms = dapo.loss_terms(lp[:0], plan=plan.rows(slice(0, 0)), mask=MASK[:0], advantages=ONES[:0])
    terms.loss.backward()
    assert terms.loss.item() == 0.0
    assert not lp.grad.any()  # type: ignore[union-attr]


def test_a_plan_moves_with_its_rows() -> None:
    plan = preset("dapo").plan_update(MASK, group_ids=[0] * 8)
    assert plan.to(torch.device("cpu")) is plan
    away = plan.to(torch.device("meta"))
    assert away.weight.device.type == "meta"
    assert (away.num_rows, away.num_tokens) == (8, 23)
    assert away.group_index is not None
    assert away.group_index.device.type == "meta"
    picked = plan.rows(torch.tensor([3, 1])).columns(2)
    assert torch.equal(picked.weight, plan.weight[[3, 1], :2])


@pytest.mark.parametrize("baseline", ["none", "batch_mean", "leave_one_out"])
def test_a_scale_zeroes_flat_groups_whatever_the_baseline(baseline: str) -> None:
    algorithm = preset("grpo", baseline=baseline)
    out = algorithm.advantages(f64([[0.1 + 0.2, 0.3, 0.3], [1.0, 0.0, 0.5]]))
    assert not out[0].any()
    assert out[1].abs().max() > 1
