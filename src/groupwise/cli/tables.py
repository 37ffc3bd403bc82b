"""Tables that a command ends with, on standard output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from groupwise.cli.progress import only_heldout, show
from groupwise.records import Value
from groupwise.texts import counted

_ACCURACIES = (
    ("all prompts, sampled", "eval/accuracy"),
    ("all prompts, greedy", "eval/greedy"),
    ("all prompts, strict verifiers", "eval/strict"),
    ("held-out prompts, sampled", "eval/heldout"),
    ("held-out prompts, greedy", "eval/heldout_greedy"),
    ("held-out prompts, strict verifiers", "eval/heldout_strict"),
)


def closing_table(summary: Mapping[str, Any]) -> Table:
    """Before and after, with 95 % intervals, then KL, tokens and time."""
    first, last = summary.get("eval/first", {}), summary.get("eval/last", {})
    table = Table(title=counted(summary["steps"], "step"))
    table.add_column("accuracy")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    accuracies = _ACCURACIES[3:] if only_heldout(last) else _ACCURACIES
    for label, key in accuracies:
        if last.get(key) is not None or first.get(key) is not None:
            table.add_row(label, _with_interval(first, key), _with_interval(last, key))
    for label, key in _verifier_rows(last):
        table.add_row(label, *(show(each.get(key), "{:.3g}") for each in (first, last)))
    table.add_section()
    table.add_row("mean reward of the last step", "", show(summary["reward_last"], "{:.3f}"))
    table.add_row(
        "KL to the starting policy, nats a completion", "", show(summary["kl_last"], "{:.3f}")
    )
    if summary.get("updates/nonfinite"):
        table.add_row("updates skipped as not finite", "", str(summary["updates/nonfinite"]))
    table.add_row("tokens trained on", "", f"{summary['tokens']:,}")
    table.add_row("seconds", "", f"{summary['seconds']:.1f}")
    return table


def stages_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """A row for each stage: its loss and the guard set's accuracies, then the verifiers' means."""
    stages = summary["stages"]
    rows = [("(before)", "", stages[0]["first"])]
    for stage in stages:
        unfinished = stage["status"] if stage["status"] != "finished" else None
        rows.append((stage["name"], unfinished or stage["kind"], stage["last"]))
    table = Table(
        title=f"{counted(len(stages), 'stage')}, {summary['status']}",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("after")
    table.add_column("kind")
    for label in ("loss", "accuracy (95 %)", "greedy", "tokens"):
        table.add_column(label, justify="right")
    for name, kind, values in rows:
        table.add_row(
            name,
            kind,
            show(values.get("loss"), "{:.4g}"),
            _with_interval(values, "guard/accuracy"),
            show(values.get("guard/greedy"), "{:.1%}"),
            show(values.get("guard/tokens_mean"), "{:.1f}"),
        )
    yield table
    prefix = "guard/verifier/"
    verifiers = {key: None for _, _, values in rows for key in values if key.startswith(prefix)}
    if len(verifiers) > 1:
        table = Table(
            title="mean of each verifier on the guard set", box=SIMPLE_HEAD, pad_edge=False
        )
        table.add_column("after")
        for key in verifiers:
            table.add_column(key.removeprefix(prefix), justify="right")
        for name, _, values in rows:
            table.add_row(name, *(show(values.get(key), "{:.3g}") for key in verifiers))
        yield table


def _verifier_rows(last: Mapping[str, Value]) -> list[tuple[str, str]]:
    rows = []
    for kind, prefix in (
        ("sampled", "eval/heldout_verifier/"),
        ("greedy", "eval/heldout_greedy_verifier/"),
    ):
        names = sorted(key.removeprefix(prefix) for key in last if key.startswith(prefix))
        if len(names) > 1 or last.get("eval/heldout") is None:
            rows += [(f"held-out, verifier {name}, {kind}", prefix + name) for name in names]
    return rows


def _with_interval(values: Mapping[str, Value], key: str) -> str:
    low, high = values.get(f"{key}_low"), values.get(f"{key}_high")
    text = show(values.get(key), "{:.1%}")
    if low is None or high is None:
        return text
    return f"{text} [{low:.1%}, {high:.1%}]"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table
