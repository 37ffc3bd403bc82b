"""A learner for any preset, and what two updates on the same groups make of its weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from groupwise.algorithms import Algorithm
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.distributed import ALONE, Ranks, shard, whole
from groupwise.learner import CriticLearner, Learner, TrainingSettings
from groupwise.policies import Teaching, make_critic
from groupwise.types import Group, Rows
from helpers import make_policy

RATE = 0.05


def make_learner(
    algorithm: Algorithm, budget: int, shared: bool = False, ranks: Ranks = ALONE
) -> Learner:
    """Two passes, so that ratios leave 1; plain SGD, so that weights tell the gradients."""
    settings = TrainingSettings(
        learning_rate=RATE,
        critic_learning_rate=RATE,
        optimizer="sgd",
        max_grad_norm=None,
        passes=2,
        micro_batch_tokens=budget,
    )
    policy = make_policy(dtype=torch.float64)
    needs = algorithm.needs
    critic = None
    if needs.values:
        critic = CriticLearner(make_critic(policy, shared=shared), policy, algorithm, settings)
        with torch.no_grad():  # a critic that says something
            critic.critic.head.linear.weight.copy_(torch.linspace(-1, 1, 32).unsqueeze(0))
    reference = make_policy(seed=1, dtype=torch.float64) if needs.ref_logprobs else None
    if ranks.size > 1:
        for each in filter(None, (policy, reference)):
            shard(each, ranks)
    return Learner(
        policy,
        algorithm,
        settings,
        temperature=1.0,
        divide=partial(split_rows, whole_groups=needs.whole_groups),
        reference=reference,
        critic=critic,
        ranks=ranks,
    )


def padded(rows: Rows, extra: int) -> Rows:
    """The same rows with more columns; what stands in them is junk."""

    def more(tensor: torch.Tensor | None, junk: float) -> torch.Tensor | None:
        if tensor is None:
            return None
        shape = (tensor.shape[0], extra, *tensor.shape[2:])
        return torch.cat([tensor, torch.full(shape, junk, dtype=tensor.dtype)], dim=1)

    changed: dict[str, Any] = {
        "mask": more(rows.mask, 0),
        "sampler_logprobs": more(rows.sampler_logprobs, 7.0),
        "entropies": more(rows.entropies, 9.0),
        "top_ids": more(rows.top_ids, 1),
        "sampler_top_logprobs": more(rows.sampler_top_logprobs, 5.0),
    }
    return replace(rows, **changed)


def moved(learner: Learner, groups: list[Group], extra: int = 0) -> torch.Tensor:
    """Every trained weight after both updates."""
    rows = padded(align(groups), extra)
    passes = [
        split_groups(rows.group_ids, 1, seed=0, step=0, pass_index=number) for number in range(2)
    ]
    teaching = None
    if learner.algorithm.needs.teacher != "none":
        teacher = make_policy(seed=2, dtype=torch.float64)
        teaching = Teaching([teacher], [0] * rows.num_rows, rows.prompt_ids)
    evidence = learner.evidence(rows, passes[0], teaching)
    state = learner.algorithm.init_state()
    batch = make_batch(
        groups,
        rows,
        learner.algorithm,
        max_tokens=8,
        state=state,
        old_logprobs=evidence.old_logprobs,
        ref_logprobs=evidence.ref_logprobs,
        values=evidence.values,
        teacher_logprobs=evidence.teacher_logprobs,
    )
    metrics = learner.learn(batch, passes, step=0, state=state, teaching=teaching)
    assert metrics["updates"] in (1, 2)  # a tight clip may silence all of the second
    weights = list(learner.policy.model.parameters())
    if learner.critic is not None:
        weights += list(learner.critic.critic.parameters())
    return torch.cat([whole(weight.detach()).flatten() for weight in weights])
