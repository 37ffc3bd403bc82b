"""Every recipe that ships runs at a tiny size, to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

import groupwise as gw

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
# Long cold starts; recipes that another test trains to their end; and whatever has a real model.
HEAVY = (
    "agent", "reward_model_rl", "r1", "tool_calculator", "code_rl", "repository", "target_token",
    "math_shepherd", "constitution", "rubric", "distil_r1", "on_policy",
)  # fmt: skip


def is_heavy(name: str) -> bool:
    return name.startswith(HEAVY) or "smollm2" in name


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=[pytest.mark.slow] if is_heavy(p.stem) else [], id=p.stem)
        for p in RECIPES
    ],
)
def test_small_finishes(path: Path, tmp_path: Path) -> None:
    run = gw.train(path, output=tmp_path / "run", small=True)
    assert run.summary["status"] == "finished"
    if "stages" in run.summary:  # a pipeline
        assert all(stage["status"] == "finished" for stage in run.summary["stages"])
        return
    steps = run.metrics().to_pandas()
    assert len(steps) == run.summary["steps"] > 0
    assert steps["reward"].notna().all()
    assert (steps["updates"] + steps["updates/skipped"] > 0).all()
