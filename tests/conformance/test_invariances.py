"""What may not change a gradient, for every preset: splits, order, padding, ranks, junk, labels."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import Tensor

from claims import claim
from conformance.cases import EVERY as ALL
from conformance.cases import (
    Step,
    advantages_of,
    as_step,
    filtered_mask,
    on_policy,
    plan_of,
    random_case,
    token_inputs,
    whole_loss,
)
from conformance.cases import make as build
from conformance.reference import Case
from groupwise.algorithms import Algorithm, MetricSums

EVERY = sorted(ALL)
NOT_SHIFT_INVARIANT = frozenset(
    {"max_rl", "raft", "ppo", "remax", "gtpo", "grpo_s", "reinforce_pp", "pass_at_k"}
)
"""Advantages change where a constant is added to every reward."""
SCALE_INVARIANT = frozenset(
    {
        "grpo", "grpo_process", "lite_ppo", "dapo", "dapo_per_prompt", "gspo", "gspo_token", "gdpo",
        "gspo_length_weighted", "two_grpo", "sapo", "cispo", "scale_rl", "vespo", "dcpo", "gopo",
        "reinforce_pp_baseline", "batch_norm_clip_higher", "dppo_binary_tv", "max_rl", "gmpo",
        "clip_cov", "kl_cov",
    }
)  # fmt: skip
"""Advantages are tested to stay where every reward is multiplied by one factor."""
NO_BASELINE = frozenset({"ppo", "reinforce_pp", "raft", "on_policy_distillation"})
"""These learn where rewards are all equal: they compare with no other row."""
UNDER = {
    "dapo": " (without its shaper)",
    "dapo_per_prompt": " (without its shaper)",
    "rloo": " (with kl_coef = 0)",
    "rloo_clipped": " (with kl_coef = 0)",
}
SHIFT_INVARIANT = sorted(set(EVERY) - NOT_SHIFT_INVARIANT)
ALL_EXTRAS: dict[str, Any] = {
    "filters": [
        {"kind": "top_entropy", "share": 0.6},
        {"kind": "off_policy_sequence_mask", "delta": 0.05},
    ],
    "extras": [{"kind": "entropy_bonus", "coef": 0.01}, "ref_surprise_weight"],
    "kl": {"placement": "loss", "estimator": "k3_ratio", "coef": 0.1},
    "correction": "mask",
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in EVERY} | {
    "pass_at_k": ("pass_at_k", {"transform": {"k": 2}}),
    "dapo with everything": ("dapo", ALL_EXTRAS),
    "gspo with everything": ("gspo", ALL_EXTRAS),
    "grpo, sequence correction": (
        "grpo",
        {"correction": {"kind": "truncate", "level": "sequence_product", "high": 2.0}},
    ),
    "dapo, dual clip": ("dapo", {"surrogate": {"dual": 3.0}}),
    "clip_cov, often": ("clip_cov", {"filters": [{"kind": "clip_cov", "share": 0.2, "low": -9.0}]}),
    "kl_cov, often": ("kl_cov", {"surrogate": {"share": 0.3}}),
    "reinforce_pp_baseline, rows": ("reinforce_pp_baseline", {"scale": {"over": "rows"}}),
    "grpo and a teacher": ("grpo", {"extras": [{"kind": "distillation", "discount": 0.5}]}),
    "grpo and a teacher's distribution": (
        "grpo",
        {"extras": [{"kind": "distillation", "form": "jsd"}]},
    ),
    "dcpo, total": ("dcpo", {"weight": "per_sequence_total"}),
}


def make(name: str) -> Algorithm:
    base, overrides = VARIANTS[name]
    return build(base, **overrides)


def case_of(name: str, seed: int = 3) -> Case:
    pairs = VARIANTS[name][0] in ("two_grpo", "online_pair_logistic")
    return random_case(seed, sizes=(2,) * 8 if pairs else (5, 4, 3, 4))


def pieces(algorithm: Algorithm, step: Step, num: int, seed: int) -> list[Tensor]:
    """Rows of the step in random order, cut into micro-batches (whole groups where needed)."""
    rng = random.Random(seed)
    if algorithm.needs.whole_groups:
        groups = sorted(set(step.case.groups))
        rng.shuffle(groups)
        cut = [
            [i for i, g in enumerate(step.case.groups) if g in groups[k::num]] for k in range(num)
        ]
    else:
        order = list(range(len(step.case.lp)))
        rng.shuffle(order)
        cut = [order[k::num] for k in range(num)]
    return [torch.tensor(rows) for rows in cut if rows]


def split_loss(
    algorithm: Algorithm, step: Step, num: int, dtype: torch.dtype = torch.float64
) -> tuple[float, Tensor, MetricSums]:
    """(loss, gradient, sums) added up over `num` micro-batches of shuffled rows."""
    logprobs = step.tokens["lp"].to(dtype).clone().requires_grad_(True)
    mask, advantages = filtered_mask(algorithm, step), advantages_of(algorithm, step).to(dtype)
    inputs = {name: value.to(dtype) for name, value in token_inputs(algorithm, step).items()}
    plan = plan_of(algorithm, step, mask, dtype)
    total, sums = 0.0, MetricSums()
    for rows in pieces(algorithm, step, num, seed=num):
        width = max(1, int(step.mask[rows].sum(1).max()))
        terms = algorithm.loss_terms(
            logprobs[rows][:, :width],
            plan=plan.rows(rows).columns(width),
            mask=mask[rows][:, :width],
            advantages=advantages[rows] if advantages.dim() == 1 else advantages[rows][:, :width],
            **{name: value[rows][:, :width] for name, value in inputs.items()},
        )
        terms.loss.backward()
        total += terms.loss.item()
        sums = sums + terms.sums
    assert logprobs.grad is not None
    return total, logprobs.grad, sums


def same_metrics(found: dict[str, float], want: dict[str, float], tol: float = 1e-9) -> None:
    assert found.keys() == want.keys()
    for key, value in want.items():
        assert found[key] == pytest.approx(value, rel=tol, abs=tol, nan_ok=True), key


@pytest.mark.parametrize("name", list(VARIANTS))
def test_micro_batches_row_order_and_their_padding(name: str) -> None:
    algorithm, step = make(name), as_step(case_of(name), extra=2)
    out, gradient = whole_loss(algorithm, step)
    assert gradient.abs().sum() > 0
    for num in (1, 2, 4, 8):
        loss, found, sums = split_loss(algorithm, step, num)
        assert loss == pytest.approx(out.loss.item(), abs=1e-10)
        torch.testing.assert_close(found, gradient, atol=1e-10, rtol=0)
        same_metrics(sums.finish(), out.metrics)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_micro_batches_in_float32(name: str) -> None:
    algorithm, step = make(name), as_step(case_of(name))
    out, gradient = whole_loss(algorithm, step, torch.float32)
    assert out.loss.dtype == torch.float32
    _, found, _ = split_loss(algorithm, step, 4, torch.float32)
    assert (found - gradient).norm() <= 1e-5 * gradient.norm()


@pytest.mark.parametrize("name", list(VARIANTS))
def test_padding_amount(name: str) -> None:
    algorithm, case = make(name), case_of(name)
    out, gradient = whole_loss(algorithm, as_step(case))
    wide, found = whole_loss(algorithm, as_step(case, extra=7))
    width = gradient.shape[1]
    torch.testing.assert_close(found[:, :width], gradient, atol=1e-12, rtol=0)
    assert not found[:, width:].any()
    assert wide.loss.item() == pytest.approx(out.loss.item(), abs=1e-12)
    same_metrics(wide.metrics, out.metrics, tol=1e-12)


JUNK = [1e9, math.nan, math.inf, -math.inf]


@claim(
    "0, 1e9, NaN and inf under the mask: the same loss, gradient and metrics, bit for bit", EVERY
)
@pytest.mark.parametrize("name", list(VARIANTS))
def test_junk_under_the_mask_changes_no_bit(name: str) -> None:
    """In every [B, T] input of advantages and loss: the same loss, gradient and metrics."""
    algorithm, case = make(name), case_of(name)
    step = as_step(case, extra=1)
    mask, advantages = filtered_mask(algorithm, step), advantages_of(algorithm, step)

    def result(source: Step, a: Tensor) -> tuple[float, Tensor, str]:
        logprobs = source.tokens["lp"].clone().requires_grad_(True)
        out = algorithm.loss(
            logprobs,
            mask=mask,
            advantages=a,
            group_ids=step.group_ids,
            max_tokens=step.max_tokens,
            **token_inputs(algorithm, source),
        )
        (gradient,) = torch.autograd.grad(out.loss, logprobs)
        return out.loss.item(), gradient, str(out.metrics)

    loss, gradient, metrics = result(step, advantages)
    for junk in JUNK:
        dirty = as_step(case, extra=1, fill=junk)
        assert torch.equal(advantages_of(algorithm, dirty), advantages)
        wide = advantages if advantages.dim() == 2 else advantages.unsqueeze(1)
        found = result(dirty, torch.where(mask, wide, junk))
        assert (found[0], found[2]) == (loss, metrics)
        assert torch.equal(found[1], gradient)


@claim("row order, group labels, amount of padding: the same gradient, 1e-12 in float64", EVERY)
@pytest.mark.parametrize("name", list(VARIANTS))
def test_row_order_and_group_labels(name: str) -> None:
    algorithm, case = make(name), case_of(name)
    out, gradient = whole_loss(algorithm, as_step(case))
    order = list(range(len(case.lp)))
    random.Random(7).shuffle(order)
    relabel = {g: (5 * g + 3) % 17 for g in set(case.groups)}
    fields = {
        f.name: [getattr(case, f.name)[i] for i in order]
        for f in dataclasses.fields(case)
        if isinstance(getattr(case, f.name), list)
    }
    fields["groups"] = [relabel[g] for g in fields["groups"]]
    greedy = {relabel[g]: value for g, value in case.greedy.items()}
    moved, found = whole_loss(
        algorithm, as_step(dataclasses.replace(case, **fields, greedy=greedy))
    )
    torch.testing.assert_close(found, gradient[order], atol=1e-12, rtol=0)
    assert moved.loss.item() == pytest.approx(out.loss.item(), abs=1e-12)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_all_masked_is_exactly_zero(name: str) -> None:
    algorithm, step = make(name), as_step(case_of(name))
    logprobs = step.tokens["lp"].clone().requires_grad_(True)
    out = algorithm.loss(
        logprobs,
        mask=torch.zeros_like(step.mask),
        advantages=advantages_of(algorithm, step),
        group_ids=step.group_ids,
        max_tokens=step.max_tokens,
        **token_inputs(algorithm, step),
    )
    (gradient,) = torch.autograd.grad(out.loss, logprobs)
    assert out.loss.item() == 0.0
    assert not gradient.any()
    assert out.metrics["tokens"] == 0.0


@claim("log-ratios of ±60: finite; everything masked: loss and gradient exactly 0", EVERY)
@pytest.mark.parametrize("name", list(VARIANTS))
def test_extreme_ratios_stay_finite(name: str) -> None:
    algorithm, case = make(name), case_of(name)
    for shift in (-60.0, 60.0):
        far = [[x + shift if shift < 0 else x for x in row] for row in case.lp]
        away = [[x - shift if shift > 0 else x for x in row] for row in case.old]
        step = as_step(dataclasses.replace(case, lp=far, old=away, mu=away, ref=away))
        out, gradient = whole_loss(algorithm, step)
        assert math.isfinite(out.loss.item())
        assert gradient.isfinite().all()


@claim(
    {
        name: "rewards that are all equal: every advantage "
        + ("below 1e-12" if name == "remax" else "exactly 0")
        + UNDER.get(name, "")
        for name in EVERY
        if name not in NO_BASELINE
    }
)
@pytest.mark.parametrize("name", EVERY)
def test_all_equal_rewards(name: str) -> None:
    """Equal rewards, also as sums that differ in the last bit, give no advantage."""
    base = case_of(name)
    spread = [0.1 + 0.2, 0.3, 0.3 + 1e-17, 0.30000000000000004]
    case = dataclasses.replace(
        base,
        rewards=[spread[i % 4] for i in range(len(base.rewards))],
        components=[[spread[i % 4], 1.0] for i in range(len(base.rewards))],
        step_rewards=[[spread[(i + k) % 4] for k in range(len(row))]
                      for i, row in enumerate(base.step_rewards)],
        greedy=dict.fromkeys(base.greedy, 0.3),
    )  # fmt: skip
    algorithm = build(name, kl_coef=0)
    if name in ("dapo", "dapo_per_prompt"):
        algorithm = build(name, shapers=[])
    advantages = advantages_of(algorithm, as_step(case))
    assert advantages.isfinite().all()
    if name == "remax":
        assert advantages.abs().max() < 1e-12
    elif name not in NO_BASELINE:
        assert not advantages.any()


@claim("first on-policy update: ratio exactly 1, nothing clipped; a rewarded token rises", EVERY)
@pytest.mark.parametrize("name", EVERY)
def test_first_on_policy_step(name: str) -> None:
    algorithm, case = build(name), on_policy(case_of(name))
    case = dataclasses.replace(case, ref=case.lp)
    out, _ = whole_loss(algorithm, as_step(case))
    assert out.metrics["ratio/min"] == out.metrics["ratio/max"] == 1.0
    assert out.metrics["clip/low"] == out.metrics["clip/high"] == 0.0
    if algorithm.needs.ref_logprobs:
        assert out.metrics["kl"] == 0.0
    else:
        assert math.isnan(out.metrics["kl"])


@pytest.mark.parametrize("name", EVERY)
def test_rewarded_token_becomes_likelier(name: str) -> None:
    """A sign test: one update on logits raises the token whose completion was rewarded."""
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    sampled = torch.tensor([0, 1])
    logprobs = logits.log_softmax(1).gather(1, sampled.unsqueeze(1))
    still = logprobs.detach()
    algorithm = build(name, **({"transform": {"k": 1}} if name == "pass_at_k" else {}))
    mask = torch.ones(2, 1, dtype=torch.bool)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    inputs: dict[str, Tensor] = {"old_logprobs": still}
    entropy = torch.full((2, 1), 1.0, dtype=torch.float64)
    if algorithm.needs.ref_logprobs:
        inputs["ref_logprobs"] = still
    if algorithm.needs.sampler_logprobs:
        inputs["sampler_logprobs"] = still
    if algorithm.needs.top_k:
        inputs["top_logprobs"] = inputs["sampler_top_logprobs"] = still.unsqueeze(2)
    advantages = algorithm.advantages(
        rewards,
        [0, 0],
        components=torch.stack([rewards, rewards], 1),
        step_rewards=[[1.0], [0.0]] if algorithm.needs.step_rewards else None,
        step_ends=[[0], [0]] if algorithm.needs.step_rewards else None,
        mask=mask,
        entropies=entropy,
        old_logprobs=still,
        ref_logprobs=still,
        greedy_rewards=[0.5],
        values=torch.zeros(2, 1, dtype=torch.float64),
        teacher_logprobs=still + (rewards - 0.5).unsqueeze(1),
    )
    out = algorithm.loss(
        logprobs, mask=mask, advantages=advantages, group_ids=[0, 0], max_tokens=1, **inputs
    )
    (gradient,) = torch.autograd.grad(out.loss, logits)
    after = (logits - 0.1 * gradient).softmax(1)
    assert after[0, 0] > 1 / 3 + 1e-4
    if name != "raft":
        assert after[1, 1] < 1 / 3


def changed_rewards(case: Case, f: Any) -> Case:
    return dataclasses.replace(
        case,
        rewards=[f(r) for r in case.rewards],
        components=[[f(r) for r in row] for row in case.components],
        step_rewards=[[f(r) for r in row] for row in case.step_rewards],
    )


@claim("a constant added to every reward: the same advantages, 1e-10", SHIFT_INVARIANT)
@pytest.mark.parametrize("name", SHIFT_INVARIANT)
def test_adding_a_constant_to_rewards(name: str) -> None:
    case = case_of(name)
    want = advantages_of(build(name), as_step(case))
    found = advantages_of(build(name), as_step(changed_rewards(case, lambda r: r + 2.5)))
    torch.testing.assert_close(found, want, atol=1e-10, rtol=0)


@claim(
    {
        name: "every reward times 0.001, 7 or 10000: the same advantages, 1e-9"
        + (UNDER.get(name, "") if name.startswith("dapo") else "")
        for name in SCALE_INVARIANT
    }
)
@pytest.mark.parametrize("name", sorted(SCALE_INVARIANT))
def test_reward_scale_where_scaled(name: str) -> None:
    case = case_of(name)
    algorithm = build(name, **({"shapers": []} if name.startswith("dapo") else {}))
    want = advantages_of(algorithm, as_step(case))
    for factor in (1e-3, 7.0, 1e4):
        found = advantages_of(algorithm, as_step(changed_rewards(case, lambda r, k=factor: r * k)))
        torch.testing.assert_close(found, want, atol=1e-9, rtol=0)


@claim("a monotone transform of the rewards: the same advantages, bit for bit", ["gopo"])
def test_gopo_ignores_monotone_transforms() -> None:
    case = case_of("gopo")
    want = advantages_of(build("gopo"), as_step(case))
    found = advantages_of(build("gopo"), as_step(changed_rewards(case, math.exp)))
    torch.testing.assert_close(found, want, atol=0, rtol=0)


def _rank(rank: int, port: int, queue: Any) -> None:
    """One of two ranks: its rows' gradient and sums, then a sum over ranks; nothing is averaged."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        results = {}
        for name in VARIANTS:
            algorithm, step = make(name), as_step(case_of(name))
            logprobs = step.tokens["lp"].clone().requires_grad_(True)
            mask, advantages = filtered_mask(algorithm, step), advantages_of(algorithm, step)
            rows = pieces(algorithm, step, 2, seed=1)[rank]
            terms = algorithm.loss_terms(
                logprobs[rows],
                plan=plan_of(algorithm, step, mask).rows(rows),
                mask=mask[rows],
                advantages=advantages[rows],
                **{k: v[rows] for k, v in token_inputs(algorithm, step).items()},
            )
            (gradient,) = torch.autograd.grad(terms.loss, logprobs)
            dist.all_reduce(gradient)
            gathered: list[Any] = [None, None]
            dist.all_gather_object(gathered, terms.sums)
            results[name] = (gradient.tolist(), (gathered[0] + gathered[1]).finish())
        if rank == 0:
            queue.put(results)
    finally:
        dist.destroy_process_group()


@claim(
    "1, 2, 4, 8 micro-batches, two ranks: the same gradient, 1e-10 (float32: 1e-5 of its norm)",
    EVERY,
)
def test_two_ranks_add_up() -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_rank, args=(rank, port, queue)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    results = queue.get(timeout=120)
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    for name in VARIANTS:
        out, gradient = whole_loss(make(name), as_step(case_of(name)))
        found, metrics = results[name]
        torch.testing.assert_close(
            torch.tensor(found, dtype=torch.float64), gradient, atol=1e-10, rtol=0
        )
        same_metrics(metrics, out.metrics)
