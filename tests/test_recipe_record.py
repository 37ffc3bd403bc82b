"""A recorded recipe always reproduces its run: what is written loads as the same recipe."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types as limits
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from safetensors.torch import load_file

import groupwise as gw
from groupwise.algorithms import PRESETS
from groupwise.errors import RecipeError
from groupwise.recipe import Recipe, load_recipe
from groupwise.records import diff

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic"},
    "algorithm": {"preset": "reinforce"},
}
TEXTS = st.one_of(
    st.sampled_from(["", "none", "None", "null", "a.b", '"', "\\", "\n", "\x7f", "{none = true}"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
FREE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False),
        TEXTS,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def values(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Values of a field's type within its limits, None where it may be None."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is NoneType:
        return st.none()
    if origin in (UnionType, Union):
        return st.one_of([values(each, metadata) for each in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values(args[0], []), max_size=3)
        return st.tuples(*(values(each, []) for each in args)).map(list)
    if hasattr(annotation, "__metadata__"):
        return values(args[0], [*annotation.__metadata__])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return tables(annotation)
    if annotation is bool:
        return st.booleans()
    if annotation in (int, float):
        return numbers(annotation, metadata)
    if annotation is str:
        return TEXTS
    if annotation is datetime.date:
        return st.dates()
    return st.dictionaries(TEXTS, FREE, max_size=3)


def numbers(kind: type, metadata: list[Any]) -> st.SearchStrategy[Any]:
    found = [each for info in metadata for each in getattr(info, "metadata", [info])]
    low = next((e.ge for e in found if isinstance(e, limits.Ge)), None)
    high = next((e.le for e in found if isinstance(e, limits.Le)), None)
    above = next((e.gt for e in found if isinstance(e, limits.Gt)), None)
    below = next((e.lt for e in found if isinstance(e, limits.Lt)), None)
    first: Any = low if low is not None else above
    last: Any = high if high is not None else below
    if kind is int:
        return st.integers(0 if first is None else first + (above is not None), 10**6)
    return st.floats(
        -1e9 if first is None else first,
        1e9 if last is None else last,
        exclude_min=above is not None,
        exclude_max=below is not None,
    )


def tables(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """A table with some of its fields set."""
    fields = {name: field(info) for name, info in model.model_fields.items()}
    needed = {name for name, info in model.model_fields.items() if info.is_required()}
    return st.fixed_dictionaries(
        {name: fields[name] for name in needed},
        optional={name: each for name, each in fields.items() if name not in needed},
    )


def field(info: FieldInfo) -> st.SearchStrategy[Any]:
    return values(info.annotation, list(info.metadata))


FIELDS = [
    (table, name)
    for table, info in Recipe.model_fields.items()
    if table != "algorithm" and isinstance(info.annotation, type)
    for name in getattr(info.annotation, "model_fields", {})
]


def survives(recipe: Recipe) -> None:
    """The record loads as an equal recipe, and is written the same again."""
    text = recipe.to_toml()
    again = load_recipe(tomllib.loads(text))
    assert again == recipe
    assert again.to_toml() == text


def built(table: dict[str, Any]) -> Recipe | None:
    """The recipe of a table; None where other rules refuse it, which never are the record's."""
    try:
        return load_recipe(table)
    except RecipeError as error:
        if "recorded" in str(error) or "written" in str(error):
            raise
        return None


@pytest.mark.parametrize(("table", "name"), FIELDS, ids=lambda each: str(each))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_field_survives_its_record(table: str, name: str, data: st.DataObject) -> None:
    info = Recipe.model_fields[table].annotation.model_fields[name]  # type: ignore[union-attr]
    value = data.draw(field(info))
    recipe = built({**BASE, table: {**BASE.get(table, {}), name: value}})
    if recipe is not None:
        survives(recipe)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(arguments=st.dictionaries(TEXTS, FREE, max_size=3))
@example(arguments={"none": True})
def test_free_arguments_survive_their_record(arguments: dict[str, Any]) -> None:
    names = {f"argument {key}": value for key, value in arguments.items()}
    verifier = {"name": "number", "arguments": arguments}
    environment = {"name": "arithmetic", "verifiers": [verifier], **names}
    survives(load_recipe({**BASE, "environment": environment}))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_its_record(name: str) -> None:
    pairs = name in ("two_grpo", "online_pair_logistic")
    sampling = {"group_size": 2 if pairs else 8}
    taught = PRESETS[name].algorithm.needs.teacher != "none"
    teacher = {"teacher": {"name": "tiny"}} if taught else {}
    survives(load_recipe({**BASE, **teacher, "algorithm": {"preset": name}, "sampling": sampling}))


@pytest.mark.parametrize(
    "field", ["training.max_grad_norm", "sampling.deadline", "environment.max_seconds"]
)
def test_none_is_said_in_a_file_on_the_command_line_and_in_python(field: str) -> None:
    for spelling in ("none", '"none"', None):
        recipe = load_recipe(BASE, {field: spelling})
        table, name = field.split(".")
        assert getattr(getattr(recipe, table), name) is None
        assert f'{name} = "none"' in recipe.to_toml()
        survives(recipe)
    with pytest.raises(RecipeError, match=rf'{field} = 0: .*"none" switches it off'):
        load_recipe(BASE, {field: 0})


def test_none_in_arguments_is_a_table_and_the_text_stays_a_text() -> None:
    recipe = load_recipe(
        BASE,
        {
            "environment.verifiers": '[{name = "number", '
            'arguments = {a = "none", b = {none = true}}}]'
        },
    )
    assert recipe.environment.verifiers[0].arguments == {"a": "none", "b": None}
    survives(recipe)


def test_a_value_that_toml_cannot_hold_is_refused_before_the_run() -> None:
    verifier = {"name": "number", "arguments": {"pattern": object()}}
    with pytest.raises(RecipeError, match="cannot be written as TOML"):
        load_recipe({**BASE, "environment": {"name": "arithmetic", "verifiers": [verifier]}})


UNUSUAL: dict[str, dict[str, Any]] = {
    "nothing is limited": {
        "training.max_grad_norm": "none",
        "sampling.deadline": "none",
        "environment.max_seconds": None,
        "evaluation.max_prompts": "none",
        "evaluation.splits": "none",
    },
    "everything is limited": {
        "training.kl_stop": 0.5,
        "training.memory_budget": 0.2,
        "environment.turn_tokens": 4,
        "sampling.cache_gigabytes": 0.001,
        "sampling.thinking_budget": 3,
        "evaluation.max_prompts": 3,
        "evaluation.splits": ["train"],
        "checkpoints.best": "eval/accuracy",
    },
    "optimiser": {
        "training.optimizer": "sgd",
        "training.betas": [0.0, 0.5],
        "training.passes": 2,
        "training.minibatches": 2,
        "training.schedule": "cosine",
        "training.warmup_updates": 3,
        "training.weight_decay": 0.1,
    },
    "sampling": {
        "sampling.top_p": 0.8,
        "sampling.top_k": 7,
        "sampling.min_p": 0.01,
        "sampling.temperature": 1.3,
        "sampling.stop": ["7", "1\n"],
        "sampling.batch_rows": 3,
    },
    "selection": {
        "selection.train_on": 2,
        "selection.order": "weighted",
        "selection.length": {"start": 4, "updates": 3},
        "selection.pool": {"low": 0.01, "high": 0.99},
    },
    "adapter": {
        "model.adapter": {"rank": 2, "target_modules": ["q_proj"]},
        "template.date": "2024-02-29",
        "model.gradient_checkpointing": True,
    },
    "critic": {
        "algorithm": {"preset": "ppo"},
        "training.critic": "shared",
        "training.critic_learning_rate": 1e-2,
    },
    "parts": {
        "algorithm": {
            "preset": "dapo",
            "name": "mine",
            "correction": "truncate",
            "surrogate": {"kind": "clip", "low": 0.1, "high": 0.4},
            "kl_coef": 0.1,
        },
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("case", UNUSUAL)
def test_a_run_from_a_record_equals_the_recorded_run(case: str, tmp_path: Path) -> None:
    """Bit for bit: every completion, log-probability, reward and metric, and the last weights."""
    recipe = Path(__file__).parents[1] / "recipes" / "tiny_arithmetic.toml"
    changes = {"training.learning_rate": 1e-2, **UNUSUAL[case]}
    first = gw.train(recipe, overrides=changes, output=tmp_path / "first", small=True)
    second = gw.train(tmp_path / "first" / "recipe.toml", output=tmp_path / "second")
    text = (tmp_path / "first" / "recipe.toml").read_text()
    assert (tmp_path / "second" / "recipe.toml").read_text() == text
    found = diff(first, second)
    assert found.equal, found.lines()
    weights = [
        load_file(next((tmp_path / each / "checkpoints").rglob("*.safetensors")))
        for each in ("first", "second")
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
