"""`groupwise audit`: what a verifier's errors are, on standard output."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.verifiers import Verifier
    from groupwise.verifiers.audit import AuditReport, LabelledRow


def audit_source(
    source: str,
    data: Path | None,
    sets: Sequence[str],
    arguments: str,
    limit: int | None,
) -> AuditReport:
    """The audit of a built-in name, a `module:function`, or a recipe's verifiers on its prompts."""
    from groupwise.verifiers.audit import audit, read_rows

    verifier, rows = verifier_of(source, _arguments(arguments))
    if data is not None:
        rows = read_rows(data)
    if limit is not None:
        rows = rows[:limit]
    try:
        return audit(verifier, rows, sets=tuple(sets) or None)
    finally:
        verifier.close()


def verifier_of(source: str, arguments: Mapping[str, Any]) -> tuple[Verifier, list[LabelledRow]]:
    """The verifier that `source` names, and the prompts of its recipe where it is one."""
    from groupwise.verifiers import load_verifier
    from groupwise.verifiers.audit import LabelledRow, arguments_of_set

    if not source.endswith(".toml"):
        return load_verifier(source, **(arguments or arguments_of_set(source))), []
    from groupwise.environments import environment_from_settings
    from groupwise.recipe import find_recipe, load_recipe

    if arguments:
        raise RecipeError("--arguments are for a verifier's name; a recipe holds its own")
    recipe = load_recipe(find_recipe(source))
    environment = environment_from_settings(recipe.environment, seed=recipe.seed)
    prompts = environment.prompts(split="all")
    return environment.verifier, [LabelledRow(p.id, p, "", accept=None) for p in prompts]


def _arguments(text: str) -> dict[str, Any]:
    """The inside of a TOML inline table: `kind = "boxed", tolerance = 0.1`."""
    try:
        table: dict[str, Any] = tomllib.loads(f"arguments = {{ {text} }}")["arguments"]
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(
            f"--arguments {text!r} is not TOML ({error}); for example 'kind = \"boxed\"'"
        ) from error
    return table
