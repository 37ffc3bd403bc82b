"""`groupwise audit`: what a verifier's errors are, on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.texts import from_toml

if TYPE_CHECKING:
    from groupwise.verifiers.audit import AuditReport


def audit_source(
    source: str,
    data: Path | None,
    sets: Sequence[str],
    arguments: str,
    limit: int | None,
) -> AuditReport:
    """The audit of a built-in name, a `module:function`, or a recipe's verifiers on its prompts."""
    from groupwise.verifiers import load_verifier
    from groupwise.verifiers.audit import LabelledRow, arguments_of_set, audit, read_rows

    given, rows = arguments_of(arguments), []
    if not source.endswith(".toml"):
        verifier = load_verifier(source, **(given or arguments_of_set(source)))
    elif given:
        raise RecipeError("--arguments are for a verifier's name; a recipe holds its own")
    else:
        from groupwise.environments import environment_from_settings
        from groupwise.recipe import find_recipe, load_recipe

        recipe = load_recipe(find_recipe(source))
        environment = environment_from_settings(recipe.environment, seed=recipe.seed)
        prompts = environment.prompts(split="all")
        verifier = environment.verifier
        rows = [LabelledRow(prompt.id, prompt, "", accept=None) for prompt in prompts]
    if data is not None:
        rows = read_rows(data)
    try:
        return audit(verifier, rows if limit is None else rows[:limit], sets=tuple(sets) or None)
    finally:
        verifier.close()


def arguments_of(text: str) -> dict[str, Any]:
    """The inside of a TOML inline table: `kind = "boxed", tolerance = 0.1`."""
    try:
        table: dict[str, Any] = from_toml(f"arguments = {{ {text} }}")["arguments"]
    except ValueError as error:
        raise RecipeError(
            f"--arguments {text!r} is not TOML ({error}); for example 'kind = \"boxed\"'"
        ) from error
    return table
