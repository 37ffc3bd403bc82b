"""Groups of different sizes: every prompt moves the policy as much as any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from test_learner import batch_of, make_learner

from groupwise.algorithms import preset
from groupwise.types import Group
from helpers import make_groups


def gradient(groups: Sequence[Group], weight: str, *, equal_prompts: bool) -> torch.Tensor:
    """One update's gradient, read off an SGD step; groups in two micro-batches or more."""
    learner = make_learner(preset("grpo", kl_coef=0.0, weight=weight), micro_batch_tokens=24)
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    batch, passes = batch_of(learner, groups)
    learner.learn(replace(batch, equal_prompts=equal_prompts), passes, step=0)
    moved = zip(before, learner.policy.model.parameters(), strict=True)
    rate = learner.settings.learning_rate
    return torch.cat([((old - new.detach()) / rate).flatten() for old, new in moved])


@pytest.mark.parametrize("weight", ["per_sequence", "per_sequence_sum", "per_prompt_token"])
def test_the_gradient_is_the_mean_of_the_prompts_own(weight: str) -> None:
    """A group of 2, one of 5 and one of 8, against each learned from alone."""
    sizes = (2, 5, 8)
    made = make_groups(num_groups=3, group_size=8)
    groups = [replace(group, rollouts=group.rollouts[:n]) for group, n in zip(made, sizes)]
    own = [gradient([group], weight, equal_prompts=False) for group in groups]
    mean = torch.stack(own).mean(0)
    found = gradient(groups, weight, equal_prompts=True)
    assert float(mean.norm()) > 1e-3
    assert float((found - mean).abs().max()) < 1e-9
    plain = gradient(groups, weight, equal_prompts=False)
    assert (float((plain - mean).abs().max()) < 1e-9) == (weight == "per_prompt_token")
