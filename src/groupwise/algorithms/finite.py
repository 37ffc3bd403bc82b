"""The numbers in parts are finite: what a table and a part built in Python may hold.

NaN is refused everywhere. A table takes finite numbers only, since a record in JSON holds no
others. A part built in Python may also hold +inf in the fields that it names in `open_ended`
(bounds), where it means "no bound"; such an algorithm cannot be written as a table.

Left out: which finite numbers a part takes (`legality.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

_EXAMPLES: dict[str, Any] = {
    "clip": 0.2,
    "coef": 0.04,
    "delta": 4.0,
    "dual": 3.0,
    "eps": 1e-4,
    "floor": 0.8,
    "high": 2.0,
    "low": 0.5,
    "weights": (1.0, 0.5),
}
"""Legal values of the fields that have no number as their default."""

_SLOTS = ("transform", "baseline", "scale", "spread", "ratio", "surrogate", "weight")
_LISTS = ("filters", "shapers", "extras")


def example_of(cls: type, name: str) -> Any:
    """A legal number (or tuple of numbers) for a part's field: its default where it has one."""
    default = next(f.default for f in dataclasses.fields(cls) if f.name == name)
    return default if default not in (None, (), dataclasses.MISSING) else _EXAMPLES.get(name, 1.0)


def finite(value: int | float, field: str, example: Any) -> float:
    """`value` as a float, or a RecipeError naming the field, the value and a legal one."""
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        raise RecipeError(f"{field} = {value!r}: give a finite number, for example {example!r}")
    return number


def refuse_non_finite(algorithm: Algorithm, *, open_ends: bool) -> None:
    """RecipeError for a NaN or an infinity in any part; `open_ends` lets +inf stand as no bound."""
    for field, part in _parts(algorithm):
        for f in dataclasses.fields(part):
            value = getattr(part, f.name)
            example = example_of(type(part), f.name)
            free = open_ends and f.name in getattr(part, "open_ended", ())
            for at, entry in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(entry, int | float) and not (free and entry == math.inf):
                    legal = example[at % len(example)] if isinstance(example, tuple) else example
                    finite(entry, f"{field}.{f.name}", legal)


def _parts(algorithm: Algorithm) -> Iterator[tuple[str, Any]]:
    """(field, part) of every slot that holds a dataclass; plain functions have no numbers."""
    for slot in (*_SLOTS, "kl", "correction"):
        part = getattr(algorithm, slot)
        if dataclasses.is_dataclass(part):
            yield f"algorithm.{slot}", part
    for name in _LISTS:
        for part in getattr(algorithm, name):
            if dataclasses.is_dataclass(part):
                yield f"algorithm.{name}", part
