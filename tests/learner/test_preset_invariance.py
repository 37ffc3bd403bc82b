"""Every preset through the whole learner: micro-batches, row order and padding change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from groupwise.algorithms import PRESETS, preset
from groupwise.types import Group
from helpers import make_rich_groups
from preset_learner import RATE, make_learner, moved


def different() -> list[Any]:
    """The presets; those that ask for the same of the learner as an earlier one are slow."""
    seen: list[Any] = []
    found = [pytest.param("ppo", True, id="ppo-shared")]
    for name in PRESETS:
        a = preset(name)
        marks = (replace(a.needs, keep=None), type(a.weight), type(a.ratio), a.kl, a.extras)
        slow = [pytest.mark.slow] if marks in seen else []
        found.append(pytest.param(name, False, marks=slow, id=name))
        seen.append(marks)
    return found


@pytest.mark.parametrize(("name", "shared"), different())
def test_gradient_depends_on_nothing_but_the_update(name: str, shared: bool) -> None:
    algorithm = preset(name, **({"transform": {"k": 2}} if name == "pass_at_k" else {}))
    size = algorithm.needs.group_size or 4
    groups = make_rich_groups(2, size, top_k=algorithm.needs.top_k)
    start = make_learner(algorithm, 10_000, shared)
    before = torch.cat([p.detach().flatten() for p in start.policy.model.parameters()])
    whole = moved(start, groups)
    assert float((whole[: len(before)] - before).norm()) > 1e-4 * RATE
    shuffled = [
        Group(group.prompt, group.rollouts[::-1], group.greedy) for group in reversed(groups)
    ]
    again = moved(make_learner(algorithm, 1, shared), shuffled, extra=3)  # every row by itself
    assert float((again - whole).abs().max()) < 1e-9
