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
    """A pipeline's stages, a column each: loss, and the guard set's figures before and after."""
    stages = summary["stages"]
    columns = [stages[0]["first"], *(stage["last"] for stage in stages)]
    guard = "guard/verifier/"
    verifiers = {key: None for values in columns for key in values if key.startswith(guard)}
    table = Table(title=f"{len(stages)} stages, {summary['status']}")
    table.add_column("after")
    for name in ("(before)", *(stage["name"] for stage in stages)):
        table.add_column(name, justify="right")
    for field in ("kind", "status"):
        table.add_row(field, "", *(stage[field] for stage in stages))
    rows = [
        ("loss", "loss", "{:.4g}"),
        ("accuracy", "guard/accuracy", "{:.1%}"),
        ("accuracy, 95 % from", "guard/accuracy_low", "{:.1%}"),
        ("accuracy, 95 % to", "guard/accuracy_high", "{:.1%}"),
        ("greedy accuracy", "guard/greedy", "{:.1%}"),
        ("tokens a completion", "guard/tokens_mean", "{:.1f}"),
        *(
            (f"verifier {key.removeprefix(guard)}", key, "{:.3g}")
            for key in verifiers
            if len(verifiers) > 1
        ),
    ]
    for label, key, form in rows:
        if any(values.get(key) is not None for values in columns):
            table.add_row(label, *(show(values.get(key), form) for values in columns))
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
