"""`groupwise plan`: what a recipe will take, before anything loads."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from groupwise.cli.options import FIELDS, FIELDS_HELP, RecipeName, Small
from groupwise.cli.screen import console


def add_to(app: typer.Typer) -> None:
    """Make the command part of the command line."""
    app.command(context_settings=FIELDS, epilog=FIELDS_HELP)(plan)


def plan(
    context: typer.Context,
    recipe: RecipeName,
    small: Small = False,
    compare: Annotated[
        str | None, typer.Option(help="Another algorithm, ppo for instance: memory side by side.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="An accelerator in place of this machine, as h100.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1,
    parameters: Annotated[
        float | None, typer.Option(help="A policy of this size in place of the recipe's, as 70e9.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="Of one accelerator and hour: shows the cost.")
    ] = None,
    mean_tokens: Annotated[
        float | None,
        typer.Option(min=1, help="Mean length of a completion for the time; else the limit."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show what a recipe will sample, hold in memory, write, and take in time, without loading it.

    With --gpu or --parameters the figures are computed for hardware or a size that is not at hand.
    """
    from groupwise.cli.overrides import parse_overrides
    from groupwise.cli.pipeline_plan import PipelinePlan
    from groupwise.cli.plans import comparison_of, estimate_of
    from groupwise.errors import RecipeError
    from groupwise.recipe import find_recipe, load_recipe
    from groupwise.stages import is_pipeline, load_pipeline
    from groupwise.training.preparing import prepare

    own = ("small", "compare", "gpu", "count", "parameters", "price", "mean_tokens", "json")
    overrides = parse_overrides(context.args, own)
    out = console()
    if is_pipeline(find_recipe(recipe)):
        if compare or gpu or parameters or price or mean_tokens:
            raise RecipeError(
                f"{recipe} is a pipeline; --compare, --gpu, --parameters, --price and "
                "--mean-tokens take a recipe of one run"
            )
        whole = PipelinePlan(load_pipeline(find_recipe(recipe), overrides, small=small))
        if as_json:
            print(json.dumps(whole.to_dict(), indent=2))  # noqa: T201
        else:
            whole.print(out)
        return
    prepared = prepare(load_recipe(find_recipe(recipe), overrides, small=small))
    if compare is not None:
        parts: list[Any] = [comparison_of(prepared, compare)]
    else:
        found = estimate_of(prepared, gpu, count, parameters, price, mean_tokens)
        parts = [found.plan, found]
    if as_json:
        merged = {key: value for part in parts for key, value in part.to_dict().items()}
        print(json.dumps(merged, indent=2))  # noqa: T201
    for part in [] if as_json else parts:
        part.print(out)
