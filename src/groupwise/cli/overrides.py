"""`--any.field value` on the command line: every field of a recipe is a flag."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.errors import RecipeError
from groupwise.suggestions import nearest_field

_TOP_LEVEL = ("seed",)


def parse_overrides(arguments: Sequence[str], options: Sequence[str] = ()) -> dict[str, str]:
    """`["--training.steps", "50", "--seed=3"]` to `{"training.steps": "50", "seed": "3"}`.

    `options` are the command's own options, for the hint on a misspelt one. Raises RecipeError.
    """
    overrides: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--") or flag == "--":
            raise RecipeError(f"{flag!r} is not expected here; a field is given as --field value")
        name, equals, value = flag[2:].partition("=")
        if "." not in name and name not in _TOP_LEVEL:
            raise RecipeError(_unknown(name, options))
        if not equals:
            if not rest:
                raise RecipeError(f"--{name} has no value; for example --training.steps 50")
            value = rest.pop(0)
        overrides[name] = value
    return overrides


def _unknown(name: str, options: Sequence[str]) -> str:
    from groupwise.recipe import field_table

    fields = [row[0] for row in field_table()]
    if inside := [field for field in fields if field.startswith(f"{name}.")]:
        return f"--{name} is a table; give one of its fields, for example --{inside[0]}"
    near = nearest_field(name, [*fields, *options])
    hint = f"; did you mean --{near}?" if near else "; a field is given as --table.field value"
    return f"unknown option --{name}{hint}"
