"""Refuses combinations of parts that cannot work and what a recipe makes impossible, by name.

What a part cannot be combined with is the part's own (`Part.refusal`, `Part.warning`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


def refuse(algorithm: Algorithm) -> None:
    """Raise RecipeError with the field, the reason and a legal value."""
    problem = _unique(algorithm)
    for each in algorithm.parts:
        problem = problem or each.refusal(algorithm)
    if problem is not None:
        raise RecipeError(f"algorithm {algorithm.name!r}: {problem}")


def _unique(algorithm: Algorithm) -> str | None:
    alone = [each for each in (*algorithm.filters, *algorithm.extras) if each.unique]
    for each in alone:
        if sum(other.kind == each.kind for other in alone) > 1:
            return f"{each.slot}: one {each.kind} at most"
    return None


def warnings(algorithm: Algorithm) -> list[str]:
    """What is legal and looks like a mistake, with the reason."""
    out = [found for each in algorithm.parts if (found := each.warning(algorithm)) is not None]
    rows = [each.kind for each in algorithm.filters if each.name]
    if len(set(rows)) < len(rows):
        out.append("filters: the same filter twice")
    return out


def refuse_ddof(algorithm: Algorithm, group_size: int) -> None:
    """RecipeError where a standard deviation over a group has no degree of freedom left."""
    for each in algorithm.parts:
        field, ddof = each.group_ddof(algorithm.scale.ddof) or ("", 0)
        if field and ddof >= group_size:
            raise RecipeError(
                f"algorithm.{field}.ddof = {ddof}: a group of {group_size} has no standard "
                "deviation with it (the sum of squares is divided by the group size - ddof); give "
                f"less than {group_size}, for example 0, or sampling.group_size = {ddof + 1} or "
                "more"
            )


def check_context(
    algorithm: Algorithm,
    *,
    group_size: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    reference: bool | None = None,
    step_rewards: bool | None = None,
    num_components: int | None = None,
) -> None:
    """Refuse what the rest of a recipe makes impossible. Raises RecipeError naming the field."""
    needs, name = algorithm.needs, algorithm.name
    if group_size is not None and group_size < needs.min_group_size:
        raise RecipeError(
            f"sampling.group_size = {group_size}: algorithm {name!r} compares the completions of a "
            f"prompt with each other; give {needs.min_group_size} or more (8 is usual)"
        )
    if group_size is not None:
        refuse_ddof(algorithm, group_size)
    if group_size is not None and needs.group_size not in (None, group_size):
        raise RecipeError(
            f"sampling.group_size = {group_size}: algorithm {name!r} takes exactly "
            f"{needs.group_size}"
        )
    if temperature <= 0:
        raise RecipeError(f"sampling.temperature = {temperature}; training needs more than 0")
    if (top_p < 1 or top_k > 0 or min_p > 0) and needs.top_k:
        raise RecipeError(
            f"sampling.top_p = {top_p}, top_k = {top_k}, min_p = {min_p}: algorithm {name!r} "
            f"compares the {needs.top_k} most likely tokens of two policies, and a distribution "
            "that is cut may not hold them; sample with top_p = 1, top_k = 0, min_p = 0"
        )
    if (top_p < 1 or top_k > 0 or min_p > 0) and needs.teacher != "none":
        raise RecipeError(
            f"sampling.top_p = {top_p}, top_k = {top_k}, min_p = {min_p}: algorithm {name!r} "
            "compares the student's distribution with the teacher's whole one, not with one that "
            "is cut; sample with top_p = 1, top_k = 0, min_p = 0"
        )
    if needs.ref_logprobs and reference is False:
        raise RecipeError(
            f"algorithm {name!r} has a term against a reference, and there is none; set "
            "algorithm.kl_coef = 0 or give a reference"
        )
    if needs.step_rewards and step_rewards is False:
        raise RecipeError(
            f"algorithm {name!r} needs step rewards, and the environment gives one reward a "
            'completion; use preset = "grpo" or a verifier with step rewards'
        )
    if needs.values and not any(each.trains_critic for each in algorithm.extras):
        raise RecipeError(
            f"algorithm {name!r} reads a critic's values and has no loss that trains one; add "
            'extras = [{ kind = "value_loss" }]'
        )
    if needs.components and num_components == 0:
        raise RecipeError(f"algorithm {name!r} needs named reward components (two or more)")
