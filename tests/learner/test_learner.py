"""The learner: division changes nothing, old log-probabilities stay, faults stop it in time."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.errors import NonFiniteError
from groupwise.learner import Learner, TrainingSettings, learning_rate_at
from groupwise.policies.heads import head_of
from groupwise.types import Batch
from helpers import make_groups, make_policy

CORE_PRESETS = ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo")


def make_learner(
    algorithm: Any, dtype: torch.dtype = torch.float64, policy: Any = None, **settings: Any
) -> Learner:
    policy = policy or make_policy(dtype=dtype)
    values = {"learning_rate": 1e-2, "optimizer": "sgd", "max_grad_norm": None, **settings}
    training = TrainingSettings(**values)
    return Learner(
        policy,
        algorithm,
        training,
        temperature=1.0,
        divide=split_rows,
        reference=make_policy(seed=1, dtype=dtype) if algorithm.needs.ref_logprobs else None,
    )


def passes_of(learner: Learner, batch_ids: torch.Tensor) -> list[list[torch.Tensor]]:
    return [
        split_groups(batch_ids, learner.settings.minibatches, seed=0, step=0, pass_index=number)
        for number in range(learner.settings.passes)
    ]


def batch_of(learner: Learner, groups: Any) -> tuple[Batch, list[list[torch.Tensor]]]:
    rows = align(groups)
    passes = passes_of(learner, rows.group_ids)
    evidence = learner.evidence(rows, passes[0])
    batch = make_batch(
        groups,
        rows,
        learner.algorithm,
        max_tokens=8,
        old_logprobs=evidence.old_logprobs,
        ref_logprobs=evidence.ref_logprobs,
    )
    return batch, passes


def gradient(learner: Learner, groups: Any) -> torch.Tensor:
    """The update's gradient, read off one SGD step."""
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    batch, passes = batch_of(learner, groups)
    learner.learn(batch, passes, step=0)
    rate = learner.settings.learning_rate
    moved = zip(before, learner.policy.model.parameters(), strict=True)
    return torch.cat([((old - new.detach()) / rate).flatten() for old, new in moved])


@pytest.mark.parametrize("name", ["grpo", "dapo"])  # every preset: test_preset_invariance.py
def test_gradient_does_not_depend_on_micro_batches_or_row_order(name: str) -> None:
    """Fault 1, through the whole learner: any number of micro-batches, groups and rows shuffled."""
    groups = make_groups()
    whole = gradient(make_learner(preset(name), micro_batch_tokens=10_000), groups)
    assert float(whole.norm()) > 1e-3
    for budget in (96, 48, 24, 1):
        parts = gradient(make_learner(preset(name), micro_batch_tokens=budget), groups)
        assert float((parts - whole).abs().max()) < 1e-9
    shuffled = [type(group)(group.prompt, group.rollouts[::-1]) for group in reversed(groups)]
    assert float((gradient(make_learner(preset(name)), shuffled) - whole).abs().max()) < 1e-9


@pytest.mark.parametrize("name", CORE_PRESETS)
def test_gradient_in_float32_agrees_to_1e5_of_its_norm(name: str) -> None:
    groups = make_groups()
    whole = gradient(make_learner(preset(name), torch.float32), groups)
    parts = gradient(make_learner(preset(name), torch.float32, micro_batch_tokens=24), groups)
    # Read back through weights of size one and a rate of 1e-2: their rounding is 1e-5 here.
    assert float((parts - whole).norm()) < 1e-5 * float(whole.norm()) + 3e-5 * math.sqrt(len(whole))


def test_two_passes_keep_old_logprobs_and_move_the_ratio() -> None:
    """Fault 26: pass 1 has ratio exactly 1; pass 2 does not; old ones are bit-identical."""
    learner = make_learner(preset("grpo", kl_coef=0.0), torch.float32, passes=2, learning_rate=0.5)
    batch, passes = batch_of(learner, make_groups())
    assert batch.old_logprobs is not None
    frozen = batch.old_logprobs.clone()
    first = learner.learn(batch, passes[:1], step=0)
    assert (first["ratio/min"], first["ratio/max"]) == (1.0, 1.0)
    assert (first["clip/low"], first["clip/high"]) == (0.0, 0.0)
    second = learner.learn(batch, passes[1:], step=0)
    assert second["ratio/max"] is not None
    assert second["ratio/max"] > 1.01
    assert torch.equal(batch.old_logprobs, frozen)
    assert learner.update == 2


def test_a_single_update_needs_no_old_logprobs_and_has_ratio_one() -> None:
    learner = make_learner(preset("dapo", filters=()), torch.float32)
    batch, passes = batch_of(learner, make_groups())
    assert batch.old_logprobs is None
    metrics = learner.learn(batch, passes, step=0)
    assert (metrics["ratio/mean"], metrics["ratio/min"], metrics["ratio/max"]) == (1.0, 1.0, 1.0)
    assert metrics["updates"] == 1


def test_each_completion_is_used_once_a_pass() -> None:
    """Fault 26: two passes of two updates; every row in each pass exactly once."""
    learner = make_learner(preset("dr_grpo"), passes=2, minibatches=2)
    batch, passes = batch_of(learner, make_groups())
    for updates in passes:
        assert sorted(torch.cat(updates).tolist()) == list(range(batch.rows.num_rows))
    metrics = learner.learn(batch, passes, step=0)
    assert (metrics["updates"], metrics["updates/skipped"], learner.update) == (4, 0, 4)


def test_loss_is_zero_and_the_gradient_is_not() -> None:
    """Fault 7: equal lengths, rewards 1 and 0, on policy: value 0, gradient norm above 0."""
    groups = [make_groups(1, 2, seed=3, longest=1)[0]]
    learner = make_learner(preset("grpo", kl_coef=0.0))
    batch, passes = batch_of(learner, groups)
    metrics = learner.learn(batch, passes, step=0)
    assert metrics["loss"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["grad_norm"] is not None
    assert metrics["grad_norm"] > 1e-3


def test_nothing_to_learn_is_skipped_and_counted() -> None:
    """Equal rewards without KL: gradient exactly 0, no update, no schedule, no momentum."""
    groups = make_groups(2, 2)
    same = [
        type(g)(
            g.prompt,
            tuple(
                type(r)(r.prompt, r.turns, g.rollouts[0].score, r.group_index, 0, 0)
                for r in g.rollouts
            ),
        )
        for g in groups
    ]
    learner = make_learner(preset("grpo", kl_coef=0.0), torch.float32, optimizer="adamw")
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    batch, passes = batch_of(learner, same)
    metrics = learner.learn(batch, passes, step=0)
    assert (metrics["updates"], metrics["updates/skipped"], learner.update) == (0, 1, 0)
    for old, new in zip(before, learner.policy.model.parameters(), strict=True):
        assert torch.equal(old, new)


def test_kl_stop_drops_the_rest_of_the_step() -> None:
    learner = make_learner(
        preset("grpo", kl_coef=0.0), torch.float32, passes=4, kl_stop=1e-6, learning_rate=0.5
    )
    batch, passes = batch_of(learner, make_groups())
    metrics = learner.learn(batch, passes, step=0)
    assert (metrics["updates"], metrics["updates/skipped"]) == (1, 3)


def test_a_nan_loss_stops_before_the_update_and_names_the_tensor() -> None:
    learner = make_learner(preset("grpo", kl_coef=0.0), torch.float32)
    batch, passes = batch_of(learner, make_groups())
    head_of(learner.policy.model)
    with torch.no_grad():
        learner.policy.model.lm_head.weight[0, 0] = float("nan")
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    with pytest.raises(NonFiniteError, match=r"step 7, update 0: .*log-probabilities"):
        learner.learn(batch, passes, step=7)
    for old, new in zip(before, learner.policy.model.parameters(), strict=True):
        assert torch.equal(old.nan_to_num(), new.nan_to_num())


def schedule(kind: str, updates: int, warmup: int = 0, **more: Any) -> list[float]:
    """The rates of a run of that many updates, peak 1."""
    settings = TrainingSettings(
        learning_rate=1.0, steps=updates, schedule=kind, warmup_updates=warmup, **more
    )  # type: ignore[arg-type]
    return [learning_rate_at(update, settings) for update in range(updates)]


def test_learning_rate_counts_updates_alone() -> None:
    """Fault 47: linear decay over 9 updates after 2 of warm-up, by hand."""
    assert schedule("linear", 11, 2) == pytest.approx(
        [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]
    )
    assert schedule("cosine", 5) == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0])
    assert schedule("constant", 3) == [1, 1, 1]
    two = TrainingSettings(learning_rate=2.0, steps=2, passes=2, minibatches=3, schedule="linear")
    assert learning_rate_at(11, two) == 0.0
    assert learning_rate_at(0, two, peak=3.0) == 3.0


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize(("updates", "warmup"), [(2, 0), (4, 0), (4, 2), (7, 3), (100, 10)])
def test_a_decay_is_zero_at_the_last_update(kind: str, updates: int, warmup: int) -> None:
    rates = schedule(kind, updates, warmup)
    assert rates[-1] == pytest.approx(0.0, abs=1e-15)
    assert rates[warmup] == 1.0
    assert all(later <= earlier for earlier, later in pairwise(rates[warmup:]))


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_one_update_after_warmup_has_the_peak(kind: str) -> None:
    assert schedule(kind, 1) == [1.0]
    assert schedule(kind, 3, 2) == [0.5, 1.0, 1.0]


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant"])
def test_a_longer_schedule_keeps_every_rate_where_the_run_is_extended(kind: str) -> None:
    short = schedule(kind, 4, 1, schedule_updates=12)
    assert schedule(kind, 8, 1, schedule_updates=12)[:4] == short
    assert schedule(kind, 12, 1)[:4] == short
    with pytest.raises(ValueError, match=r"schedule_updates = 3: the run has 4 updates.* give 4"):
        schedule(kind, 4, schedule_updates=3)


def test_gradient_clipping_limits_the_step() -> None:
    groups = make_groups()
    free = gradient(make_learner(preset("grpo", kl_coef=0.0)), groups)
    clipped = gradient(make_learner(preset("grpo", kl_coef=0.0), max_grad_norm=0.01), groups)
    assert float(free.norm()) > 0.01
    assert float(clipped.norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(torch.nn.functional.cosine_similarity(free, clipped, dim=0)) > 0.999


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize(
    "field",
    ["learning_rate", "eps", "weight_decay", "max_grad_norm", "kl_stop", "critic_learning_rate"],
)
def test_a_setting_that_is_not_finite_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{field}\n  Input should be a finite number"):
        TrainingSettings.model_validate({field: value})
    with pytest.raises(ValueError, match=r"betas.1\n  Input should be a finite number"):
        TrainingSettings.model_validate({"betas": (0.9, value)})


@pytest.mark.parametrize("betas", [(1.5, 0.9), (0.9, 1.0), (-0.1, 0.9)])
def test_moment_decays_are_from_0_to_below_1(betas: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"betas.[01]\n  Input should be (less|greater) than"):
        TrainingSettings.model_validate({"betas": betas})
