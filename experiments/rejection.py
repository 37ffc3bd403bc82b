"""RAFT against GRPO at equal sampled tokens, and STaR with and without hints; 3 seeds, controls.

Runs recipes/raft.toml and recipes/star.toml, checks what docs/rejection.md claims, and writes that
page's table and docs/rejection.svg. Runs that are there already are read, not run again.

    python experiments/rejection.py --output runs/rejection

Needs matplotlib (`pip install .[docs]`).
"""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import groupwise as gw
from groupwise.examples.hinted_sums import ROWS

ROOT = Path(__file__).resolve().parents[1]
PAGE, CURVE = ROOT / "docs" / "rejection.md", ROOT / "docs" / "rejection.svg"
SEEDS = (0, 1, 2)
STUDENT = 4.303
"""The 97.5 % point of Student's t with 2 degrees of freedom."""
REPAIR = "<!-- From here on written by experiments/repair.py. -->"
Curve = list[tuple[int, float]]
"""Sampled tokens so far, and the accuracy on held-out prompts."""


def table(name: str) -> dict[str, Any]:
    found = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    del found["small"]
    return found


def at_random(raft: Any) -> dict[str, Any]:
    """RAFT's recipe with rows at random, as many as `raft` kept in each round."""
    recipe = table("raft")
    kept = {each["name"]: each["last"].get("traces/kept") for each in raft.summary["stages"]}
    for stage in recipe["stages"]:
        if stage["kind"] == "rejection":
            stage |= {"keep": "all", "duplicates": True}
        else:
            stage["data"]["limit"] = int(kept[stage["data"]["stage"]])
    return recipe


def without_hints() -> dict[str, Any]:
    """STaR's recipe without rationalisation."""
    recipe = table("star")
    for stage in recipe["stages"]:
        stage.pop("rationalise", None)
    return recipe


def of_pipeline(run: Any) -> Curve:
    """The guard's accuracy after each stage that learned, the start first."""
    stages = run.summary["stages"]
    curve, tokens = [(0, float(stages[0]["first"]["guard/accuracy"]))], 0
    for stage in stages:
        tokens += int(stage["last"].get("traces/tokens", 0))
        if stage["kind"] == "supervised":
            curve.append((tokens, float(stage["last"]["guard/accuracy"])))
    return curve


def of_run(run: Any) -> Curve:
    """The evaluations of an ordinary run."""
    steps = run.metrics().to_pandas()
    tokens = [0, *steps["tokens_total"]]
    rows = run.evaluations().to_pandas()
    return [
        (int(tokens[int(version)]), float(value))
        for version, value in zip(rows["version"], rows["eval/accuracy"], strict=True)
    ]


def accuracy_at(curve: Curve, tokens: int) -> float:
    """The accuracy after so many tokens, on the line between two evaluations."""
    for (before, low), (after, high) in pairwise(curve):
        if before <= tokens <= after:
            return low + (high - low) * (tokens - before) / (after - before)
    raise ValueError(f"{tokens} tokens are beyond the curve's {curve[-1][0]}")


def interval(values: list[float], student: float = STUDENT) -> tuple[float, float, float]:
    """Mean and 95 % interval over the seeds, by Student's t."""
    half = student * stdev(values) / math.sqrt(len(values))
    return fmean(values), fmean(values) - half, fmean(values) + half


def shown(values: list[float], sign: str = "") -> str:
    mean, low, high = interval(values)
    return f"{mean:{sign}.1%} ({low:{sign}.1%} to {high:{sign}.1%})"


def runs(output: Path) -> dict[str, list[Any]]:
    """Every run by its arm, one a seed."""
    found: dict[str, list[Any]] = {}

    def run(arm: str, recipe: Callable[[int], dict[str, Any]]) -> None:
        for place, seed in enumerate(SEEDS):
            made = {**recipe(place), "seed": seed}
            folder = output / f"{arm.replace(' ', '_')}-{seed}"
            done = gw.train(made, output=folder, resume=True)
            found.setdefault(arm, []).append(done)
            print(arm, seed, float(done.summary["seconds"]), flush=True)

    run("RAFT", lambda _: table("raft"))
    run("STaR", lambda _: table("star"))
    run("STaR without hints", lambda _: without_hints())
    run("GRPO", lambda _: table("r1_zero"))
    run("RAFT of random rows", lambda place: at_random(found["RAFT"][place]))
    return found


def check(curves: dict[str, list[Curve]]) -> None:
    """What the page claims. AssertionError with the arm and the seed that do not show it."""
    for seed, (raft, control) in enumerate(
        zip(curves["RAFT"], curves["RAFT of random rows"], strict=True)
    ):
        gain, by_chance = (each[-1][1] - each[0][1] for each in (raft, control))
        assert gain >= 0.15, f"RAFT, seed {seed}: gained {gain:+.0%}"
        assert by_chance < gain - 0.1, f"random rows, seed {seed}: gained {by_chance:+.0%}"
    for seed, curve in enumerate(curves["STaR"]):
        gain = curve[-1][1] - curve[1][1]
        assert gain >= 0.1, f"STaR, seed {seed}: gained {gain:+.0%} on its first stage"


def draw(curves: dict[str, list[Curve]]) -> None:
    """Mean and range of the seeds: over sampled tokens for RAFT, by stage for STaR."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained", sharey=True)
    colours = ("C0", "C1", "0.6")
    for axis, arms in zip(axes, (("RAFT", "GRPO", "RAFT of random rows"), ARMS[3:]), strict=True):
        for arm, colour in zip(arms, colours, strict=False):
            points = list(zip(*curves[arm], strict=True))
            values = [[value for _, value in each] for each in points]
            at = [fmean(tokens for tokens, _ in each) / 1000 for each in points]
            if "STaR" in arm:
                at = [float(place) for place in range(len(values))]
            axis.plot(at, list(map(fmean, values)), color=colour, marker=".", label=arm)
            low, high = list(map(min, values)), list(map(max, values))
            axis.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)
        axis.legend(frameon=False, loc="lower right")
        axis.grid(alpha=0.2)
    axes[0].set(xlabel="sampled tokens, thousands", ylabel="right, held out", ylim=(0, 1))
    axes[0].set(xlim=(0, 1.6 * max(each[-1][0] for each in curves["RAFT"]) / 1000))
    axes[1].set_xticks(range(4), ["start", "hints", "round 1", "round 2"])
    figure.savefig(CURVE, metadata={"Date": None})


HEAD = """\
# Learning from one's own right answers

<!-- Written by experiments/rejection.py. -->

The stage `rejection` samples, keeps what passes, and a supervised stage learns it
([fields](stages.md#rejection)). `recipes/raft.toml` and `recipes/star.toml` do so on
`tiny-reasoner` ([what it is](r1_zero.md#the-policy)), which is right 28 % of the time at the start.

![Accuracy over sampled tokens, and by round](rejection.svg)

## RAFT

Three rounds: 100 new prompts, 8 completions each; up to 4 different right ones of a prompt are
learned. `GRPO` is `recipes/r1_zero.toml`, read off where it has sampled as many tokens (between two
evaluations, on the line). `RAFT of random rows` is the control: the same rounds with as many rows,
whatever the verifier says of them.

{raft}

Per seed, RAFT less GRPO at equal tokens: {against}; RAFT less random rows: {control}.

GRPO makes one update of 128 completions, RAFT one of 16 that are right; GRPO goes on to what
[its page](r1_zero.md) shows. RAFT equals REINFORCE with the reward 1 for kept and 0 for dropped:
no baseline, nothing is learned from what is wrong.

## STaR

First `hints` teaches the policy what a hint is, with {rows} sums whose answer stands behind them,
worked out without a slip; a large model has that from its prompt's examples. Then, twice, 200 sums
are answered once; those without a right answer are asked again twice, the answer hinted. Right ones
of at least 20 tokens are kept, without the hint; the model after `hints` starts again from them.
`without hints` is the same recipe without `rationalise`.

{star}

Per seed, with hints less without, after the second round: {hinted}. Rows that are learned in the
first and the second round: {counts}.

## Notes

All figures: sampled completions of the 200 held-out prompts that are right (two a prompt; four for
GRPO), with the mean over 3 seeds and its 95 % interval by Student's t where there is one. The cold
start of `tiny-reasoner` draws from all sums; what is held out is held out from these stages.

Every completion, kept or dropped, has its `reason` in `data.jsonl` or `dropped.jsonl` of the stage;
the counts are in `summary.json` (`traces/dropped/...`). Equal texts of a prompt count once, which
favours completions in steps: a right direct answer is always the same text.

Run it: `groupwise train recipes/raft.toml`; the tables: `python experiments/rejection.py`.
"""
ARMS = ("RAFT", "GRPO", "RAFT of random rows", "STaR", "STaR without hints")


def page(found: dict[str, list[Any]], curves: dict[str, list[Curve]]) -> str:
    ends = [curve[-1][0] for curve in curves["RAFT"]]
    final = {
        arm: [
            accuracy_at(curve, end) if arm == "GRPO" else curve[-1][1]
            for curve, end in zip(curves[arm], ends, strict=True)
        ]
        for arm in ARMS
    }

    def rows(arm: str) -> str:
        cells = [
            " | ".join(f"{curve[place][1]:.1%}" for curve in curves[arm])
            for place in range(len(curves[arm][0]))
        ]
        names = ["start", *(["hints"] if "STaR" in arm else []), "round 1", "round 2", "round 3"]
        return "\n".join(f"| {arm}, {n} | {c} |" for n, c in zip(names, cells, strict=False))

    def less(one: str, other: str) -> str:
        pairs = zip(final[one], final[other], strict=True)
        return shown([a - b for a, b in pairs], "+")

    head = "| right, held out | seed 0 | seed 1 | seed 2 |\n|---|---|---|---|\n"
    grpo = " | ".join(f"{value:.1%}" for value in final["GRPO"])
    tokens = " | ".join(f"{end:,}" for end in ends)
    kept = [
        [each["last"]["traces/kept"] for each in run.summary["stages"] if "draw" in each["name"]]
        for arm in ARMS[3:]
        for run in found[arm]
    ]
    with_, without = kept[: len(SEEDS)], kept[len(SEEDS) :]
    return HEAD.format(
        raft=head
        + "\n".join([rows("RAFT"), f"| GRPO, as many tokens | {grpo} |", rows(ARMS[2])])
        + f"\n| sampled tokens of RAFT | {tokens} |",
        against=less("RAFT", "GRPO"),
        control=less("RAFT", ARMS[2]),
        star=head + "\n".join(map(rows, ARMS[3:])),
        hinted=less("STaR", "STaR without hints"),
        rows=ROWS,
        counts=f"{with_} with hints and {without} without",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "rejection")
    found = runs(parser.parse_args().output)
    curves = {
        arm: [(of_run if arm == "GRPO" else of_pipeline)(each) for each in made]
        for arm, made in found.items()
    }
    check(curves)
    draw(curves)
    _, mark, repairs = PAGE.read_text(encoding="utf-8").partition(REPAIR)
    PAGE.write_text(f"{page(found, curves)}\n{mark}{repairs}", encoding="utf-8")


if __name__ == "__main__":
    main()
