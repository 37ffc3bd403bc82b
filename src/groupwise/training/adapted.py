"""What an adapter asks of a run: which recipes go with one, and that its frozen weights stay.

Left out: the adapter itself (policies/adapters.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.recipe import Recipe


def check_adapter(recipe: Recipe) -> None:
    """What does not go with an adapter. Raises RecipeError."""
    settings, kl = recipe.model.adapter, recipe.algorithm.kl
    if settings is not None and settings.dropout > 0:
        raise RecipeError(
            f"model.adapter.dropout = {settings.dropout}: completions are sampled and scored "
            "without dropout, and a loss with it would be of another policy; give 0"
        )
    if kl.refresh_every and kl.refresh_mix != 1.0:
        raise RecipeError(
            f"algorithm.kl.refresh_mix = {kl.refresh_mix}: a mixture of two adapters is none of "
            "that rank; with an adapter give 1 (the reference becomes the policy)"
        )
    if recipe.algorithm.needs.values and recipe.training.critic == "separate":
        raise RecipeError(
            'training.critic = "separate" trains a second model of full size beside an adapter; '
            'with an adapter give "shared"'
        )


def same_base(counters: Mapping[str, Any], base: Mapping[str, str | None] | None) -> None:
    """Refuses a checkpoint over other frozen weights than those it was trained over.

    `counters` are the checkpoint's, `base` the policy's own `base_identity`, None without an
    adapter. Raises GroupwiseError.
    """
    before, now = counters.get("base") or {}, base or {}
    if before.get("hash") == now.get("hash"):
        return
    raise GroupwiseError(
        "the frozen weights under the adapter are not those that the checkpoint was trained over: "
        f"they are {_say(now)} and were {_say(before)}; put the old ones back"
    )


def _say(base: Mapping[str, str | None]) -> str:
    digest = base.get("hash")
    return f"{base.get('name') or 'a merged model'} ({digest[:12]})" if digest else "none"
