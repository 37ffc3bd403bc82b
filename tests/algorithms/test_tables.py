"""Algorithms as tables, text and pickles; bad input is refused with the nearest legal name."""

from __future__ import annotations

import pickle
import tomllib
from typing import Any

import pytest
import torch

from algorithms.fixture import f64
from groupwise.algorithms import PRESETS, Algorithm, algorithm_from_table, describe, preset
from groupwise.algorithms.signals import AdvantageInputs, Signal
from groupwise.algorithms.surrogates import Clip, TokenTerms
from groupwise.errors import RecipeError


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_survives_table_toml_and_pickle(name: str) -> None:
    algorithm = preset(name)
    assert algorithm_from_table(algorithm.to_table()) == algorithm
    assert algorithm_from_table({"preset": name}) == algorithm
    assert algorithm_from_table(tomllib.loads(toml(algorithm.to_table()))) == algorithm
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm
    assert hash(algorithm) == hash(preset(name))
    assert algorithm.name == name


def toml(table: dict[str, Any]) -> str:
    """A table as TOML text, one key a line."""

    def value(x: Any) -> str:
        if isinstance(x, dict):
            return "{" + ", ".join(f"{k} = {value(v)}" for k, v in x.items()) + "}"
        if isinstance(x, list):
            return "[" + ", ".join(value(v) for v in x) + "]"
        if isinstance(x, bool):
            return str(x).lower()
        return f'"{x}"' if isinstance(x, str) else repr(x)

    return "\n".join(f"{key} = {value(entry)}" for key, entry in table.items())


def test_a_recipe_changes_any_part() -> None:
    table = tomllib.loads("""
        preset = "dapo"
        surrogate = { kind = "clip", low = 0.1, high = 0.3, dual = 3 }
        scale = { ddof = 1, eps = 1e-4 }
        weight = "per_prompt_token"
        kl_coef = 1e-2
        filters = ["zero_variance_drop", { kind = "top_entropy", share = 0.5 }]
        correction = { kind = "truncate", high = 3 }
    """)
    a = algorithm_from_table(table)
    assert a.surrogate == Clip(0.1, 0.3, dual=3.0)
    assert (a.scale.ddof, a.scale.eps) == (1, 1e-4)  # type: ignore[attr-defined]
    assert (a.kl.placement, a.kl.estimator, a.kl.coef) == ("loss", "k3", 0.01)
    assert [part.kind for part in a.filters] == ["zero_variance_drop", "top_entropy"]
    assert a.name == "dapo"
    assert a != preset("dapo")


def test_an_own_composition_has_a_name() -> None:
    a = algorithm_from_table(
        {"name": "mine", "baseline": "leave_one_out", "anchor": "old", "ratio": "token",
         "surrogate": "unclipped", "weight": "per_token"}
    )  # fmt: skip
    assert algorithm_from_table(a.to_table()) == a
    assert a.to_table()["name"] == "mine"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"preset": "grop"}, "algorithm.preset = 'grop' is not known; did you mean 'grpo'"),
        ({"preset": "dapo", "surogate": "clip"}, "algorithm.surogate.*did you mean 'surrogate'"),
        ({"preset": "dapo", "surrogate": "clipp"}, "did you mean 'clip'"),
        ({"preset": "dapo", "surrogate": {"kind": "clip", "lo": 1.0}}, "surrogate.lo is not known"),
        (
            {"preset": "dapo", "surrogate": {"low": "x"}},
            "surrogate.low = 'x': it should be a valid number, for example 0.2",
        ),
        ({"preset": "dapo", "surrogate": {"low": True}}, "surrogate.low = True"),
        ({"preset": "dapo", "anchor": "refernce"}, "algorithm.anchor = 'refernce'"),
        ({"preset": "dapo", "kl": "k3"}, "algorithm.kl = 'k3'"),
        (
            {"preset": "grpo", "kl": {"estimator": "k4"}},
            "kl.estimator = 'k4': it should be 'k1', 'k2', 'k3'",
        ),
        ({"preset": "grpo", "filters": "zero_variance_drop"}, "algorithm.filters.*give a list"),
        ({"preset": "grpo", "filters": ["zero_variance"]}, "did you mean 'zero_variance_drop'"),
        ({"preset": "grpo", "filters": [3]}, "neither a part, a function, a name nor a table"),
        ({"preset": "grpo", "scale": 3}, "algorithm.scale = 3"),
        (
            {"preset": "grpo", "scale": {"ddof": 0.5}},
            "scale.ddof = 0.5: it should be a valid integer",
        ),
        ({"preset": "cispo", "surrogate": {"epsilon": 0.2}}, "cap is the largest weight itself"),
        ({"preset": "vespo", "surrogate": {"positive": [1.0]}}, "give 2 values"),
        ({"preset": 3}, "algorithm.preset = 3"),
        ({"preset": "grpo", "surrogate": {"kind": ["clip"]}}, "surrogate.kind = \\['clip'\\]"),
        ({"preset": "grpo", "shapers": ["entropy_reward"]}, "is gone: use extras = "),
        ({"preset": "gopo", "transform": {"gaussian": True}}, "gaussian is gone"),
        ({"surrogate": "clip"}, "give preset"),
        ({"preset": "grpo", "transform": "no_such:function"}, "no module 'no_such'"),
    ],
)
def test_bad_tables_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        algorithm_from_table(table)


@pytest.mark.parametrize("table", [3, 0.5, None, True, "grpo", ["grpo"], [("preset", "grpo")]])
def test_what_is_not_a_table_is_refused_with_an_example(table: Any) -> None:
    with pytest.raises(RecipeError) as refused:
        algorithm_from_table(table)
    message = str(refused.value)
    assert message.startswith(f"algorithm = {table!r}: give a table")
    assert 'for example {preset = "grpo"}' in message


def halved(inputs: AdvantageInputs) -> Signal:
    """A plain function in a slot."""
    return Signal(inputs.rewards / 2, inputs.scored)


def half_surrogate(terms: TokenTerms) -> torch.Tensor:
    return terms.ratio * terms.advantages / 2


def late_tokens(terms: TokenTerms) -> torch.Tensor:
    return torch.arange(terms.mask.shape[1]).expand(terms.mask.shape).to(terms.ratio.dtype)


def test_plain_functions_fill_slots_and_load_by_name() -> None:
    a = preset("dr_grpo", transform=halved, surrogate=half_surrogate)
    assert a.advantages(f64([[1.0, 0.0]])).tolist() == [[0.25, -0.25]]
    lp = f64([[-1.0]])
    out = a.loss(lp, mask=torch.tensor([[True]]), advantages=f64([3.0]), max_tokens=1)
    assert out.loss.item() == -1.5
    table = a.to_table()
    assert table["transform"] == {"function": f"{__name__}:halved"}
    assert algorithm_from_table(table) == a
    assert "halved" in describe(a).text()
    with pytest.raises(RecipeError, match="no importable name"):
        preset("grpo", transform=lambda inputs: halved(inputs)).to_table()


def test_a_token_weight_of_ones_own() -> None:
    a = preset(
        "grpo", kl_coef=0, extras=[{"kind": "token_weight", "function": f"{__name__}:late_tokens"}]
    )
    lp = f64([[-1.0, -1.0, -1.0]]).requires_grad_(True)
    out = a.loss(lp, mask=torch.ones(1, 3, dtype=torch.bool), advantages=f64([3.0]))
    (gradient,) = torch.autograd.grad(out.loss, lp)
    assert gradient.tolist() == [[0.0, -1.0, -2.0]]


@pytest.mark.parametrize("name", list(PRESETS))
def test_descriptions_are_rendered_from_the_parts(name: str) -> None:
    text = describe(preset(name)).text()
    assert PRESETS[name].citation in text
    assert "loss = -Σ_i,t w_i,t·f_i,t" in text
    assert "{anchor}" not in text
    for part in describe(preset(name)).parts:
        assert part[1]


def test_a_changed_preset_shows_its_own_numbers() -> None:
    text = describe(preset("dapo", surrogate={"high": 0.31}, kl_coef=0.02)).text()
    assert "1 + 0.31" in text
    assert "0.02" in text
    assert "(changed)" in text
    assert "Verified" not in text
    assert "Verified" in describe(preset("dapo")).text()
    for name in ("gtpo", "grpo_s", "dcpo"):
        assert "Not settled" in describe(preset(name)).text()
    assert "not gspo, for which" in describe(preset("gspo_length_weighted")).text()


def test_the_dataclass_alone_is_reinforce_without_a_baseline() -> None:
    a = Algorithm("plain")
    assert a.advantages(f64([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]
