"""What fields of different tables of a recipe must agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.algorithms import Algorithm
from groupwise.algorithms.corrections import NoCorrection
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.recipe import Recipe


def check(recipe: Recipe) -> None:
    """Checks combinations of fields from different tables. Raises RecipeError."""
    sampling, training, algorithm = recipe.sampling, recipe.training, recipe.algorithm
    if training.minibatches > training.prompts_per_step:
        raise RecipeError(
            f"training.minibatches = {training.minibatches}: a minibatch is whole groups and a "
            f"step has {training.prompts_per_step}; give at most {training.prompts_per_step}"
        )
    taught = algorithm.needs.teacher != "none"
    if taught and recipe.teacher is None:
        raise RecipeError(
            f"algorithm {algorithm.name!r} learns from a teacher, and the recipe has no [teacher] "
            'table; for example: name = "path/to/a/model"'
        )
    if recipe.teacher is not None and not taught:
        raise RecipeError(
            f"teacher.name = {recipe.teacher.name!r}, and algorithm {algorithm.name!r} does not "
            'learn from a teacher; set algorithm.preset = "on_policy_distillation", or add '
            'extras = ["distillation"]'
        )
    algorithm.check(
        group_size=sampling.group_size,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        reference=True,
    )
    _check_selection(recipe)


def _check_selection(recipe: Recipe) -> None:
    """Refuses group sizes that the algorithm does not support, and older rollouts uncorrected."""
    selection, algorithm = recipe.selection, recipe.algorithm
    group_size = recipe.sampling.group_size
    sizes, train_on = selection.sizes, selection.train_on
    if sizes is not None:
        if algorithm.needs.group_size is not None:
            raise RecipeError(
                f"selection.sizes: algorithm {algorithm.name!r} takes exactly "
                f"{algorithm.needs.group_size} completions a prompt; leave the table out"
            )
        if not sizes.low <= group_size <= sizes.high:
            raise RecipeError(
                f"sampling.group_size = {group_size} is outside selection.sizes.low = {sizes.low} "
                f"and high = {sizes.high}; it is the size that the budget is counted with"
            )
        algorithm.check(group_size=sizes.low)
    if train_on is not None:
        if train_on >= group_size:
            raise RecipeError(
                f"selection.train_on = {train_on}: a group has {group_size} completions; give "
                f"fewer than that, or a larger sampling.group_size"
            )
        algorithm.check(group_size=train_on)
    length, most = selection.length, recipe.sampling.max_tokens
    if length is not None and length.start > most:
        raise RecipeError(
            f"selection.length.start = {length.start} is above sampling.max_tokens = {most}, which "
            f"is the largest limit; give at most {most}"
        )
    corrected = is_corrected(algorithm)
    quantise = recipe.sampling.quantise
    if quantise is not None and not corrected:
        raise RecipeError(
            f"sampling.quantise = {quantise!r}: algorithm {algorithm.name!r} does not correct for "
            "a sampler that is not quite the learner; set "
            'algorithm.correction = "truncate", or leave quantise out'
        )
    ahead = recipe.compute.max_staleness
    if (ahead or selection.replay is not None) and not corrected:
        raise RecipeError(
            f"{f'compute.max_staleness = {ahead}' if ahead else 'selection.replay'}: algorithm "
            f"{algorithm.name!r} does not correct for rollouts of an older policy; set "
            'algorithm.correction = "truncate" (or a preset anchored to the sampler, as scale_rl)'
        )


def is_corrected(algorithm: Algorithm) -> bool:
    """Whether the loss weighs the learner against the sampler."""
    return algorithm.anchor == "sampler" or not isinstance(algorithm.correction, NoCorrection)
