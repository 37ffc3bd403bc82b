"""Numbers in parts: NaN nowhere, infinity only as an open bound of a part built in Python."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import typing
from typing import Any

import pytest

from groupwise.algorithms import algorithm_from_table, describe, preset
from groupwise.algorithms.algorithm import LISTS
from groupwise.algorithms.corrections import Mask
from groupwise.algorithms.divergences import DivergenceMask
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import PARTS, Part
from groupwise.algorithms.scales import GroupStd
from groupwise.algorithms.surrogates import Cispo, Clip, DynamicClip, GammaKernel
from groupwise.algorithms.transforms import ZScoreEach
from groupwise.errors import RecipeError

BAD = [math.nan, math.inf, -math.inf, 10**400]


def number_fields() -> list[tuple[str, type, str]]:
    """(slot, part, field) of every field of every part that holds a float or several."""
    parts = [
        (slot, part)
        for slot, kinds in PARTS.items()
        for part in kinds.values()
        if part.__module__.startswith("groupwise")
    ]
    return [
        (slot, part, field.name)
        for slot, part in [*parts, ("kl", Kl)]
        for field in dataclasses.fields(part)
        if "float" in str(typing.get_type_hints(part)[field.name])
    ]


def as_field(part: type, name: str, value: Any) -> Any:
    """The value alone, or as the first of the tuple that the field holds."""
    if "tuple" in str(typing.get_type_hints(part)[name]):
        return (value, 1.0)
    return value


def table(slot: str, part: type, name: str, value: Any) -> dict[str, Any]:
    if slot == "kl":
        return {"preset": "grpo", "kl": {name: value}}
    entry = {"kind": typing.cast(type[Part], part).kind, name: value}
    return {"preset": "grpo", slot: [entry] if slot in LISTS else entry}


@pytest.mark.parametrize(("slot", "part", "name"), number_fields())
def test_a_table_takes_finite_numbers_only(slot: str, part: type, name: str) -> None:
    for bad in BAD:
        with pytest.raises(RecipeError) as refused:
            algorithm_from_table(table(slot, part, name, as_field(part, name, bad)))
        found = re.fullmatch(
            rf"algorithm\.{slot}\.(?:\w+\.)?{name} = {bad}: give a finite number, for example (.+)",
            str(refused.value),
        )
        assert found is not None, str(refused.value)
        legal = as_field(part, name, ast.literal_eval(found[1]))
        part(**{name: legal})


def test_every_family_of_numbers_is_covered() -> None:
    found = {(part.__name__, name) for _, part, name in number_fields()}
    assert len(found) >= 40
    assert {
        ("Clip", "low"),
        ("GammaKernel", "positive"),
        ("GroupStd", "eps"),
        ("Kl", "coef"),
        ("Mask", "high"),
        ("TopEntropy", "share"),
        ("ZScoreEach", "weights"),
    } <= found


@pytest.mark.parametrize("bad", BAD)
def test_the_short_form_of_the_kl_coefficient(bad: float) -> None:
    message = rf"algorithm\.kl\.coef = {bad}: give a finite number, for example 0\.04"
    with pytest.raises(RecipeError, match=message):
        preset("grpo", kl_coef=bad)
    with pytest.raises(RecipeError, match=message):
        algorithm_from_table({"preset": "dapo", "kl_coef": bad})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Clip(low=math.nan), "surrogate.low = nan.* example 0.2"),
        (lambda: Clip(low=-math.inf), "surrogate.low = -inf"),
        (lambda: Clip(low=-0.1), "surrogate.low = -0.1: it should be greater than or equal to 0"),
        (lambda: Clip(low="x"), "surrogate.low = 'x': it should be a valid number"),
        (lambda: Clip(lo=1.0), "surrogate.lo is not known; did you mean 'low'"),
        (lambda: Clip(dual=math.inf), "surrogate.dual = inf.* example 3.0"),
        (lambda: Cispo(cap=math.nan), "surrogate.cap = nan.* example 5.0"),
        (lambda: GammaKernel(positive=(2.0, math.nan)), "surrogate.positive = nan"),
        (lambda: GroupStd(eps=math.inf), "scale.eps = inf"),
        (lambda: Kl("loss", coef=math.nan), "kl.coef = nan"),
        (lambda: Mask(high=math.nan), "correction.high = nan.* example 2.0"),
        (lambda: ZScoreEach((1.0, math.inf)), "weights = inf.* example 0.5"),
        (lambda: preset("grpo", scale=Clip()), "algorithm.scale: .*belongs to algorithm.surrogate"),
        (lambda: preset("grpo", filters=[print]), "algorithm.filters: .*is a function"),
    ],
)
def test_a_part_built_in_python_is_checked_as_a_table_is(build: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build()


@pytest.mark.parametrize(
    ("name", "surrogate", "field"),
    [
        ("cispo", Cispo(cap=math.inf), "cap"),
        ("dapo", Clip(high=math.inf), "high"),
        ("dcpo", DynamicClip(cap=math.inf), "cap"),
        ("dppo_binary_tv", DivergenceMask(low=math.inf), "low"),
    ],
)
def test_an_open_bound_is_for_python_and_has_no_table(
    name: str, surrogate: Part, field: str
) -> None:
    algorithm = preset(name, surrogate=surrogate)
    assert describe(algorithm).text()
    with pytest.raises(RecipeError, match=rf"surrogate\.{field} = inf: give a finite number"):
        algorithm.to_table()
