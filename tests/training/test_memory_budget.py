"""A run within a memory budget learns the same; where none fits it is refused."""

from __future__ import annotations

from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.training.preparing import fit_of, prepare
from groupwise.training.session import open_session

BASE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 8, "steps": 2, "micro_batch_tokens": 4000},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 4},
}


def test_a_budget_recomputes_and_divides_and_learns_the_same(tmp_path: Any) -> None:
    recipe = load_recipe(BASE, {"training.memory_budget": 0.0027})
    prepared = prepare(recipe)
    fit = fit_of(recipe, prepared.model, prepared.longest_prompt)
    assert fit is not None
    assert fit.gradient_checkpointing
    assert prepared.longest_prompt + 4 <= fit.micro_batch_tokens < 200
    session = open_session(prepared)
    layers: Any = session.policy.model.model.layers  # type: ignore[union-attr]
    assert all(layer.gradient_checkpointing for layer in layers)
    assert session.learner.settings.micro_batch_tokens == fit.micro_batch_tokens
    session.close()
    small = (
        gw.train(BASE, {"training.memory_budget": 0.0027}, output=tmp_path / "small")
        .metrics()
        .to_pandas()
    )
    large = gw.train(BASE, output=tmp_path / "large").metrics().to_pandas()
    assert (small["forward/micro_batches"] > large["forward/micro_batches"]).all()
    assert small["grad_norm"].tolist() == pytest.approx(large["grad_norm"].tolist(), rel=1e-4)


def test_a_budget_under_one_row_is_refused_before_weights_load() -> None:
    with pytest.raises(RecipeError, match=r"memory_budget = 0\.001 \(GB\).*smallest that works"):
        prepare(load_recipe(BASE, {"training.memory_budget": 0.001}))
