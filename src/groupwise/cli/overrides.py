"""`--any.field value` on the command line: every field of a recipe is a flag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupwise.errors import RecipeError
from groupwise.suggestions import nearest_field, unknown

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


def parse_options(arguments: Sequence[str], fields: Iterable[str]) -> dict[str, str]:
    """`["--max-tokens", "50"]` to `{"max_tokens": "50"}`, for the fields of one table.

    Raises RecipeError for an option without a value, and for an unknown one.
    """
    legal = [each.replace("_", "-") for each in fields]
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        name = flag.removeprefix("--")
        if not flag.startswith("--") or name not in legal:
            raise RecipeError(unknown(f"option {flag}", name, legal))
        if not equals and not rest:
            raise RecipeError(f"{flag} has no value; for example --max-tokens 80")
        found[name.replace("-", "_")] = value if equals else rest.pop(0)
    return found
