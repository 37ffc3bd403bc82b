"""A preset by name with parts replaced, and an algorithm from a recipe's table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.catalogue import PRESETS
from groupwise.algorithms.tables import KEYS, override
from groupwise.errors import RecipeError


def preset(name: str, **overrides: Any) -> Algorithm:
    """The algorithm of that name, with slots replaced.

    An override is a part, a plain function, a kind by name, or a table as in a recipe; `kl_coef` is
    a short form. Raises RecipeError (a ValueError) naming the field, with the nearest name.

    >>> preset("dapo", kl_coef=0.01).kl.coef
    0.01
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(PRESETS)}"
        raise RecipeError(f"algorithm.preset = {name!r} is not known; {hint}")
    return override(PRESETS[name].algorithm, overrides)


def algorithm_from_table(table: Any) -> Algorithm:
    """A recipe's [algorithm] table: `preset` (or `name` for a composition of one's own) and slots.

    Raises RecipeError naming the field, the value and a legal one.
    """
    if not isinstance(table, Mapping):
        raise RecipeError(
            f'algorithm = {table!r}: give a table, for example {{preset = "grpo"}} (or one field '
            'of it: algorithm.preset = "grpo")'
        )
    changes = dict(table)
    name = changes.pop("preset", None)
    if name is not None:
        if not isinstance(name, str):
            raise RecipeError(
                f"algorithm.preset = {name!r}: give a name, one of {', '.join(PRESETS)}"
            )
        return preset(name, **{str(key): value for key, value in changes.items()})
    if "name" not in changes:
        raise RecipeError(
            f"algorithm: give preset (one of {', '.join(PRESETS)}), or name and your own parts; "
            f"keys are {', '.join(KEYS)}"
        )
    return override(Algorithm(str(changes["name"])), changes)
