"""The commands that read records: report, view, doctor, diff, replay, import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from groupwise.cli.screen import console
from groupwise.errors import RecipeError
from groupwise.texts import counted, visible

if TYPE_CHECKING:
    from groupwise.replay import UpdateReplay, VerdictReplay

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def add_to(app: typer.Typer) -> None:
    """Make these commands part of the command line."""
    app.command()(report)
    app.command()(view)
    app.command()(doctor)
    app.command()(diff)
    app.command()(replay)
    app.command(name="import")(import_record)


def _out() -> Console:
    return console(soft_wrap=True)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    output: Annotated[
        Path | None, typer.Option(help="The HTML file; RUN/report.html by default.")
    ] = None,
    groups: Annotated[int, typer.Option(min=1, help="Groups of rollouts in the page.")] = 120,
) -> None:
    """Write one HTML file of runs: questions, curves, rollouts, the doctor. No network needed."""
    from groupwise.dashboard import write_report

    path = write_report(runs, output or runs[0] / "report.html", groups=groups)
    _out().print(f"the report is in {path} ({path.stat().st_size / 1e6:.1f} MB)")


def view(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, running ones too.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
) -> None:
    """Serve the report of runs live, on this machine alone; Ctrl-C ends it."""
    from groupwise.dashboard.server import view as serve

    serve(runs, port=port, say=_out().print)


def doctor(
    run: Annotated[Path, typer.Argument(help="A run's folder, while it runs or after.")],
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a run, with evidence, samples and the change to try.

    Exit code 1 where something is (information alone is 0).
    """
    from groupwise.doctor import diagnose

    found = diagnose(run)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))  # noqa: T201
    else:
        _out().print(found.text())
    if not found.healthy:
        raise typer.Exit(1)


def diff(
    a: Annotated[Path, typer.Argument(help="A run's folder.")],
    b: Annotated[Path, typer.Argument(help="Another run's folder.")],
    plot: Annotated[
        Path | None, typer.Option(help="Write their metrics side by side into this SVG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: recipe, code, data, versions, and the first step where they part.

    Exit code 1 where they differ.
    """
    from groupwise.records import diff as compare
    from groupwise.records import open_run
    from groupwise.records.compare_plot import plot as plotted
    from groupwise.records.files import check_suffix, write_for_user

    if plot is not None:
        check_suffix(plot, "--plot", ".svg")
    found = compare(a, b)
    if plot is not None:
        write_for_user(plot, plotted(open_run(a), open_run(b), found), "--plot")
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, default=str))  # noqa: T201
    else:
        _out().print("\n".join(found.lines()))
    if not found.equal:
        raise typer.Exit(1)


def replay(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    verifier: Annotated[
        str | None,
        typer.Option(help="Judge the saved rollouts by it: a built-in name or module:function."),
    ] = None,
    arguments: Annotated[
        str, typer.Option(help="The verifier's arguments as TOML: 'kind = \"boxed\"'.")
    ] = "",
    step: Annotated[
        int | None, typer.Option(help="Only this step; with --algorithm the step it recomputes.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="A preset: what its update of --step would have been.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Print so many samples.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Judge saved rollouts by another verifier, or recompute a step by another algorithm."""
    from groupwise.algorithms import preset
    from groupwise.cli.audit import arguments_of
    from groupwise.dashboard.data import token_texts
    from groupwise.records import open_run
    from groupwise.replay import replay_update, replay_verdicts
    from groupwise.verifiers import load_verifier

    record = open_run(run)
    named = None if algorithm is None else preset(algorithm)
    if verifier is not None:
        judge = load_verifier(verifier, **arguments_of(arguments))
        try:
            verdicts = replay_verdicts(
                record, judge, steps=None if step is None else [step], algorithm=named
            )
        finally:
            judge.close()
        text, table = _verdict_text(verdicts, show), verdicts.to_dict()
    elif named is not None and step is not None:
        update = replay_update(record, step, named)
        text, table = _update_text(update, show, token_texts(record)), update.to_dict()
    else:
        raise RecipeError("give --verifier NAME, or --step N with --algorithm NAME")
    if as_json:
        print(json.dumps(table, indent=2))  # noqa: T201
    else:
        _out().print(text)


def import_record(
    source: Annotated[Literal["trl-completions", "jsonl"], typer.Argument(help="What it is.")],
    path: Annotated[Path, typer.Argument(help="The file, or the folder of such files.")],
    output: Annotated[Path, typer.Option(help="The new record's folder.")],
) -> None:
    """Make a record of rollouts that TRL, veRL or another library wrote."""
    from groupwise.records.importing import import_rollouts

    run = import_rollouts(source, path, output)
    _out().print(f"the record of {counted(len(run.steps), 'step')} is in {run.folder}")


def _verdict_text(found: VerdictReplay, show: int) -> str:
    changed = len(found.changes)
    reward = ["-" if value is None else f"{value:.4f}" for value in found.reward]
    lines = [
        f"{changed} of {found.rollouts} verdicts change; mean reward {reward[0]} -> {reward[1]}",
        f"groups with signal: {found.signal[0]} -> {found.signal[1]} of {found.groups}",
        f"advantages by {found.algorithm}: moved by {found.moved:.4f} on average, "
        f"{found.flipped} of them change sign",
        *(f"note: {note}" for note in found.notes),
    ]
    moves = [(pair, n) for pair, n in found.outcomes.items() if pair[0] != pair[1]]
    for (before, after), number in sorted(moves, key=lambda each: -each[1]):
        lines.append(f"  {before} -> {after}: {number}")
    for change in found.changes[:show]:
        lines += [
            "",
            f"step {change.step}, prompt {visible(change.prompt_id)}, "
            f"completion {change.group_index}, answer {change.answer!r:.80}",
            f"  {change.text!r:.300}",
            f"  before {_verdict(change.before)}",
            f"  after  {_verdict(change.after)}",
        ]
    return "\n".join(lines)


def _verdict(verdict: tuple[float | None, str, str]) -> str:
    value, outcome, reason = verdict
    shown = f"{value} {outcome}: {reason:.160}" if reason else f"{value} {outcome}"
    return visible(shown)


def _update_text(found: UpdateReplay, show: int, text_of: Callable[[int], str]) -> str:
    own, other = found.algorithms
    cosine = "none (one of them is 0)" if found.cosine is None else f"{found.cosine:.4f}"
    lines = [
        f"step {found.step}: {own} against {other}, over {counted(found.tokens, 'sampled token')}",
        f"norm of the loss weights: {found.norms[0]:.4g} -> {found.norms[1]:.4g}",
        f"cosine between the two updates: {cosine}",
        f"tokens that one raises and the other lowers: {found.flipped}",
    ]
    if found.recorded_cosine is not None:
        lines.append(
            f"cosine of {own}, recomputed, with what was recorded: {found.recorded_cosine:.4f}"
        )
    lines += [f"note: {note}" for note in found.notes]
    if show:
        lines += ["", "tokens that differ most:"]
    for token in found.moved_tokens(show):
        where = f"prompt {visible(token.prompt_id)}, completion {token.group_index}"
        lines.append(
            f"  {text_of(token.token_id)!r:<14} {where}, token {token.position}: "
            f"{token.before:+.3g} -> {token.after:+.3g}"
        )
    moved = sorted(
        found.rows, key=lambda row: -sum(abs(a - b) for a, b in zip(row["before"], row["after"]))
    )
    for row in moved[:show]:
        lines += [
            "",
            f"prompt {visible(row['prompt_id'])}, completion {row['group_index']}: "
            f"{row['text']!r:.200}",
            f"  {own:<12} {_weights(row['before'])}",
            f"  {other:<12} {_weights(row['after'])}",
        ]
    return "\n".join(lines)


def _weights(values: list[float], most: int = 12) -> str:
    shown = " ".join(f"{value:+.3g}" for value in values[:most])
    return shown if len(values) <= most else f"{shown} ... ({len(values)} tokens)"
