"""A preset by name with parts replaced, and an algorithm from a recipe's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.building import KEYS, name_of, override
from groupwise.algorithms.catalogue import PRESETS
from groupwise.errors import RecipeError
from groupwise.suggestions import unknown

MOVED = (
    "online_pair_logistic",
    "symmetric_tv_mask",
    "batch_norm_clip_higher",
    "ref_surprise_weight",
)
"""Forms that no paper proposes, once presets."""


def preset(preset: str, /, **overrides: Any) -> Algorithm:
    """The algorithm of that name, with slots replaced; `name` gives the result another name.

    An override is a part, a plain function, a kind by name, or a table as in a recipe; `kl_coef` is
    a short form. Raises RecipeError (a ValueError) naming the field, with the nearest name.

    >>> preset("dapo", kl_coef=0.01).kl.coef
    0.01
    >>> preset("grpo", name="mine").name
    'mine'
    """
    if preset in MOVED:
        raise RecipeError(
            f"algorithm.preset = {preset!r} is a form that no paper proposes; it is in "
            "experiments/misread_forms.py now"
        )
    if preset not in PRESETS:
        raise RecipeError(unknown(f"algorithm.preset = {preset!r}", str(preset), PRESETS))
    return override(PRESETS[preset].algorithm, **overrides)


def algorithm_from_table(table: Any) -> Algorithm:
    """A recipe's [algorithm] table: `preset`, or `name` for a composition of its own, and slots.

    Raises RecipeError naming the field, the value and a legal one.
    """
    if not isinstance(table, Mapping):
        raise RecipeError(
            f'algorithm = {table!r}: give a table, for example {{preset = "grpo"}} (or one field '
            'of it: algorithm.preset = "grpo")'
        )
    changes = {str(key): value for key, value in table.items()}
    name = changes.pop("preset", None)
    if name is not None:
        if not isinstance(name, str):
            raise RecipeError(
                f"algorithm.preset = {name!r}: give a name, one of {', '.join(PRESETS)}"
            )
        return preset(name, **changes)
    if "name" not in changes:
        raise RecipeError(
            f"algorithm: give preset (one of {', '.join(PRESETS)}), or name and your own parts; "
            f"keys are {', '.join(KEYS)}"
        )
    return override(Algorithm(name_of(changes["name"])), **changes)
