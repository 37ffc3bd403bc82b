"""The policy of a run's checkpoint, and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.checkpoints import (
    best_checkpoints,
    checkpoint_steps,
    load_checkpoint,
    newest_complete,
    restore_model,
)
from groupwise.errors import RecipeError
from groupwise.evaluation import EvaluationResult, evaluate
from groupwise.policies import Policy, base_identity, has_adapter
from groupwise.recipe import Recipe, find_recipe, load_recipe
from groupwise.samplers import sampler_of
from groupwise.training.preparing import Prepared, prepare
from groupwise.training.session import policy_of, same_base


def evaluate_source(
    source: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    step: int | None = None,
    best: bool = False,
) -> dict[str, float | int | None]:
    """The evaluation metrics of a run's checkpoint, or of a recipe's model as it is.

    `source` is a run's folder or a recipe; `overrides` as in `load_recipe` (more samples, other
    splits). Raises RecipeError.
    """
    is_run = (Path(source) / "recipe.toml").is_file()
    file = Path(source) / "recipe.toml" if is_run else find_recipe(str(source))
    prepared = prepare(load_recipe(file, overrides))
    recipe = prepared.recipe
    policy = trained_policy(source, step=step, best=best) if is_run else policy_of(recipe)
    try:
        return dict(evaluate_prepared(prepared, policy).metrics)
    finally:
        prepared.environment.close()


def evaluate_prepared(prepared: Prepared, policy: Policy) -> EvaluationResult:
    """The evaluation of a policy by a prepared recipe."""
    recipe = prepared.recipe
    sampler = sampler_of(recipe.sampling, policy)
    try:
        return evaluate(
            prepared.environment,
            sampler,
            prepared.model.template,
            settings=recipe.evaluation,
            sampling=recipe.sampling,
            seed=recipe.seed,
            version=policy.version,
            sets=prepared.evaluation_sets,
        )
    finally:
        sampler.close()


def trained_policy(run: str | Path, *, step: int | None = None, best: bool = False) -> Policy:
    """The policy of a run's checkpoint: the newest, the one after `step` steps, or the best.

    `best` goes by the recipe's `checkpoints.best`. Raises RecipeError where there is none.
    """
    folder = Path(run)
    if not (folder / "recipe.toml").is_file():
        raise RecipeError(f"{str(folder)!r} holds no run (no recipe.toml)")
    recipe = load_recipe(folder / "recipe.toml")
    path = _checkpoint_path(folder / "checkpoints", recipe, step, best)
    policy = policy_of(recipe)
    checkpoint = load_checkpoint(path)
    if has_adapter(policy.model):
        same_base(checkpoint.state, base_identity(policy.model))
    restore_model(policy.model, checkpoint)
    policy.version = checkpoint.step
    return policy


def _checkpoint_path(folder: Path, recipe: Recipe, step: int | None, best: bool) -> Path:
    steps = checkpoint_steps(folder)
    if step is not None:
        if step not in steps:
            raise RecipeError(f"step = {step}: no such checkpoint in {folder}; there are {steps}")
        return folder / f"step_{step:06d}"
    if best:
        metric, direction = recipe.checkpoints.best, recipe.checkpoints.direction
        if metric is None or direction is None:
            raise RecipeError("the run's recipe names no checkpoints.best; give a step")
        found = next(iter(best_checkpoints(folder, metric, direction)), None)
    else:
        found = newest_complete(folder)
    if found is None:
        raise RecipeError(f"{folder} holds no complete checkpoint yet")
    return found
