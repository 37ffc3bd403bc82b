"""Environments by name, from a recipe's table, and of one's own."""

import doctest
import importlib
import pkgutil

import pytest
from pydantic import ValidationError

import groupwise.environments
from groupwise.environments import (
    EnvironmentSettings,
    Play,
    environment_from_settings,
    load_environment,
)
from groupwise.errors import RecipeError

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
    assert isinstance(play, Play)
    assert play.first() == prompt.messages
    assert play.next("7") is None
    assert next(iter(environment.stream())) == prompt
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
        ("custom_environment:Twice", {"sice": 3}, "cannot be called with seed and ['sice']"),
        ("custom_environment:not_an_environment", {}, "gave a int, not an Environment"),
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
