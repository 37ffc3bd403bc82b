"""The two files that `groupwise init environment NAME` writes."""

ENVIRONMENT_MODULE = '''"""The {name} environment: twice a number.

Use it in a recipe; every field of its settings is a key there:

    [environment]
    name = "{name}:{name}"
    level = "mixed"
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from groupwise.environments import Environment, GeneratedSettings, Level, Task, generated
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

LARGEST = {{"easy": 3000, "medium": 30_000, "hard": 300_000}}  # a fifth of them is held out


class Settings(GeneratedSettings):
    """The arguments, beside level, num_train, num_heldout, instructions, system and examples."""

    largest: int | None = Field(
        default=None, ge=10, description="Largest number; else from the level."
    )


def draw(random: random.Random, level: Level, settings: Settings) -> Task | None:
    """One task. Tasks of the same `family` are never on both sides of the split."""
    number = random.randint(0, settings.largest or LARGEST[level])
    question = f"What is twice {{number}}?"
    return Task(question, answer=str(2 * number), family=str(number), columns={{"number": number}})


def {name}(seed: int = 0, verifiers: Any = (), **arguments: Any) -> Environment:
    """Called with the recipe's `[environment]` table; its gold answers are checked here."""
    settings = validated(Settings, arguments, "environment '{name}'")
    return generated(
        "{name}",
        settings,
        lambda random, level: draw(random, level, settings),
        seed,
        verifiers or [VerifierSettings(name="number")],
    )
'''

TEST = '''"""What {name} asks, that its gold answers are accepted and nothing else is."""

from __future__ import annotations

import pytest
from {name} import {name}

from groupwise.errors import RecipeError
from groupwise.verifiers.audit import LabelledRow, audit

FEW = {{"num_train": 40, "num_heldout": 10}}


def test_the_seed_decides_and_the_splits_are_apart() -> None:
    prompts = {name}(seed=0, **FEW).prompts()
    assert prompts == {name}(seed=0, **FEW).prompts()
    assert prompts != {name}(seed=1, **FEW).prompts()
    heldout = {name}(seed=0, **FEW).prompts(split="heldout")
    assert not {{each.last_text for each in prompts}} & {{each.last_text for each in heldout}}


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_gold_is_right_and_nothing_else_is(level: str) -> None:
    environment = {name}(level=level, **FEW)
    for prompt in environment.prompts():
        assert int(prompt.answer) == 2 * prompt.columns["number"]
        assert environment.verify(prompt, f"<answer>{{prompt.answer}}</answer>").value == 1
        for text in ("", " ", prompt.last_text, str(prompt.columns["number"] * 2 + 1)):
            assert environment.verify(prompt, text).value == 0


def test_the_audit_finds_no_hole() -> None:
    environment = {name}(**FEW)
    rows = [LabelledRow(each.id, each, "", accept=None) for each in environment.prompts()]
    report = audit(environment.verifier, rows, sets=())
    assert report.passed, report.warnings


def test_a_misspelt_argument_is_refused() -> None:
    with pytest.raises(RecipeError, match="did you mean 'largest'"):
        {name}(largets=30)
'''
