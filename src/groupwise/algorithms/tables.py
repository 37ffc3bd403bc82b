"""Algorithms as tables: a recipe's [algorithm] in, a resolved table out. The registry of kinds.

Left out: the presets themselves. Unknown keys, kinds and values raise RecipeError with the nearest
legal name. A part's table may leave `kind` out: then it changes fields of the part that is there.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.baselines import BASELINES
from groupwise.algorithms.corrections import CORRECTIONS
from groupwise.algorithms.divergences import DIVERGENCE_SURROGATES
from groupwise.algorithms.entropy_shaping import TRANSFORMS_BY_ENTROPY
from groupwise.algorithms.extras import EXTRAS, load_function
from groupwise.algorithms.filters import FILTERS
from groupwise.algorithms.finite import example_of, finite, refuse_non_finite
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import Part
from groupwise.algorithms.ratios import RATIOS
from groupwise.algorithms.scales import SCALES
from groupwise.algorithms.shapers import SHAPERS
from groupwise.algorithms.spreads import SPREADS
from groupwise.algorithms.surrogates import SURROGATES
from groupwise.algorithms.transforms import TRANSFORMS
from groupwise.algorithms.weights import WEIGHTS
from groupwise.errors import RecipeError


def _by_kind(*families: Iterable[type[Part]]) -> dict[str, type[Part]]:
    return {cls.kind: cls for family in families for cls in family}


SLOTS: dict[str, dict[str, type[Part]]] = {
    "transform": _by_kind(TRANSFORMS, TRANSFORMS_BY_ENTROPY),
    "baseline": _by_kind(BASELINES),
    "scale": _by_kind(SCALES),
    "spread": _by_kind(SPREADS),
    "ratio": _by_kind(RATIOS),
    "surrogate": _by_kind(SURROGATES, DIVERGENCE_SURROGATES),
    "weight": _by_kind(WEIGHTS),
    "correction": _by_kind(CORRECTIONS),
}
LISTS: dict[str, dict[str, type[Part]]] = {
    "filters": _by_kind(FILTERS),
    "shapers": _by_kind(SHAPERS),
    "extras": _by_kind(EXTRAS),
}
KEYS = ("preset", "name", *SLOTS, "anchor", "kl", "kl_coef", *LISTS)


def override(base: Algorithm, changes: Mapping[str, Any]) -> Algorithm:
    """`base` with slots replaced: parts, functions, kinds by name, or tables; `kl_coef` is a short
    form. Raises RecipeError naming the field, the value and a legal one."""
    new: dict[str, Any] = {}
    for key, value in changes.items():
        if key in SLOTS:
            new[key] = _slot(key, value, getattr(base, key))
        elif key in LISTS:
            new[key] = _list(key, value)
        elif key == "kl":
            new[key] = _kl(value, base.kl)
        elif key == "anchor":
            new[key] = coerce(value, Literal["old", "sampler", "none"], "algorithm.anchor")
        elif key == "name":
            new[key] = coerce(value, str, "algorithm.name")
        elif key != "kl_coef":
            raise RecipeError(_unknown(f"algorithm.{key}", key, KEYS))
    if "kl_coef" in changes:
        new["kl"] = _with_coef(new.get("kl", base.kl), changes["kl_coef"])
    return dataclasses.replace(base, **new)


def table_of(algorithm: Algorithm) -> dict[str, Any]:
    """Every slot in full (None fields left out), plus the preset that it started from if known.

    Raises RecipeError where a part has no table: a function without a name, an infinite bound.
    """
    from groupwise.algorithms.catalogue import PRESETS

    refuse_non_finite(algorithm, open_ends=False)
    table: dict[str, Any] = {}
    if algorithm.name in PRESETS:
        table["preset"] = algorithm.name
    else:
        table["name"] = algorithm.name
    for slot in SLOTS:
        table[slot] = _part_table(getattr(algorithm, slot))
    table["anchor"] = algorithm.anchor
    table["kl"] = _fields(algorithm.kl)
    for name in LISTS:
        table[name] = [_part_table(part) for part in getattr(algorithm, name)]
    return table


def _slot(slot: str, value: Any, current: Any) -> Any:
    """One slot's value from a part, a function, a name or a table."""
    field = f"algorithm.{slot}"
    if isinstance(value, str):
        return load_function(value, field) if ":" in value else _kind(slot, value)()
    if isinstance(value, Mapping):
        return _from_table(field, SLOTS[slot], value, current)
    if isinstance(value, Part) or callable(value):
        return value
    raise RecipeError(f"{field} = {value!r} is neither a part, a name nor a table with `kind`")


def _kind(slot: str, kind: str) -> type[Part]:
    kinds = SLOTS.get(slot) or LISTS[slot]
    if kind not in kinds:
        raise RecipeError(_unknown(f"algorithm.{slot} = {kind!r}", kind, kinds))
    return kinds[kind]


def _list(name: str, value: Any) -> tuple[Any, ...]:
    """A list slot: each entry a part, a name, or a table with `kind`."""
    field = f"algorithm.{name}"
    if isinstance(value, str | Mapping | Part) or not isinstance(value, Sequence):
        raise RecipeError(f"{field} = {value!r}: give a list, for example [{{kind = ...}}]")
    out: list[Any] = []
    for entry in value:
        if isinstance(entry, str):
            out.append(load_function(entry, field) if ":" in entry else _kind(name, entry)())
        elif isinstance(entry, Mapping):
            out.append(_from_table(field, LISTS[name], entry, None))
        elif isinstance(entry, Part) or callable(entry):
            out.append(entry)
        else:
            raise RecipeError(f"{field}: {entry!r} is neither a part, a name nor a table")
    return tuple(out)


def _from_table(
    field: str, kinds: Mapping[str, type[Part]], table: Mapping[str, Any], current: Any
) -> Any:
    values = dict(table)
    if "function" in values and "kind" not in values:
        return load_function(str(values["function"]), field)
    kind = values.pop("kind", None)
    if kind is None:
        if not isinstance(current, Part):
            raise RecipeError(f"{field}: a table needs `kind`, one of {sorted(kinds)}")
        return dataclasses.replace(current, **checked_fields(type(current), values, field))
    if not isinstance(kind, str) or kind not in kinds:
        raise RecipeError(_unknown(f"{field}.kind = {kind!r}", str(kind), kinds))
    return kinds[kind](**checked_fields(kinds[kind], values, field))


def _kl(value: Any, current: Kl) -> Kl:
    if isinstance(value, Kl):
        return value
    if value == "none":
        return Kl()
    if not isinstance(value, Mapping):
        raise RecipeError(
            f'algorithm.kl = {value!r}: give "none" or a table, for example '
            '{placement = "loss", estimator = "k3", coef = 0.04}'
        )
    return dataclasses.replace(current, **checked_fields(Kl, value, "algorithm.kl"))


def _with_coef(kl: Kl, coef: Any) -> Kl:
    value = coerce(coef, float, "algorithm.kl_coef", 0.04)
    if kl.placement == "none" and value:
        return dataclasses.replace(kl, placement="loss", coef=value)
    return dataclasses.replace(kl, coef=value)


def checked_fields(cls: type, values: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Values for a dataclass's fields, each of the declared type."""
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]
    out: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            hint = getattr(cls, "hint", "")
            raise RecipeError(
                _unknown(f"{field}.{key}", key, names) + (f" ({hint})" if hint else "")
            )
        out[key] = coerce(value, hints[key], f"{field}.{key}", example_of(cls, key))
    return out


def coerce(value: Any, annotation: Any, field: str, example: Any = None) -> Any:
    """`value` as the annotated type (int to float, list to tuple), or a RecipeError.

    Numbers are finite; `example` is a legal one for the message.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        if value not in args:
            raise RecipeError(_unknown(f"{field} = {value!r}", str(value), [str(a) for a in args]))
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        return coerce(value, next(a for a in args if a is not type(None)), field, example)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise RecipeError(f"{field} = {value!r}: give a list")
        inner = args[0]
        if args[-1] is not Ellipsis and len(value) != len(args):
            raise RecipeError(f"{field} = {value!r}: give {len(args)} values")
        legal = example[0] if isinstance(example, tuple) and example else example
        return tuple(coerce(entry, inner, field, legal) for entry in value)
    if annotation is float and isinstance(value, int | float) and not isinstance(value, bool):
        return finite(value, field, example)
    if annotation in (int, bool, str) and type(value) is annotation:
        return value
    raise RecipeError(f"{field} = {value!r}: give a value of type {_type_name(annotation)}")


def _type_name(annotation: Any) -> str:
    return str(getattr(annotation, "__name__", annotation))


def _part_table(part: Any) -> dict[str, Any]:
    if isinstance(part, Part):
        return {"kind": part.kind, **_fields(part)}
    return {"function": function_name(part)}


def function_name(function: Callable[..., Any]) -> str:
    """ "module:function" of a plain function, or a RecipeError where it has no importable name."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None or "<" in name:
        raise RecipeError(f"{function!r} has no importable name, so it cannot go into a table")
    return f"{module}:{name}"


def _fields(instance: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        if value is not None:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out


def _unknown(what: str, name: str, legal: Iterable[str]) -> str:
    names = sorted(legal)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(names)}"
    return f"{what} is not known; {hint}"
