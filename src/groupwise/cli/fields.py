"""`groupwise recipe [FIELD]`: what every field of a recipe means, its type and its default."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding

from groupwise.environments import settings_class
from groupwise.errors import RecipeError
from groupwise.recipe import field_table, model_fields_table
from groupwise.stages import stage_fields
from groupwise.suggestions import nearest_field

FieldRow = tuple[str, str, str, str]
_ELSEWHERE = {
    "stages": "The tables of an ordinary recipe (training, sampling, ...) are fields of an rl "
    "stage: groupwise recipe",
    "environment": "Every other key is an argument of the named environment: "
    "groupwise recipe environment.arithmetic",
    "algorithm": "Presets: groupwise algorithms. The parts and fields of one: "
    "groupwise algorithms show grpo",
}


@dataclass(frozen=True, slots=True)
class RecipeField:
    """One field. `kind` is its type in words, `default` its TOML text, or `required` or `none`."""

    name: str
    kind: str
    default: str
    description: str


def recipe_fields(name: str = "") -> list[RecipeField]:
    """The field called `name`, all fields of the table `name`, or every field.

    `environment.<built-in name>` gives that environment's own arguments, `stages` those of every
    kind of stage, `stages.<kind>` of one. Raises RecipeError with the nearest name.
    """
    is_stage = name.partition(".")[0] == "stages"
    rows = stage_fields() if is_stage else field_table()
    found = _within(rows, name)
    if not found and name.startswith("environment."):
        _, environment, *argument = name.split(".", 2)
        rows = model_fields_table(settings_class(environment), "environment.")
        found = _within(rows, ".".join(["environment", *argument]))
    if not found:
        raise _unknown(name, [row[0] for row in rows])
    return [
        RecipeField(field, _kind(kind), _default(default), " ".join(words.split()))
        for field, kind, default, words in found
    ]


def _within(rows: Sequence[FieldRow], name: str) -> list[FieldRow]:
    return [row for row in rows if not name or row[0] == name or row[0].startswith(f"{name}.")]


def print_fields(fields: Sequence[RecipeField], console: Console, name: str = "") -> None:
    """Each field as two lines: name, type and default; then what it means."""
    for field in fields:
        console.print(f"{field.name}: {field.kind}, default {field.default}")
        console.print(Padding(field.description, (0, 0, 0, 4)))
    if more := _ELSEWHERE.get(name):
        console.print(more)


def _unknown(name: str, names: Sequence[str]) -> RecipeError:
    tables = {each.rpartition(".")[0] for each in names} - {""}
    near = nearest_field(name, [*names, *sorted(tables)])
    hint = f"did you mean {near}?" if near else f"the tables are {', '.join(sorted(tables))}"
    return RecipeError(f"a recipe has no field {name!r}; {hint}")


def _kind(kind: str) -> str:
    """A type as a user writes the value: `Literal['a', 'b']` -> `"a" or "b"`."""
    if kind.startswith("Optional["):
        kind = f"{kind[9:-1]} | None"
    options = re.search(r"Literal\[(.*?)\]", kind)
    if options is not None:
        choices = options[1].replace("'", '"').split(", ")
        outside = kind.replace(options[0], "")
        words = {"int": "whole number", "float": "number", "tuple": "a list", "None": "none"}
        rest = [word for name, word in words.items() if re.search(rf"\b{name}\b", outside)]
        return " or ".join([*choices, *rest])
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    words |= {"tuple": "list", "dict": "table", "date": "date", "None": "none"}
    kind = kind.replace(", ...", "").replace("tuple[", "list[")
    return " or ".join(words.get(each, each) for each in kind.split(" | "))


def _default(default: str) -> str:
    plain: dict[str, Any] = {"None": "none", "True": "true", "False": "false", "()": "[]"}
    if default.startswith("("):
        default = plain.get(default) or f"[{default[1:-1].rstrip(',')}]"
    date = re.fullmatch(r"datetime\.date\((\d+), (\d+), (\d+)\)", default)
    if date is not None:
        return "-".join(part.zfill(2) for part in date.groups())
    if default.startswith("'"):
        default = '"' + default[1:-1] + '"'
    return str(plain.get(default, default))
