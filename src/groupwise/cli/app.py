"""The commands. Each body imports what it uses, so that `--help` answers at once."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from groupwise.cli.options import FIELDS, FIELDS_HELP, RecipeName, Small
from groupwise.cli.plan_command import add_to as add_plan_command
from groupwise.cli.record_commands import add_to as add_record_commands
from groupwise.cli.screen import VisibleFormatter, console, visible_lines
from groupwise.cli.serve import serve
from groupwise.cli.simulate import add_to as add_simulate_command
from groupwise.errors import GroupwiseError
from groupwise.texts import counted

if TYPE_CHECKING:
    from groupwise.records import Run

app = typer.Typer(
    name="groupwise",
    help="Critic-free reinforcement learning for language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
algorithms_app = typer.Typer(help="The algorithms: list them, or show one.")
models_app = typer.Typer(help="The built-in models: list them, or get one.")
app.add_typer(algorithms_app, name="algorithms", invoke_without_command=True)
app.add_typer(models_app, name="models", invoke_without_command=True)

Step = Annotated[int | None, typer.Option(help="The checkpoint after this many steps.")]
Best = Annotated[bool, typer.Option(help="The best checkpoint, by checkpoints.best.")]


def _out() -> Console:
    return console()


def _err() -> Console:
    return console(stderr=True, soft_wrap=True)


def _version(value: bool) -> None:
    if value:
        from groupwise import __version__

        print(f"groupwise {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Critic-free reinforcement learning for language models."""


@app.command(context_settings=FIELDS, epilog=FIELDS_HELP)
def train(
    context: typer.Context,
    recipe: RecipeName,
    output: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/<recipe>-<number> by default.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --output.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace the run in --output.")] = False,
    small: Small = False,
    replay_schedule: Annotated[
        Path | None, typer.Option(help="Repeat the asynchronous run in this folder bit for bit.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No progress, only the closing table.")] = False,
) -> None:
    """Train by a recipe: progress on standard error, the closing table on standard output."""
    from groupwise.cli.live_doctor import LiveDoctor
    from groupwise.cli.overrides import parse_overrides
    from groupwise.cli.progress import ProgressDisplay
    from groupwise.cli.tables import closing_table, stages_tables
    from groupwise.distributed import first_process

    own = ("output", "resume", "overwrite", "small", "replay-schedule", "quiet")
    display = ProgressDisplay(console(stderr=True, quiet=quiet))
    overrides = parse_overrides(context.args, own)
    try:
        run = trainer_of(recipe, overrides)(
            recipe,
            overrides,
            output=output,
            resume=resume,
            overwrite=overwrite,
            small=small,
            replay_schedule=replay_schedule,
            callbacks=[display, LiveDoctor(display.say)],
        )
    finally:
        display.stop()
    if not first_process():
        return
    summary = run.summary
    for table in stages_tables(summary) if "stages" in summary else [closing_table(summary)]:
        _out().print(table)
    _out().print(f"the run's record is in {run.folder}")


def trainer_of(recipe: str, overrides: Mapping[str, Any]) -> Callable[..., Run]:
    """What trains a recipe: `cluster.train` where it names a cluster."""
    from groupwise import cluster, stages
    from groupwise.recipe import NONE, find_recipe, parse_value, read_table

    table = read_table(find_recipe(recipe))
    compute = table.get("compute")
    written = compute.get("cluster") if isinstance(compute, Mapping) else None
    named = overrides.get("compute.cluster", written)
    is_run = not stages.is_pipeline(table)
    return cluster.train if is_run and parse_value(named) not in (None, NONE) else stages.train


@app.command(name="recipe")
def explain_recipe(
    field: Annotated[
        str, typer.Argument(help="A field or table, as training.steps or sampling; all if omitted.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the fields as JSON.")] = False,
) -> None:
    """Explain the fields of a recipe: type, default and meaning."""
    from dataclasses import asdict

    from groupwise.cli.fields import print_fields, recipe_fields

    fields = recipe_fields(field)
    if as_json:
        print(json.dumps([asdict(each) for each in fields], indent=2))  # noqa: T201
    else:
        print_fields(fields, _out(), field)


@app.command(name="eval", context_settings=FIELDS, epilog=FIELDS_HELP)
def evaluate(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A run's folder, or a recipe (its model as is).")],
    step: Step = None,
    best: Best = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
) -> None:
    """Evaluate a run's checkpoint, or a model on a recipe's environment."""
    from groupwise.cli.overrides import parse_overrides
    from groupwise.cli.tables import plain_table
    from groupwise.training.trained import evaluate_source

    overrides = parse_overrides(context.args, ("step", "best", "json"))
    metrics = evaluate_source(source, overrides, step=step, best=best)
    if as_json:
        print(json.dumps(metrics, indent=2))  # noqa: T201
        return
    rows = [(name, "-" if value is None else f"{value:.4g}") for name, value in metrics.items()]
    _out().print(plain_table(("metric", "value"), rows))


add_plan_command(app)
add_simulate_command(app)


@app.command(context_settings=FIELDS, epilog=FIELDS_HELP)
def suggest(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(help="Rows (a file, as the dataset environment reads), or an environment."),
    ],
    model: Annotated[str, typer.Option(help="A built-in model, a folder or a hub id.")],
    verifier: Annotated[
        str | None, typer.Option(help="What judges completions; by the answers' form if omitted.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Sample so many prompts at most.")] = 50,
    samples: Annotated[int, typer.Option(min=8, help="Completions of each prompt.")] = 32,
    output: Annotated[Path | None, typer.Option(help="Write the recipe to this new file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure a model on your prompts: what to start with, at which group size; writes a recipe."""
    from groupwise.cli.overrides import parse_overrides
    from groupwise.cli.suggest import suggest as measure

    own = ("model", "verifier", "prompts", "samples", "output", "json")
    found = measure(
        data,
        model,
        parse_overrides(context.args, own),
        verifier=verifier,
        prompts=prompts,
        samples=samples,
        output=output,
        say=_err().print,
    )
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))  # noqa: T201
    else:
        found.print(_out())
    if output is not None:
        _err().print(f"the recipe is in {output}: groupwise train {output}")


@app.command(name="verify-resume", context_settings=FIELDS, epilog=FIELDS_HELP)
def verify_resume(
    context: typer.Context,
    recipe: RecipeName,
    small: Small = False,
    kills: Annotated[
        int, typer.Option(help="Kills at random times, besides those at named instants.")
    ] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Kill a recipe's run at many instants, resume it, and compare it with the unbroken run."""
    from groupwise.cli.overrides import parse_overrides
    from groupwise.proving import verify_resume as verify

    overrides = parse_overrides(context.args, ("small", "kills", "json"))
    found = verify(recipe, overrides, small=small, kills=kills, progress=_err().print)
    print(json.dumps(found.to_dict(), indent=2) if as_json else found.text())  # noqa: T201
    if not found.equal:
        raise typer.Exit(1)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    target: Annotated[Path, typer.Argument(help="A new folder for the model.")],
    step: Step = None,
    best: Best = False,
    merge: Annotated[
        bool, typer.Option(help="Of a run with an adapter: the whole model, not the adapter alone.")
    ] = False,
) -> None:
    """Write a run's policy as a folder that transformers loads, or its adapter for peft."""
    from groupwise.policies import refuse_full, save_pretrained
    from groupwise.training.trained import trained_policy

    refuse_full(target)
    policy = trained_policy(run, step=step, best=best)
    save_pretrained(policy, target, merge=merge)
    _err().print(f"the policy after {counted(policy.version, 'step')} is in {target}")


@app.command()
def audit(
    verifier: Annotated[
        str, typer.Argument(help="A built-in name, module:function, module:Class, or a recipe.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="JSON lines: prompt, answer, columns; also completion with accept."),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="A shipped labelled set; may be repeated.")
    ] = None,
    arguments: Annotated[
        str, typer.Option(help="The verifier's arguments as TOML: 'kind = \"boxed\"'.")
    ] = "",
    limit: Annotated[int | None, typer.Option(help="Use the first so many rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure a verifier's errors and try to fool it; exit code 1 where that works."""
    from groupwise.cli.audit import audit_source

    report = audit_source(verifier, data, sets or [], arguments, limit)
    plain = visible_lines(report.text())
    text = json.dumps(report.to_dict(), indent=2) if as_json else plain
    print(text)  # noqa: T201
    if not report.passed:
        raise typer.Exit(1)


@app.command(context_settings=FIELDS)
def search(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model's name or folder, or a run's folder.")],
    data: Annotated[Path, typer.Option(help="A file of rows with prompt and answer.")],
    method: Annotated[
        str, typer.Option(help="best_of_n, majority, weighted, process, beam, verbalized, budget.")
    ] = "majority",
    samples: Annotated[int, typer.Option(help="Completions a prompt.")] = 8,
    verifier: Annotated[
        str | None, typer.Option(help="Scores completions; the policy's likelihood by default.")
    ] = None,
    arguments: Annotated[
        str, typer.Option(help="The verifier's arguments as TOML: 'model = \"folder\"'.")
    ] = "",
    correct_by: Annotated[
        str, typer.Option(help="The verifier that finds the answer and says if it is right.")
    ] = "number",
    limit: Annotated[int | None, typer.Option(help="Use the first so many rows.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the curves to this SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Spend more samples on an answer: accuracy against samples and tokens, with intervals.

    Further fields are options too: --max-tokens 80, --combine product (docs/search.md).
    """
    from groupwise.cli.overrides import parse_options
    from groupwise.cli.search import print_search, search_model
    from groupwise.search.settings import SearchSettings

    fields = parse_options(context.args, SearchSettings.model_fields)
    result = search_model(
        model,
        data,
        {"method": method, "samples": samples, **fields},
        correct_by=correct_by,
        verifier=verifier,
        arguments=arguments,
        limit=limit,
        plot=plot,
    )
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))  # noqa: T201
    else:
        print_search(result, _out())


@app.command()
def init(
    kind: Annotated[
        Literal["verifier", "loss", "environment"], typer.Argument(help="What to begin.")
    ],
    name: Annotated[str, typer.Argument(help="The module's name, as my_verifier.")],
    folder: Annotated[Path, typer.Option(help="Where the two files go.")] = Path(),
) -> None:
    """Scaffold a file of your own: NAME.py to fill in, and test_NAME.py."""
    from groupwise.cli.scaffold import write_files

    for path in write_files(kind, name, folder):
        print(path)  # noqa: T201
    _err().print(f"run the test: python -m pytest {folder / f'test_{name}.py'}")


@algorithms_app.callback()
@algorithms_app.command(name="list")
def list_algorithms(context: typer.Context) -> None:
    """List the algorithms and their parts."""
    if context.invoked_subcommand is not None:
        return
    from groupwise.algorithms import PRESETS, describe, preset
    from groupwise.algorithms.describe import describe_part, every_part
    from groupwise.cli.tables import plain_table

    rows = [(name, describe(preset(name)).title) for name in PRESETS]
    _out().print(plain_table(("preset", "what it is"), rows))
    parts = [describe_part(cls) for cls in every_part()]
    shown = [(each.slot, each.kind, ", ".join(each.aliases)) for each in parts]
    _out().print(plain_table(("slot", "part", "also called"), shown))


@algorithms_app.command(name="show")
def show_algorithm(
    name: Annotated[str, typer.Argument(help="A preset, a part, or another name of a part.")],
) -> None:
    """Formula, parts, citation and what was verified of an algorithm; or what one part does."""
    from groupwise.algorithms import PRESETS, describe, preset
    from groupwise.algorithms.describe import describe_parts

    found = [describe(preset(name))] if name in PRESETS else describe_parts(name)
    print("\n\n".join(each.text() for each in found))  # noqa: T201


@models_app.callback()
def list_models(context: typer.Context) -> None:
    """List the built-in models."""
    if context.invoked_subcommand is not None:
        return
    from groupwise.cli.tables import plain_table
    from groupwise.policies import models

    rows = [(entry.name, entry.summary) for entry in models()]
    _out().print(plain_table(("model", "what it is"), rows))


@models_app.command(name="get")
def get_model(name: Annotated[str, typer.Argument(help="A built-in model's name.")]) -> None:
    """Fetch or build a built-in model; prints its folder."""
    from groupwise.errors import RecipeError
    from groupwise.policies import get_model as find
    from groupwise.policies import models

    entry = find(name)
    if entry is None:
        known = ", ".join(entry.name for entry in models())
        raise RecipeError(f"no built-in model is called {name!r}; there are {known}")
    print(entry.get())  # noqa: T201


add_record_commands(app)
app.command()(serve)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; ends the process with its exit code."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.showwarning = _show_warning
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("groupwise").setLevel(logging.INFO)
    sys.exit(run(arguments))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning is a sentence for a person, not a line of source."""
    _note(str(message))


@cache
def _note(text: str) -> None:
    """Said once, though several places read the file that it is about."""
    _err().print(f"note: {text}")


def run(arguments: list[str] | None = None) -> int:
    """The exit code of a command line. Only what a user can act on is caught."""
    try:
        result: Any = app(args=arguments, standalone_mode=False)
    except GroupwiseError as error:
        _err().print(f"groupwise: {error}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _err().print("groupwise: interrupted")
        return 130
    except typer.Exit as error:
        return error.exit_code
    except Exception as error:
        code = getattr(error, "exit_code", None)  # click's usage errors
        if not isinstance(code, int) or not hasattr(error, "format_message"):
            raise
        if message := error.format_message().replace("Value error, ", ""):  # typer's, by pydantic
            _err().print(f"groupwise: {message}")
        return code
    return result if isinstance(result, int) else 0
