"""Environments by name, from a recipe's table, and of one's own."""

import doctest
import importlib
import json
import pkgutil

import pytest
from pydantic import ValidationError

import groupwise as gw
import groupwise.environments
from groupwise.environments import (
    EnvironmentSettings,
    Episode,
    environment_from_settings,
    load_environment,
)
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe

MODULES = [each.name for each in pkgutil.iter_modules(groupwise.environments.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"groupwise.environments.{name}")
    assert doctest.testmod(module).failed == 0


def test_a_recipe_table():
    settings = EnvironmentSettings.model_validate(
        {"name": "arithmetic", "level": "below_20", "verifiers": [{"name": "exact"}]}
    )
    assert settings.arguments == {"level": "below_20"}
    environment = environment_from_settings(settings, seed=3)
    assert environment.verifier.name == "exact"
    assert len(environment) == 170
    with pytest.raises(ValidationError, match="wieght"):
        EnvironmentSettings.model_validate(
            {"name": "arithmetic", "verifiers": [{"name": "exact", "wieght": 1}]}
        )


def test_one_turn_is_the_default():
    environment = load_environment("arithmetic")
    prompt = environment.prompts(1)[0]
    play = environment.start(prompt)
    assert isinstance(play, Episode)
    assert play.prompt is prompt
    assert play.next("7") is None
    assert environment.prompt(prompt.id) is prompt


def test_an_environment_of_ones_own():
    environment = load_environment("custom_environment:Twice", seed=2, size=4)
    assert len(environment) == 4
    prompt = environment.prompts()[3]
    assert environment.verify(prompt, "5").outcome == "correct"
    play = environment.start(prompt)
    assert play.next("4") == [{"role": "user", "content": "Sure?"}]
    assert play.next("5") is None
    exact = load_environment("custom_environment:Twice", verifiers=[{"name": "exact"}])
    assert exact.verifier.name == "exact"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("arithmetik", {}, "did you mean 'arithmetic'"),
        ("custom_environment:Twise", {}, "did you mean 'Twice'"),
        ("custom_environment:Twice", {"sice": 3}, "cannot be called with ['seed', 'sice']"),
        ("custom_environment:not_an_environment", {}, "is a int, not an Environment"),
        ("custom_environment:LIST", {}, "is not callable"),
        ("no_module_of_that_name:X", {}, "no module 'no_module_of_that_name'"),
    ],
)
def test_names_that_lead_nowhere(name, arguments, message):
    with pytest.raises(RecipeError) as error:
        load_environment(name, **arguments)
    assert message in str(error.value)


def test_unknown_splits_name_the_known_ones():
    with pytest.raises(RecipeError, match="no split 'test'; it has train, heldout, all"):
        load_environment("arithmetic").prompts(split="test")


REST = {"model": {"name": "tiny"}, "algorithm": {"preset": "grpo"}}


def both(number, boxed, **more):
    verifiers = [{"name": "number", "weight": number}, {"name": "boxed", "weight": boxed}]
    return {"name": "arithmetic", "verifiers": verifiers, **more}


@pytest.mark.parametrize(("combine", "half"), [("sum", 2.0), ("product", 0.0)])
def test_a_recipe_says_how_values_become_one(combine, half):
    """2 and 3 for the parts: a sum of 5 and a product of 6; one part alone is 2 or 0."""
    table = both(2.0, 3.0, combine=combine, strict_verifiers=both(1.0, 1.0)["verifiers"])
    recipe = load_recipe({**REST, "environment": table})
    by_recipe = environment_from_settings(recipe.environment, seed=recipe.seed)
    by_name = gw.load_environment(**both(2.0, 3.0, combine=combine))
    for environment in (by_recipe, by_name):
        prompt = environment.prompts(1)[0]
        right = environment.verify(prompt, f"\\boxed{{{prompt.answer}}}")
        assert right.value == {"sum": 5.0, "product": 6.0}[combine]
        assert right.parts == {"number": 1.0, "boxed": 1.0}
        assert environment.verify(prompt, str(prompt.answer)).value == half
        assert json.loads(environment.describe()["verifier"])[1]["combine"] == combine
    assert by_recipe.strict.combine == combine
    assert recipe.environment.arguments == {}


def test_ways_to_combine_that_do_not_exist_name_those_that_do():
    table = {**REST, "environment": both(1.0, 1.0, combine="sums")}
    with pytest.raises(RecipeError, match=r"environment\.combine.*'sum' or 'product'"):
        load_recipe(table)
    with pytest.raises(RecipeError, match="did you mean 'sum'"):
        gw.load_environment(**both(1.0, 1.0, combine="sums"))
    with pytest.raises(RecipeError, match="environment 'single' has one of its own"):
        load_environment("custom_environment:single", combine="product")
    made = load_environment("custom_environment:Twice", combine="product")
    assert made.verifier.combine == "product"


@pytest.mark.parametrize("given", ["number", ["number"], {"name": "number"}, 5])
@pytest.mark.parametrize("field", ["verifiers", "strict_verifiers"])
def test_verifiers_of_a_recipe_that_are_no_tables(field, given):
    table = {**REST, "environment": {"name": "arithmetic", field: given}}
    with pytest.raises(RecipeError) as error:
        load_recipe(table)
    message = f'environment.{field}: expected a list of tables, got {given!r}; give [{{ name = "nu'
    assert str(error.value).startswith(message)
    source = {"name": "arithmetic", "verifiers": given}
    with pytest.raises(RecipeError, match=r"sources\.0\.verifiers = .*expected a list of tables"):
        load_environment("mixture", sources=[source])


def test_the_old_name_of_an_episode_warns_and_works():
    with pytest.warns(DeprecationWarning, match="Play is now Episode"):
        from groupwise.environments import Play
    assert Play is Episode
    with pytest.raises(AttributeError, match="no attribute 'Plays'"):
        groupwise.environments.Plays  # noqa: B018
