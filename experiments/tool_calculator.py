"""A tiny policy learns to call the calculator: 3 seeds, and the same with the tool off.

Runs recipes/tool_calculator.toml, asserts that the 95 % interval of the held-out gain is above 0
for every seed and that nothing is learnt with the tool off, and writes docs/tool_calculator.md. The
gain is paired by prompt: the share of right sampled completions after training minus that before;
its interval is over the held-out prompts.

    python experiments/tool_calculator.py            # some minutes on one core
    python experiments/tool_calculator.py --fresh    # not from the runs that are there
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from arms import delete_if_fresh

import groupwise as gw

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "tool_calculator.toml"
PAGE = ROOT / "docs" / "tool_calculator.md"
RUNS = ROOT / "runs" / "tool_calculator"
SEEDS = (0, 1, 2)
ARMS: dict[str, dict[str, Any]] = {"calculator": {}, "tool off": {"environment.tools": []}}


@dataclass(frozen=True)
class Row:
    """One run: held-out accuracies, the gain with its interval, and how often the tool is used."""

    arm: str
    seed: int
    first: float
    last: float
    gain: float
    low: float
    high: float
    calls_first: float
    calls_last: float

    @property
    def line(self) -> str:
        return (
            f"| {self.arm} | {self.seed} | {self.first:.1%} | {self.last:.1%} | {self.gain:+.1%} "
            f"({self.low:+.1%} to {self.high:+.1%}) | {self.calls_first:.2f} | "
            f"{self.calls_last:.2f} |"
        )


def play(arm: str, seed: int, folder: Path) -> Row:
    """The run of one arm and seed (read where it is finished) as a row."""
    run = gw.train(RECIPE, overrides={"seed": seed, **ARMS[arm]}, output=folder, resume=True)
    last = int(run.summary["steps"])
    before, after = (shares(run, version) for version in (0, last))
    gains = [after[name] - before[name] for name in before]
    half = 1.96 * stdev(gains) / math.sqrt(len(gains))
    gain = fmean(gains)
    steps = run.metrics().to_pandas()
    calls = steps["tools/calls"] if "tools/calls" in steps else steps["reward"] * 0.0
    count = steps["completions/count"]
    return Row(
        arm=arm,
        seed=seed,
        first=fmean(before.values()),
        last=fmean(after.values()),
        gain=gain,
        low=gain - half,
        high=gain + half,
        calls_first=float(calls.iloc[0] / count.iloc[0]),
        calls_last=float(calls.iloc[-1] / count.iloc[-1]),
    )


def shares(run: Any, version: int) -> dict[str, float]:
    """Held-out prompts and the share of their sampled completions that are right."""
    recipe = run.recipe
    environment = gw.load_environment(
        recipe["environment"]["name"],
        seed=recipe["seed"],
        **{key: recipe["environment"][key] for key in ARGUMENTS},
    )
    heldout = {prompt.id for prompt in environment.prompts(split="heldout")}
    found: dict[str, list[float]] = defaultdict(list)
    for row in run.evaluation_rollouts(version).to_pylist():
        if row["kind"] == "evaluation" and row["prompt_id"] in heldout:
            found[row["prompt_id"]].append(float(row["outcome"] == "correct"))
    return {name: fmean(values) for name, values in sorted(found.items())}


ARGUMENTS = (
    "operations", "min_operand", "max_operand", "max_value", "num_operations", "phrasing",
    "num_train", "num_heldout",
)  # fmt: skip


def page(rows: list[Row]) -> str:
    """The table that the docs show."""
    head = (
        "# The calculator is learnt\n\n<!-- Written by experiments/tool_calculator.py. -->\n\n"
        "The policy `tiny_tools` is asked for products of two-digit numbers, 1000 to train on and "
        "200 held\nout, of which 100 are evaluated with 4 samples each. It cannot multiply; "
        "offered the calculator, it\ncalls it in about 8 % of its completions, and makes slips. "
        "30 steps of GRPO, groups of 16\n(`recipes/tool_calculator.toml`). With the tool off "
        "(`environment.tools = []`) all else is the same.\n\n"
        "| arm | seed | held out, before | held out, after | gain (95 % interval) "
        "| calls a rollout, first step | last step |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(row.line for row in rows) + "\n"


def check(rows: list[Row]) -> None:
    """What the experiment claims. AssertionError with the row that does not show it."""
    for row in rows:
        if row.arm == "tool off":
            assert row.last < 0.05, f"learnt without the tool: {row.line}"
        else:
            assert row.low > 0, f"no gain: {row.line}"
            assert row.calls_last > 0.8, f"the tool is not used: {row.line}"


def main() -> None:
    delete_if_fresh(__doc__, RUNS)
    rows = []
    for arm in ARMS:
        for seed in SEEDS:
            rows.append(play(arm, seed, RUNS / f"{arm.replace(' ', '_')}-{seed}"))
            print(rows[-1].line, flush=True)
    check(rows)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
