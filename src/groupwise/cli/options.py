"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

FIELDS = {"allow_extra_args": True, "ignore_unknown_options": True}
FIELDS_HELP = (
    "Every field of the recipe is an option as well: --training.steps 50. "
    "`groupwise recipe` lists them all with meaning and default."
)

RecipeName = Annotated[str, typer.Argument(help="A TOML file, or the name of one that ships.")]
Small = Annotated[bool, typer.Option(help="A tiny size of the same recipe.")]
