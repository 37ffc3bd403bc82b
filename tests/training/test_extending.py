"""A run with a decaying rate is extended only where its schedule was made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.training.output import same_run

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic"},
    "algorithm": {"preset": "grpo"},
    "training": {"steps": 10, "schedule": "cosine", "minibatches": 2},
}


def extend(folder: Path, steps: int, **training: Any) -> None:
    changes = {f"training.{key}": value for key, value in training.items()}
    (folder / "recipe.toml").write_text(load_recipe(BASE, changes).to_toml())
    same_run(folder, load_recipe(BASE, {**changes, "training.steps": steps}))


def test_more_steps_would_change_every_rate(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"training.schedule_updates \(20 there, 40 now\)"):
        extend(tmp_path, 20)


def test_a_schedule_made_longer_than_the_run(tmp_path: Path) -> None:
    extend(tmp_path, 20, schedule_updates=40)
    extend(tmp_path, 10)
    extend(tmp_path, 20, schedule="constant")
