"""The presets by name, with parts replaced as in a recipe, and an algorithm from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from groupwise.algorithms import (  # noqa: F401 (found by kind)
    distillation,
    divergences,
    entropy_shaping,
)
from groupwise.algorithms.algorithm import LISTS, SLOTS, Algorithm
from groupwise.algorithms.contracts import Anchor
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import Part, as_part
from groupwise.errors import RecipeError
from groupwise.suggestions import unknown

KEYS = ("preset", "name", *SLOTS, "anchor", "kl", "kl_coef", *LISTS)
_MISREAD = (
    "online_pair_logistic",
    "symmetric_tv_mask",
    "batch_norm_clip_higher",
    "ref_surprise_weight",
)


@dataclass(frozen=True)
class Preset:
    """One entry. `typical`: the paper's values; `misread`: what texts and code often make of the
    method that its paper does not say; `unsettled`: what is not known, and the option."""

    algorithm: Algorithm
    title: str
    citation: str
    typical: str = ""
    misread: str = ""
    unsettled: str = ""


PRESETS: dict[str, Preset] = {}


def entry(
    name: str,
    title: str,
    citation: str,
    typical: str = "",
    *,
    base: Algorithm,
    misread: str = "",
    unsettled: str = "",
    **slots: Any,
) -> Algorithm:
    """Adds a preset: `base` with slots replaced as in a recipe. Returns its algorithm."""
    algorithm = replace(override(base, **slots), name=name, preset=name)
    PRESETS[name] = Preset(algorithm, title, citation, typical, misread, unsettled)
    return algorithm


def preset(preset: str, /, **overrides: Any) -> Algorithm:
    """The algorithm of that name, with slots replaced; `name` gives the result another name.

    An override is a part, a plain function, a kind by name, or a table as in a recipe; `kl_coef` is
    a short form. Raises RecipeError (a ValueError) naming the field, with the nearest name.

    >>> preset("dapo", kl_coef=0.01).kl.coef
    0.01
    >>> preset("grpo", name="mine").name
    'mine'
    """
    if preset in _MISREAD:
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
    return override(Algorithm(_name(changes["name"])), **changes)


def override(base: Algorithm, /, **changes: Any) -> Algorithm:
    """`base` with slots replaced: parts, functions, kinds by name, or tables; `kl_coef` is a short
    form. Raises RecipeError naming the field, the value and a legal one."""
    new: dict[str, Any] = {}
    for key, value in changes.items():
        if key in SLOTS:
            new[key] = as_part(key, value, getattr(base, key))
        elif key in LISTS:
            new[key] = _list(key, value)
        elif key == "kl":
            new[key] = _kl(value, base.kl)
        elif key == "anchor":
            if value not in get_args(Anchor):
                raise RecipeError(unknown(f"algorithm.anchor = {value!r}", value, get_args(Anchor)))
            new[key] = value
        elif key == "name":
            new[key] = _name(value)
        elif key != "kl_coef":
            raise RecipeError(unknown(f"algorithm.{key}", key, KEYS))
    if "kl_coef" in changes:
        kl, coef = new.get("kl", base.kl), changes["kl_coef"]
        placement = "loss" if kl.placement == "none" and coef else kl.placement
        new["kl"] = as_part("kl", {"coef": coef, "placement": placement}, kl)
    return replace(base, **new)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RecipeError(f'algorithm.name = {value!r}: give a text, for example "mine"')
    return value


def _list(slot: str, value: Any) -> tuple[Part, ...]:
    """A list slot: each entry a part, a name, or a table with `kind`."""
    if isinstance(value, str | Mapping | Part) or not isinstance(value, Sequence):
        raise RecipeError(
            f"algorithm.{slot} = {value!r}: give a list, for example [{{kind = ...}}]"
        )
    return tuple(as_part(slot, each, functions=slot == "shapers") for each in value)


def _kl(value: Any, current: Kl) -> Part:
    if value == "none":
        return Kl()
    if not isinstance(value, Kl | Mapping):
        raise RecipeError(
            f'algorithm.kl = {value!r}: give "none" or a table, for example '
            '{placement = "loss", estimator = "k3", coef = 0.04}'
        )
    return as_part("kl", value, current)
