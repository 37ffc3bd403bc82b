"""results.json (and growth.json, where it is) as tables: on the terminal, and as RESULTS.md.

    .venv/bin/python -m benchmarks.render [benchmarks/results.json]

What a person wrote about the figures stands in `profile.md` beside the results and is put at the
end as it is. Left out: every measurement.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.contenders import CONTENDERS
from benchmarks.ratios import BARS, Measured, table
from benchmarks.workload import SMALL

HERE = Path(__file__).parent
COLUMNS = (
    "", "rollout, tokens/s", "natural length, tokens/s", "training pass, s",
    "optimiser and refresh, s", "step, s", "peak memory of a step, GB", "repeats (dropped)",
)  # fmt: skip
_TITLES = {
    "rollout": "Rollouts of fixed length",
    "natural": "Rollouts that end by themselves",
    "step": "Whole steps",
}


def measurements(results: Mapping[str, Any]) -> dict[tuple[str, str], Measured]:
    rows = [row for phase in results["phases"].values() for row in phase["rows"]]
    return table(rows, results["foreign_limit"])


def contender_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """One row a measured contender, in COLUMNS' order."""
    found = measurements(results)
    lines = []
    for contender in CONTENDERS:
        own = {phase: m for (name, phase), m in found.items() if name == contender.name}
        if own:
            lines.append([f"{contender.label}, {contender.dtype}", *_cells(own)])
    return lines


def failure_lines(results: Mapping[str, Any]) -> list[str]:
    """One sentence for each contender that is missing from a phase."""
    return [
        f"{phase}: {name} is missing: {reason}"
        for phase, entry in results["phases"].items()
        for name, reason in entry["failures"].items()
    ]


def _cells(own: Mapping[str, Measured]) -> list[str]:
    step = own.get("step")
    peak = step.values.get("peak_bytes") if step else None
    return [
        _value(own.get("rollout"), "tokens_per_second", ".0f"),
        _value(own.get("natural"), "tokens_per_second", ".0f"),
        _value(step, "train_seconds", ".3g"),
        _value(step, "optimizer_seconds", ".2g"),
        _value(step, "seconds", ".3g"),
        f"{peak / 1e9:.2f}" if peak else "",
        ", ".join(
            f"{phase} {each.kept} ({'all disturbed' if each.all_disturbed else each.dropped})"
            for phase, each in own.items()
        ),
    ]


def _value(found: Measured | None, name: str, form: str) -> str:
    """The median, with the range in brackets."""
    if found is None or name not in found.values:
        return ""
    low, high = found.spread[name]
    return f"{found.values[name]:{form}} [{low:{form}}, {high:{form}}]"


def ratio_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Name, value, bar, aim, verdict of every stable ratio."""
    lines = []
    for name, bar in BARS.items():
        value = results["ratios"].get(name)
        sign = "at most" if bar.smaller else "at least"
        if value is None:
            verdict = results["missing"].get(name, "not measured")
        elif results["workload"]["model"] == SMALL.model:
            verdict = "no bar for this model"
        else:
            verdict = "met" if bar.met(value) else "not met"
        lines.append(
            [
                name,
                "" if value is None else f"{value:.2f}",
                f"{sign} {bar.bar:g}",
                "" if bar.aim is None else f"{bar.aim:g}",
                verdict,
            ]
        )
    return lines


def print_tables(results: Mapping[str, Any], console: Console) -> None:
    for title, header, rows in (
        ("Medians [range] over the kept repeats", COLUMNS, contender_rows(results)),
        ("Ratios", ("ratio", "here", "bar", "aim", ""), ratio_rows(results)),
    ):
        shown = RichTable(title=title)
        for column in header:
            shown.add_column(column, overflow="fold")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for line in [*failure_lines(results), bars_sentence(results)]:
        console.print(line, highlight=False, markup=False)


def bars_sentence(results: Mapping[str, Any]) -> str:
    sets = results["machine"]["instruction_sets"]
    has = "has" if {"amx_bf16", "avx512_bf16"} & set(sets) else "does not have"
    return (
        f"The bars are for processors with bfloat16 in hardware; this one {has} it "
        f"({', '.join(sets) or 'no vector sets known'})."
    )


def markdown(results: Mapping[str, Any], growth: Mapping[str, Any] | None, profile: str) -> str:
    """RESULTS.md."""
    parts = [
        "# Measured speed and memory",
        "",
        "Made by `make bench` (and `make bench-growth`) from `results.json` (and `growth.json`); "
        "`python -m benchmarks.render` writes it again.",
        "",
        *_workload(results),
        "",
        *_markdown_table(COLUMNS, contender_rows(results)),
        "",
        *(f"- {line}" for line in failure_lines(results)),
        "",
        "## Ratios",
        "",
        "Above 1 means faster here; `memory_vs_trl` (with activation checkpointing, against TRL's "
        "fastest setting) below 1 means smaller here. " + bars_sentence(results),
        "",
        *_markdown_table(("ratio", "here", "bar", "aim", ""), ratio_rows(results)),
        "",
        *_other(results),
        "## Machine and versions",
        "",
        *_machine(results),
        "",
    ]
    if growth is not None:
        parts += growth_section(growth)
    if profile:
        parts += [profile.strip(), ""]
    return "\n".join(parts)


def _workload(results: Mapping[str, Any]) -> list[str]:
    size = results["workload"]
    rollout_rows = size["rollout_prompts"] * size["group_size"]
    step_rows = size["step_prompts"] * size["group_size"]
    return [
        f"Model {size['model']}. Rollouts: {size['rollout_prompts']} prompts x "
        f"{size['group_size']} completions = {rollout_rows} rows of {size['rollout_tokens']} new "
        f"tokens. Steps: {size['step_prompts']} prompts x {size['group_size']} completions = "
        f"{step_rows} rows of {size['step_tokens']} new tokens, one update. The same prompts, "
        "lengths, group size and reward function for everyone; the whole distribution is sampled "
        "at temperature 1. Fixed length: stop ids are off, so all sample the same number of "
        "tokens. Natural length: the model's own stop ids end a completion. Contenders are "
        "processes of one parent that take turns; medians are over repeats after a warm-up in "
        f"which other programs had at most {results['foreign_limit']:.0%} of the processors. Peak "
        "memory is the largest resident size of the whole process during a step. OpenVINO's rate "
        "leaves out loading new weights after an update; "
        "everyone else samples from the weights that train.",
    ]


def _other(results: Mapping[str, Any]) -> list[str]:
    rows = [
        [name, f"{value:.2f}"]
        for name, value in results["other_ratios"].items()
        if value is not None
    ]
    if not rows:
        return []
    return ["More ratios:", "", *_markdown_table(("ratio", "here"), rows), ""]


def _machine(results: Mapping[str, Any]) -> list[str]:
    known = results["machine"]
    memory = known["memory_bytes"]
    lines = [
        f"- {known['processor']}, {known['processors']} processors, "
        f"{', '.join(known['instruction_sets'])}"
        + (f", {memory / 2**30:.0f} GiB" if memory else "")
        + f"; {known['platform']}",
        "- " + ", ".join(f"{name} {version}" for name, version in results["versions"].items()),
    ]
    for name, phase in results["phases"].items():
        disturbed = sum(bool(row["disturbed"]) for row in phase["rows"])
        lines.append(
            f"- {_TITLES[name]}: {phase['date']}, commit {_commit(phase['code'])}, "
            f"`{phase['command']}`, {phase['seconds']:.0f} s, "
            f"{len(phase['rows'])} repeats of which {disturbed} were disturbed"
            + ("" if phase["kept_loaded"] else "; models loaded anew for every repeat")
        )
        for contender, detail in phase["details"].items():
            known_detail = ", ".join(f"{key} {value}" for key, value in detail["detail"].items())
            lines.append(f"    - {contender}: {known_detail}")
    return lines


def _commit(code: Mapping[str, Any]) -> str:
    short = str(code.get("commit", "unknown"))[:12]
    return f"{short} with changes" if code.get("changed") else short


def growth_section(growth: Mapping[str, Any]) -> list[str]:
    """The sweeps and the 300 steps, as growth.py left them."""
    header = ("sweep", "value", "rows", "new tokens", "step, s", "s per 1,000 tokens", "peak, GB")
    rows = [
        [
            point["sweep"],
            str(point["value"]),
            str(point["rows"]),
            f"{point['tokens']:,}",
            f"{point['seconds']:.3g}",
            f"{1e3 * point['seconds'] / point['tokens']:.3g}",
            f"{point['peak_bytes'] / 1e9:.2f}" if point["peak_bytes"] else "",
        ]
        for point in growth["points"]
    ]
    steady = growth.get("steady")
    lines = ["## Growth", "", *_markdown_table(header, rows), ""]
    if growth["cut"]:
        lines += [f"Cut by the time budget: {', '.join(growth['cut'])}.", ""]
    if rows:
        lines += ["![Step time and memory against size](growth.svg)", ""]
    if growth["linearity"] is not None:
        lines += [
            "Seconds a token at the longest completions are "
            f"{growth['linearity']:.2f} times those at the shortest.",
            "",
        ]
    if steady:
        lines += [
            f"{steady['steps']} steps of the tiny model: resident memory grew by "
            f"{steady['growth']:.2%} after warm-up "
            f"({steady['slope_bytes_per_step']:,.0f} bytes a step).",
            "",
        ]
    lines += [f"{growth['date']}, `{growth['command']}`.", ""]
    return lines


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows),
    ]


def write(path: Path) -> Path:
    """RESULTS.md beside the results at `path`; RESULTS-KIND.md for results-KIND.json."""
    results = json.loads(path.read_text(encoding="utf-8"))
    growth, profile = path.with_name("growth.json"), path.with_name("profile.md")
    target = path.with_name(path.stem.replace("results", "RESULTS") + ".md")
    target.write_text(
        markdown(
            results,
            json.loads(growth.read_text(encoding="utf-8")) if growth.exists() else None,
            profile.read_text(encoding="utf-8") if profile.exists() else "",
        ).rstrip()
        + "\n",
        encoding="utf-8",
    )
    return target


if __name__ == "__main__":
    print(write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results.json"))
