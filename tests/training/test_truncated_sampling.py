"""Whole runs on a distribution that is cut: what was kept is scored again, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import groupwise as gw

RECIPE: dict[str, Any] = {
    "seed": 3,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo", "kl": {"estimator": "k3", "coef": 0.01}},
    "training": {"prompts_per_step": 12, "steps": 2, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1},
}


@pytest.mark.parametrize("sampler", ["local", "transformers"])
@pytest.mark.parametrize("cut", [{"top_p": 0.75}, {"top_k": 3}, {"min_p": 0.2}])
def test_sampler_and_learner_agree_on_a_cut_distribution(
    tmp_path: Path, sampler: str, cut: dict[str, float]
) -> None:
    """Fault 5: the kept mass never shows up as drift, nor as distance from the reference."""
    sampling = {"group_size": 4, "max_tokens": 4, "sampler": sampler, **cut}
    run = gw.train({**RECIPE, "sampling": sampling}, output=tmp_path / "run")
    lines = run.metrics().to_pylist()
    assert max(line["sampler_gap/max"] for line in lines) <= 2e-5
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-6)  # the reference is cut alike
    assert all(line["updates"] == 1 for line in lines)


def test_a_resumed_run_on_a_cut_distribution_is_the_same(tmp_path: Path) -> None:
    sampling = {"group_size": 4, "max_tokens": 4, "top_p": 0.8}
    recipe = {**RECIPE, "sampling": sampling, "checkpoints": {"every": 1, "keep": 3}}
    whole = gw.train(recipe, output=tmp_path / "whole")
    gw.train(recipe, {"training.steps": 1}, output=tmp_path / "half")
    wanted = whole.rollouts().to_pandas()
    found = gw.open_run(tmp_path / "half").rollouts().to_pandas()
    assert found["text"].tolist() == wanted[wanted["step"] == 0]["text"].tolist()
