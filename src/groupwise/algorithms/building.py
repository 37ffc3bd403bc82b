"""Replaces parts of an algorithm by parts, functions, names or tables, as in a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from groupwise.algorithms import divergences, entropy_shaping  # noqa: F401 (found by kind)
from groupwise.algorithms.algorithm import LISTS, SLOTS, Algorithm
from groupwise.algorithms.contracts import Anchor
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import Part, as_part
from groupwise.errors import RecipeError
from groupwise.suggestions import unknown

KEYS = ("preset", "name", *SLOTS, "anchor", "kl", "kl_coef", *LISTS)


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
            new[key] = name_of(value)
        elif key != "kl_coef":
            raise RecipeError(unknown(f"algorithm.{key}", key, KEYS))
    if "kl_coef" in changes:
        kl, coef = new.get("kl", base.kl), changes["kl_coef"]
        placement = "loss" if kl.placement == "none" and coef else kl.placement
        new["kl"] = as_part("kl", {"coef": coef, "placement": placement}, kl)
    return replace(base, **new)


def name_of(value: Any) -> str:
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
