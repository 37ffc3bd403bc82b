"""Dynamic sampling from 85 % accuracy on: what carries a gradient, and accuracy at equal tokens.

    python experiments/dynamic_sampling.py docs/dynamic_sampling.svg     # some minutes on one core

The tiny policy is trained by recipes/dynamic_sampling.toml until its sampled accuracy is 85 %. From
there three ways sample the same number of tokens, three seeds each: without dynamic sampling
(groups without signal are dropped), with it, and with it and prompts weighted by expected signal.
Writes the plot and prints the table of docs/selection.md. Needs matplotlib
(`pip install .[docs]`). Left out: what a larger policy would do; this is one small task.
"""

from __future__ import annotations

import contextlib
import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import groupwise as gw
from groupwise.policies import save_pretrained
from groupwise.training.trained import trained_policy

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "dynamic_sampling"
START, SEEDS, TOKENS, LATE = 0.85, (0, 1, 2), 16_000, 14_000
OVERLONG = "overlong_mask"
DYNAMIC: dict[str, Any] = {"kind": "dynamic_sampling", "oversample": 1.0, "max_batches": 20}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "off": ("C7", {"algorithm.filters": ["zero_variance_drop", OVERLONG]}),
    "on": ("C0", {"algorithm.filters": [DYNAMIC, OVERLONG]}),
    "on, weighted prompts": (
        "C2",
        {"algorithm.filters": [DYNAMIC, OVERLONG], "selection.order": "weighted"},
    ),
}
COMMON: dict[str, Any] = {
    "training.prompts_per_step": 16,
    "training.learning_rate": 1e-4,
    "evaluation.every": 8,
    "checkpoints.every": 0,
    "environment.audit": False,
}


class Spent(gw.Callback):
    """Ends a run after the step in which it has sampled so many tokens."""

    def on_step(self, line: Any) -> None:
        if line["tokens_total"] >= TOKENS:
            raise KeyboardInterrupt


def starting_policy() -> Path:
    """A folder with the policy at the first checkpoint that reaches the accuracy."""
    folder = RUNS / "start" / "policy"
    if not folder.is_dir():
        recipe = ROOT / "recipes" / "dynamic_sampling.toml"
        every = {"evaluation.every": 2, "checkpoints.every": 2, "checkpoints.keep": 99}
        run = gw.train(recipe, every, output=RUNS / "start" / "run", resume=True)
        table = run.evaluations().to_pylist()
        found = next(row for row in table if row["eval/accuracy"] >= START)
        print(f"start: {found['eval/accuracy']:.1%} after {found['version']} steps")
        save_pretrained(trained_policy(run.folder, step=found["version"]), folder)
    return folder


def played(way: str, seed: int, policy: Path) -> gw.Run:
    """One way's run of one seed, from the record if it is there."""
    folder = RUNS / f"{way.replace(', ', '_').replace(' ', '_')}-{seed}"
    if not (folder / "summary.json").is_file():
        changes = {**COMMON, **WAYS[way][1], "seed": seed, "model.name": str(policy)}
        recipe = ROOT / "recipes" / "dynamic_sampling.toml"
        with contextlib.suppress(KeyboardInterrupt):  # it has sampled its tokens
            gw.train(recipe, {**changes, "training.steps": 999}, folder, callbacks=[Spent()])
    return gw.open_run(folder)


def curve(run: gw.Run, tokens: float) -> float:
    """Accuracy after so many sampled tokens, linear between evaluations."""
    total = [0, *(row["tokens_total"] for row in run.metrics().to_pylist())]
    found = [(total[row["version"]], row["eval/accuracy"]) for row in run.evaluations().to_pylist()]
    for (low, a), (high, b) in pairwise(found):
        if low <= tokens <= high:
            return float(a + (b - a) * (tokens - low) / (high - low))
    return float(found[-1][1])


def figures(runs: list[gw.Run]) -> dict[str, float]:
    """Means over seeds, of the whole budget."""
    lines = [run.metrics().to_pylist() for run in runs]

    def share(top: str, bottom: str) -> float:
        return mean(sum(x[top] for x in each) / sum(x[bottom] for x in each) for each in lines)

    return {
        "sampled": share("tokens/with_gradient", "tokens"),
        "steps": mean(len(each) for each in lines),
        "groups": mean(mean(x["tokens/with_gradient"] for x in each) for each in lines),
        "half": mean(curve(run, TOKENS / 2) for run in runs),
        "late": mean(curve(run, LATE) for run in runs),
    }


def draw(runs: dict[str, list[gw.Run]], target: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    grid = [TOKENS * part / 40 for part in range(39)]
    for way, each in runs.items():
        colour = WAYS[way][0]
        for run in each:
            lines = run.metrics().to_pylist()
            left.plot(
                [x["tokens_total"] for x in lines],
                [sum(y["tokens/with_gradient"] for y in lines[: n + 1]) / x["tokens_total"]
                 for n, x in enumerate(lines)],
                color=colour, lw=1, label=way if run is each[0] else None,
            )  # fmt: skip
        right.plot(grid, [mean(curve(run, x) for run in each) for x in grid], color=colour)
        low = [min(curve(run, x) for run in each) for x in grid]
        high = [max(curve(run, x) for run in each) for x in grid]
        right.fill_between(grid, low, high, color=colour, alpha=0.15, lw=0)
    left.set(title="sampled tokens that carry a gradient", xlabel="sampled tokens", ylim=(0, 1))
    right.set(title="sampled accuracy, all prompts", xlabel="sampled tokens")
    left.legend(frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


def main(target: Path) -> None:
    policy = starting_policy()
    runs = {way: [played(way, seed, policy) for seed in SEEDS] for way in WAYS}
    draw(runs, target)
    print("| dynamic sampling | steps | tokens with gradient a step | share of sampled tokens |"
          " accuracy at half | at 14,000 tokens |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for way, each in runs.items():
        f = figures(each)
        print(f"| {way} | {f['steps']:.0f} | {f['groups']:.0f} | {f['sampled']:.0%} | "
              f"{f['half']:.1%} | {f['late']:.1%} |")  # fmt: skip
    for way, each in runs.items():
        print(way, [f"{curve(run, LATE):.3f}" for run in each])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
