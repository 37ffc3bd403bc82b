"""Bad input: one clear message that names the field, the value and a legal one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.policies.source import source_of
from groupwise.recipe import Recipe, field_table, find_recipe, load_recipe, parse_value
from groupwise.stages import is_pipeline, load_pipeline

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def table(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "environment": {"name": "arithmetic"},
        "algorithm": {"preset": "grpo"},
    }
    return {**base, **changes}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_resolved_text_loads_to_the_same_recipe(path: Path) -> None:
    load: Any = load_pipeline if is_pipeline(path) else load_recipe
    for small in (False, True):
        recipe = load(path, small=small)
        again = load(tomllib.loads(recipe.to_toml()))
        assert again == recipe


def test_overrides_are_typed_by_toml_and_reach_lists() -> None:
    recipe = load_recipe(
        table(environment={"name": "arithmetic", "verifiers": [{"name": "number"}]}),
        {
            "training.steps": "7",
            "algorithm.preset": "gspo",
            "training.learning_rate": "3e-4",
            "environment.verifiers.0.weight": "0.5",
            "sampling.stop": '["</answer>"]',
            "seed": 3,
        },
    )
    assert recipe.training.steps == 7
    assert recipe.algorithm.name == "gspo"
    assert recipe.training.learning_rate == 3e-4
    assert recipe.environment.verifiers[0].weight == 0.5
    assert recipe.sampling.stop == ("</answer>",)
    assert recipe.seed == 3
    assert parse_value("true") is True
    assert parse_value("gspo") == "gspo"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"training.step": 3}, ["training.step", "did you mean 'training.steps'"]),
        ({"trainig.steps": 3}, ["trainig", "did you mean 'training'"]),
        ({"sampling.group_size": 1}, ["sampling.group_size", "1", "2"]),
        ({"sampling.temperature": 0}, ["sampling.temperature", "0"]),
        ({"sampling.temperature": -1.0}, ["sampling.temperature", "-1"]),
        ({"sampling.top_p": 1.5}, ["top_p", "1.5"]),
        ({"training.minibatches": 99}, ["training.minibatches", "99", "16"]),
        ({"training.learning_rate": 0}, ["training.learning_rate"]),
        ({"training.steps": "many"}, ["training.steps", "many"]),
        ({"algorithm.preset": "grppo"}, ["grppo", "grpo"]),
        ({"algorithm.surogate": 1}, ["surogate", "surrogate"]),
        ({"algorithm.surrogate": {"kind": "clipp"}}, ["clipp", "clip"]),
        ({"checkpoints.best": "eval/acuracy"}, ["eval/acuracy", "eval/accuracy"]),
        ({"evaluation.pass_at_k": [8]}, ["pass_at_k", "8", "samples"]),
        ({"model.dtype": "float16"}, ["model.dtype", "float16", "bfloat16"]),
        ({"environment.verifiers": [{"nam": "number"}]}, ["environment.verifiers.0.nam"]),
    ],
)
def test_refused_with_field_value_and_a_legal_one(
    overrides: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(table(), overrides)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.exit_code == 2


def test_group_size_one_is_refused_by_every_group_method() -> None:
    """Fault 6."""
    for name in ("grpo", "dr_grpo", "rloo", "dapo", "gspo"):
        with pytest.raises(RecipeError, match=r"sampling\.group_size"):
            load_recipe(table(algorithm={"preset": name}), {"sampling.group_size": 1})


def test_missing_tables_and_files_are_named() -> None:
    with pytest.raises(RecipeError, match=r"no \[algorithm\] table"):
        load_recipe({"model": {"name": "tiny"}, "environment": {"name": "arithmetic"}})
    with pytest.raises(RecipeError, match=r"tiny_arithmetic\.toml"):
        find_recipe("no_such_recipe.toml")


def test_a_renamed_recipe_is_found_by_its_former_name() -> None:
    for name in ("code_functions", "code_functions.toml", "recipes/code_functions.toml"):
        assert find_recipe(name).name == "code_rl.toml"


def test_every_field_is_described_once() -> None:
    rows = field_table()
    names = [name for name, *_ in rows]
    assert len(names) == len(set(names))
    assert {"training.steps", "sampling.group_size", "model.name", "seed"} <= set(names)
    assert [name for name, _, _, words in rows if not words] == []
    assert set(Recipe.model_fields) == {
        "seed", "model", "template", "environment", "algorithm", "sampling", "training",
        "selection", "evaluation", "teacher",
        "checkpoints", "record", "compute",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training.steps", "abc", "training.steps = 'abc': expected a whole number; the default"),
        ("training.steps", -3, "training.steps = -3: must be at least 0; the default is 200"),
        ("training.learning_rate", -1, "must be above 0; the default is 1e-06"),
        ("training.max_grad_norm", -1, 'must be above 0; the default is 1.0; "none" switches it'),
        ("training.keep_memory", "perhaps", "expected true or false"),
        ("training.schedule", "cosin", "expected 'constant', 'linear' or 'cosine'"),
        ("sampling.stop", 3, "expected a list; write [3]"),
    ],
)
def test_a_refused_value_is_told_what_the_field_expects(
    field: str, value: Any, message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(table(), {field: value})
    assert message in str(caught.value)
    assert "nput should" not in str(caught.value)


def test_a_misspelt_built_in_model_is_named_before_any_hub_is_asked() -> None:
    with pytest.raises(RecipeError, match="'tyni': not a built-in model or a folder; did you mean"):
        source_of("tyni")
