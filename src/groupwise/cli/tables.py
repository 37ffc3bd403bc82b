"""Tables that a command ends with, on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from groupwise.cli.progress import only_heldout, show
from groupwise.records import Value

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
    table = Table(title=f"{summary['steps']} steps")
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
    table.add_row("tokens trained on", "", f"{summary['tokens']:,}")
    table.add_row("seconds", "", f"{summary['seconds']:.1f}")
    return table


def stages_table(summary: Mapping[str, Any]) -> Table:
    """A pipeline's stages: loss, and the guard set's figures after each, a 95 % interval."""
    stages = summary["stages"]
    names = {
        key.removeprefix("guard/verifier/"): None
        for stage in stages
        for key in stage["last"]
        if key.startswith("guard/verifier/")
    }
    verifiers = list(names) if len(names) > 1 else []
    table = Table(title=f"{len(stages)} stages, {summary['status']}")
    for column in ("stage", "kind", "status"):
        table.add_column(column)
    for column in ("loss", "accuracy", "greedy", *verifiers, "tokens"):
        table.add_column(column, justify="right", no_wrap=True)
    for values, row in [
        (stages[0]["first"], ("before", "", "")),
        *((stage["last"], (stage["name"], stage["kind"], stage["status"])) for stage in stages),
    ]:
        table.add_row(
            *row,
            show(values.get("loss"), "{:.4g}"),
            _with_interval(values, "guard/accuracy"),
            show(values.get("guard/greedy"), "{:.1%}"),
            *(show(values.get(f"guard/verifier/{name}"), "{:.3g}") for name in verifiers),
            show(values.get("guard/tokens_mean"), "{:.1f}"),
        )
    return table


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
