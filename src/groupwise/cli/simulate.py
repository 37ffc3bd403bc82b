"""`groupwise simulate`: a recipe's steps on 8 to 4,096 devices, before anybody rents them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli.options import FIELDS, FIELDS_HELP
from groupwise.cli.screen import console
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.recipe import Recipe
    from groupwise.simulation import Costs, Sweep


def add_to(app: typer.Typer) -> None:
    """Make the command part of the command line."""
    app.command(context_settings=FIELDS, epilog=FIELDS_HELP)(simulate)


def simulate(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A run's folder (its lengths and speed are used), or a recipe.")
    ],
    gpu: Annotated[
        str | None, typer.Option(help="An accelerator, as h100; without it one of this machine's.")
    ] = None,
    gpus: Annotated[
        str, typer.Option(help="How many, as 8,64,512; with --gpu 8 to 4096 if omitted.")
    ] = "",
    parameters: Annotated[
        float | None, typer.Option(help="A policy of this size in place of the recipe's, as 70e9.")
    ] = None,
    mean_tokens: Annotated[
        float | None, typer.Option(help="Mean length of a completion; lengths are log-normal.")
    ] = None,
    spread: Annotated[
        float, typer.Option(help="Standard deviation of those lengths' logarithm.")
    ] = 0.8,
    staleness: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Steps that samplers may be ahead of the learner; the recipe's, or 1.",
        ),
    ] = None,
    verify_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds of a verifier's worker for a completion.")
    ] = 0.0,
    verifiers: Annotated[
        int, typer.Option(min=1, help="Workers of verifiers on each machine of 8 devices.")
    ] = 8,
    link: Annotated[
        float, typer.Option(min=0.01, help="GB/s between a device and other machines.")
    ] = 50.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Simulate steps on many devices: utilisation, staleness, best split, where more stop helping.

    Of a run's folder the lengths are the record's, and without --gpu its seconds of each phase
    correct the computed ones: try other settings of the same recipe.
    """
    from groupwise.cli.overrides import parse_overrides

    if find_spec("simpy") is None:
        raise RecipeError("groupwise simulate needs the package simpy: pip install simpy")
    from groupwise.simulation import sweep

    own = (
        "gpu", "gpus", "parameters", "mean_tokens", "spread", "staleness", "verify_seconds",
        "verifiers", "link", "json",
    )  # fmt: skip
    figures = {"link": link, "verify-seconds": verify_seconds, "verifiers": verifiers}
    for name, value in figures.items():
        if not value <= 1e6:
            raise RecipeError(f"--{name} {value:g}: give at most 1e6")
    totals = _totals(gpus, gpu)
    overrides = parse_overrides(context.args, own)
    costs, lengths, ahead = costs_of(source, overrides, gpu, parameters, mean_tokens, spread)
    staleness = min(64, max(1, ahead)) if staleness is None else staleness
    costs = replace(costs, verify=verify_seconds, verifiers=verifiers, link=link * 1e9)
    found = sweep(costs, lengths, totals, staleness=staleness)
    facts = {
        "hardware": costs.hardware.name,
        "mean_tokens": fmean(lengths),
        "longest_tokens": max(lengths),
        "max_staleness": staleness,
        "rows_per_sampler": costs.slots(fmean(lengths)),
        "devices_per_sampler": costs.ways,
        "devices_per_learner_at_least": costs.shards,
        "calibration": asdict(costs.calibration),
        "stops_helping_at": found.stops_at,
    }
    if as_json:
        print(json.dumps({**facts, **asdict(found)}, indent=2))  # noqa: T201
    else:
        _print(found, facts)


def _print(found: Sweep, facts: Mapping[str, Any]) -> None:
    """A row a number of devices, and what the numbers rest on."""
    from groupwise.cli.tables import plain_table
    from groupwise.planning.render import seconds_text
    from groupwise.simulation import WORTH

    columns = (
        "devices", "samplers + learner", "a step", "tokens/s", "samplers busy", "learner busy",
        "staleness",
    )  # fmt: skip
    rows = []
    for each in found.best:
        layout = each.layout
        apart = f"{layout.samplers:,} + {layout.learner:,}"
        rows.append(
            (
                f"{layout.devices:,}",
                "in turn" if layout.colocated else apart,
                seconds_text(each.step),
                f"{each.tokens_per_second:,.0f}",
                f"{each.samplers_busy:.0%}",
                f"{each.learner_busy:.0%}",
                f"{each.staleness:.2g}, at most {each.staleness_max}",
            )
        )
    out = console()
    out.print(plain_table(columns, rows))
    if found.too_few:
        out.print(
            f"policy and optimiser do not fit in {', '.join(map(str, found.too_few))} devices"
        )
    if found.stops_at is not None:
        out.print(
            f"beyond {found.stops_at:,} devices, twice as many give less than {WORTH} times the "
            "tokens a second"
        )
    out.print(
        f"simulated on {facts['hardware']}: completions of {facts['mean_tokens']:.4g} tokens on "
        f"average and at most {facts['longest_tokens']:,}, samplers of "
        f"{facts['devices_per_sampler']} devices with at most {facts['rows_per_sampler']:,} rows"
    )


def costs_of(
    source: str,
    overrides: Mapping[str, Any] | None = None,
    gpu: str | None = None,
    parameters: float | None = None,
    mean_tokens: float | None = None,
    spread: float = 0.8,
) -> tuple[Costs, tuple[int, ...], int]:
    """What a run's folder or a recipe costs on hardware, how long its completions are, and its
    `compute.max_staleness`.

    Without a record and a mean, the mean is half of `sampling.max_tokens`. Raises RecipeError.
    """
    from groupwise.cli.plans import elsewhere
    from groupwise.planning import gpu_named
    from groupwise.recipe import find_recipe, load_recipe
    from groupwise.records import open_run
    from groupwise.simulation import (
        Costs,
        calibrated,
        lognormal,
        recorded_lengths,
        recorded_phases,
    )
    from groupwise.training.planned import own_hardware, plan_of
    from groupwise.training.preparing import prepare

    is_run = (Path(source) / "recipe.toml").is_file()
    file = Path(source) / "recipe.toml" if is_run else find_recipe(source)
    calibrates = is_run and gpu is None and parameters is None
    if calibrates:
        _check_calibrates(source, load_recipe(file))
    prepared = prepare(load_recipe(file, overrides))
    ahead = prepared.recipe.compute.max_staleness
    made, hardware = plan_of(prepared), own_hardware(prepared) if gpu is None else gpu_named(gpu)
    if gpu is not None or parameters is not None:
        made = elsewhere(made, parameters)
    costs = Costs(plan=made, hardware=hardware)
    limit = made.inputs.max_tokens
    run = open_run(source) if is_run else None
    if run is None or mean_tokens is not None:
        mean = max(1.0, limit / 2) if mean_tokens is None else mean_tokens
        lengths = lognormal(mean, spread, limit)
    else:
        lengths = tuple(min(limit, each) for each in recorded_lengths(run))
    if run is None or not calibrates:
        return costs, lengths, ahead
    recorded = Costs(plan=plan_of(prepare(load_recipe(file))), hardware=hardware)
    found = calibrated(recorded, recorded_phases(run.metric_lines()), recorded_lengths(run))
    return replace(costs, calibration=found), lengths, ahead


def _check_calibrates(source: str, recorded: Recipe) -> None:
    """Raises RecipeError for a run whose seconds of a phase are not one device's work in turn."""
    compute, sampler = recorded.compute, recorded.sampling.sampler
    others = {
        f"compute.max_staleness = {compute.max_staleness}": compute.max_staleness > 0,
        f"compute.processes = {compute.processes}": compute.processes > 1,
        f"compute.cluster = {compute.cluster!r}": compute.cluster is not None,
        f"sampling.sampler = {sampler!r}": recorded.sampling.servers is not None,
    }
    for setting, holds in others.items():
        if holds:
            raise RecipeError(
                f"{source} was recorded with {setting}: its seconds are not those of one process "
                "that samples and then learns, so they do not calibrate; give --gpu, or a run "
                "with the default"
            )


def _totals(gpus: str, gpu: str | None) -> tuple[int, ...]:
    from groupwise.simulation import TOTALS

    if not gpus:
        return (1,) if gpu is None else TOTALS
    parts = gpus.split(",")
    if not all(part.strip().isdecimal() and 1 <= int(part) <= 65536 for part in parts):
        raise RecipeError(f"--gpus {gpus}: give numbers from 1 to 65536, as 8,64,512")
    return tuple(sorted({int(part) for part in parts}))
