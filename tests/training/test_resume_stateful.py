"""Parts that remember resume exactly: cumulative statistics, an adaptive coefficient, a reference
that follows the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from run_helpers import StopAfter

BASE: dict[str, Any] = {
    "seed": 3,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "sampling": {"group_size": 3, "max_tokens": 3},
    # 44 prompts, 22 a step: every second step sees a prompt again.
    "training": {"prompts_per_step": 22, "steps": 4, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 4},
    "checkpoints": {"every": 2, "keep": 3},
}
STATEFUL: dict[str, dict[str, Any]] = {
    "cumulative statistics": {"preset": "dcpo"},
    "adaptive entropy": {
        "preset": "dapo",
        "filters": [],
        "extras": [{"kind": "adaptive_entropy", "target": 3.0, "step": 0.001, "high": 0.01}],
    },
    "moving reference": {
        "preset": "grpo",
        "kl": {
            "placement": "loss",
            "estimator": "k3",
            "coef": 0.5,
            "refresh_every": 2,
            "refresh_mix": 0.5,
        },
    },
}


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / "step_000004" / "model.safetensors")


@pytest.mark.parametrize("name", list(STATEFUL))
def test_what_a_part_remembers_is_in_the_checkpoint(name: str, tmp_path: Path) -> None:
    recipe = {**BASE, "algorithm": STATEFUL[name]}
    gw.train(recipe, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=tmp_path / "broken", callbacks=[StopAfter(3)])
    gw.train(recipe, output=tmp_path / "broken", resume=True)
    whole, broken = last_weights(tmp_path / "whole"), last_weights(tmp_path / "broken")
    assert all(torch.equal(tensor, broken[key]) for key, tensor in whole.items())
    # The memory matters: forgetting it changes the run.
    plain = {**recipe, "algorithm": {**STATEFUL[name]}}
    for key in ("extras", "kl"):
        plain["algorithm"].pop(key, None)
    if name == "cumulative statistics":
        plain["algorithm"] = {"preset": "dcpo", "baseline": "group_mean", "scale": "group_std"}
    gw.train(plain, output=tmp_path / "plain")
    other = last_weights(tmp_path / "plain")
    assert not all(torch.equal(tensor, other[key]) for key, tensor in whole.items())
