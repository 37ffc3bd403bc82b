"""Draw a run's learning curve: accuracy with its 95 % interval, and the mean reward of every step.

    python experiments/learning_curve.py runs/demo docs/learning_curve.svg

Needs matplotlib (`pip install .[docs]`). Left out: every other metric; `run.metrics()` has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import groupwise as gw

SERIES = (
    ("eval/accuracy", "all prompts, sampled", "C0"),
    ("eval/heldout", "held out, sampled", "C1"),
)


def draw(folder: str, target: Path) -> None:
    run = gw.open_run(folder)
    steps = run.metrics().to_pandas()
    evaluations = run.evaluations().to_pandas()
    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same run draws the same file
    figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    axes.plot(steps["step"] + 1, steps["reward"], color="0.75", lw=1, label="reward of the step")
    for name, label, colour in SERIES:
        if name not in evaluations or evaluations[name].isna().all():
            continue
        axes.plot(evaluations["version"], evaluations[name], color=colour, marker="o", label=label)
        axes.fill_between(
            evaluations["version"],
            evaluations[f"{name}_low"].astype(float),
            evaluations[f"{name}_high"].astype(float),
            color=colour,
            alpha=0.15,
            lw=0,
        )
    recipe = run.recipe
    axes.set(
        xlabel="steps",
        ylabel="accuracy, reward",
        ylim=(0, max(1.02, float(steps["reward"].max()))),
        title=f"{recipe['model']['name']}, {recipe['algorithm'].get('preset', 'grpo')}, "
        f"groups of {recipe['sampling']['group_size']}",
    )
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="lower right")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(sys.argv[1], Path(sys.argv[2]))
