"""A reward with a hole against one without: what is rewarded, and what is right, step by step.

    groupwise train recipes/holed_verifier.toml --output runs/holed
    groupwise train recipes/strict_verifier.toml --output runs/strict
    python experiments/holed_verifier.py runs/holed runs/strict docs/holed_verifier.svg

Needs matplotlib (`pip install .[docs]`). Prints the figures that docs/verifiers_audit.md states.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import groupwise as gw

SERIES = (
    ("eval/accuracy", "correct for the reward", "C1"),
    ("eval/strict", "right by the strict verifier", "C0"),
)


def draw(folders: list[str], target: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained", sharey=True)
    titles = ("reward: the answer anywhere", "reward: the last number is the answer")
    for axes, folder, title in zip(both, folders, titles, strict=True):
        run = gw.open_run(folder)
        _panel(axes, run)
        axes.set(title=title, xlabel="steps", ylim=(0, 1.02))
    both[0].set_ylabel("share of sampled completions")
    both[0].legend(frameon=False, loc="center right")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


def _panel(axes: Any, run: Any) -> None:
    table = run.evaluations().to_pandas()
    for name, label, colour in SERIES:
        low, high = (table[f"{name}_{end}"].astype(float) for end in ("low", "high"))
        axes.plot(table["version"], table[name], color=colour, marker="o", ms=3, label=label)
        axes.fill_between(table["version"], low, high, color=colour, alpha=0.15, lw=0)
    for event in run.events("warning"):
        if event["about"] == "strict_gap":
            version = int(event["message"].split()[1])
            axes.axvline(version, color="0.6", lw=0.8, ls=":")
    axes.grid(alpha=0.2)


def figures(folder: str) -> None:
    run = gw.open_run(folder)
    audit = run.environment["audit"]
    print(folder, "audit passed:", audit["passed"])
    for probe in audit["probes"]:
        if probe["hole"]:
            earned, honest = probe["earned"], probe["honest"]
            print(f"  {probe['name']}: {earned:.2f} against {honest:.2f}: {probe['text'][:60]!r}")
    columns = ["version", "eval/accuracy", "eval/strict", "eval/strict_gap", "eval/heldout_strict"]
    print(run.evaluations().to_pandas()[columns].to_string(index=False))
    rows = run.rollouts().to_pandas()
    print(rows[rows["step"] == rows["step"].max()]["text"].head(5).tolist())


if __name__ == "__main__":
    draw(sys.argv[1:3], Path(sys.argv[3]))
    for each in sys.argv[1:3]:
        figures(each)
