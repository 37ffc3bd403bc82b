"""`groupwise recipe [FIELD]`: every field explained from the models themselves."""

from __future__ import annotations

import json

import pytest

from groupwise.cli.app import run
from groupwise.cli.fields import recipe_fields
from groupwise.errors import RecipeError
from groupwise.recipe import field_table


def test_every_field_has_a_meaning_a_type_and_a_default() -> None:
    fields = {field.name: field for field in recipe_fields()}
    assert list(fields) == [row[0] for row in field_table()]
    assert all(field.description and field.kind and field.default for field in fields.values())
    assert fields["training.steps"].default == "200"
    assert fields["training.betas"].default == "[0.9, 0.999]"
    assert fields["template.date"].default == "2025-01-01"
    assert fields["model.adapter.target_modules"].kind == '"all-linear" or a list'
    assert fields["training.threads"].kind == '"auto" or whole number'
    assert fields["checkpoints.best_direction"].kind == '"higher" or "lower" or none'


def test_a_table_a_field_and_an_environments_arguments() -> None:
    assert [field.name for field in recipe_fields("checkpoints")][:2] == [
        "checkpoints.every",
        "checkpoints.keep",
    ]
    (steps,) = recipe_fields("training.steps")
    assert (steps.kind, steps.default) == ("whole number", "200")
    assert "environment.level" in [field.name for field in recipe_fields("environment.arithmetic")]
    (level,) = recipe_fields("environment.arithmetic.level")
    assert level.default == '"table"'


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("training.scheduel", "training.schedule"),
        ("trainig", "training"),
        ("group_size", "sampling.group_size"),
        ("environment.arithmetik", "'arithmetic'"),
        ("environment.arithmetic.levle", "environment.level"),
    ],
)
def test_a_misspelt_field_names_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(RecipeError, match=f"did you mean {nearest}"):
        recipe_fields(given)


def test_the_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "training.steps"]) == 0
    assert capsys.readouterr().out.startswith("training.steps: whole number, default 200\n    ")
    assert run(["recipe", "training.steps", "--json"]) == 0
    (field,) = json.loads(capsys.readouterr().out)
    assert field["default"] == "200"
    assert run(["recipe", "nothing.here"]) == 2


@pytest.mark.parametrize(
    ("flag", "value", "legal"),
    [
        ("sampling.stop", "</answer>", 'write ["</answer>"]'),
        ("training.betas", "(0.9,0.95)", "write [0.9,0.95]"),
        ("evaluation.pass_at_k", "4", "write [4]"),
        ("training.threads", "0", "training.threads = 0: expected 'auto'"),
        ("training.threads", "0", "training.threads = 0: must be at least 1"),
    ],
)
def test_a_wrong_value_is_refused_with_a_legal_one(
    flag: str, value: str, legal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "tiny_arithmetic", f"--{flag}", value]) == 2
    message = capsys.readouterr().err
    assert f"{flag} = " in message
    assert legal in message
    assert "tuple" not in message
