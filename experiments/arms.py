"""A recipe with changes (its arms), several seeds each: gains with intervals, a table, a curve.

The other experiments use it. A gain is paired by prompt: the share of right sampled completions
after training minus that before; its interval is over the held-out prompts. A difference of two
arms is paired by seed and prompt, and its interval is over these pairs. Finished runs are read, not
run again.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import groupwise as gw

ROOT = Path(__file__).resolve().parents[1]
Shares = Mapping[str, float]
"""Held-out prompts and the share of their sampled completions that are right."""
Interval = tuple[float, float, float]
"""A mean, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class Row:
    """One run and what it is shown by."""

    arm: str
    seed: int
    before: Shares
    after: Shares
    run: Any = None

    @property
    def gain(self) -> Interval:
        return interval([self.after[name] - share for name, share in self.before.items()])

    @property
    def line(self) -> str:
        first, last = (fmean(each.values()) for each in (self.before, self.after))
        return f"| {self.arm} | {self.seed} | {first:.1%} | {last:.1%} | {shown(self.gain)} |"


HEAD = "| arm | seed | held out, before | after | gain (95 % interval) |\n|---|---|---|---|---|\n"


def delete_if_fresh(description: str, runs: Path) -> None:
    """Reads the command line of an experiment: with `--fresh` the runs that are there go."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="delete the runs that are there")
    if parser.parse_args().fresh:
        shutil.rmtree(runs, ignore_errors=True)


def random_reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
    """0 or 1 by the bits of the texts: it says nothing about the answer, and repeats exactly."""
    pairs = zip(prompts, completions, strict=True)
    return [float(zlib.crc32(repr(pair).encode()) % 2) for pair in pairs]


def at_random(recipe: Path) -> dict[str, Any]:
    """A control: the recipe's verifiers are reported, and the reward is `random_reward`."""
    tables = tomllib.loads(recipe.read_text(encoding="utf-8"))["environment"]["verifiers"]
    reported = [{**table, "weight": 0.0} for table in tables]
    return {"environment.verifiers": [*reported, {"name": "arms:random_reward"}]}


def is_accurate(row: Mapping[str, Any]) -> bool:
    """What the recipe's verifier of that label says, whatever the reward is."""
    return bool(row["rewards"]["accuracy"] == 1)


def is_correct(row: Mapping[str, Any]) -> bool:
    return bool(row["outcome"] == "correct")


def play(
    recipe: Path,
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    folder: Path,
    right: Callable[[Mapping[str, Any]], bool] = is_correct,
) -> list[Row]:
    """One row an arm and seed; `arms` are what each changes in the recipe."""
    rows = []
    for seed in seeds:
        for arm, changes in arms.items():
            output = folder / f"{arm.replace(' ', '_')}-{seed}"
            run = gw.train(recipe, {"seed": seed, **changes}, output=output, resume=True)
            before, after = (shares(run, at, right) for at in (0, int(run.summary["steps"])))
            rows.append(Row(arm, seed, before, after, run))
            print(rows[-1].line, f"{float(run.summary['seconds']):.0f} s", flush=True)
    return rows


def shares(run: Any, version: int, right: Callable[[Mapping[str, Any]], bool]) -> Shares:
    found: dict[str, list[float]] = defaultdict(list)
    for row in run.evaluation_rollouts(version).to_pylist():
        if row["kind"] == "evaluation":
            found[row["prompt_id"]].append(float(right(row)))
    return {name: fmean(values) for name, values in sorted(found.items())}


def interval(values: Sequence[float]) -> Interval:
    mean, half = fmean(values), 1.96 * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def over_seeds(values: Sequence[float]) -> Interval:
    """The interval of three seeds' mean by Student's t. Raises ValueError for another number."""
    if len(values) != 3:
        raise ValueError(f"{len(values)} values: the interval is made for 3 seeds")
    mean, half = fmean(values), 4.303 * stdev(values) / math.sqrt(3)
    return mean, mean - half, mean + half


def shown(value: Interval) -> str:
    return "{:+.1%} ({:+.1%} to {:+.1%})".format(*value)


def of_arm(rows: Sequence[Row], arm: str) -> list[Row]:
    return [row for row in rows if row.arm == arm]


def difference(rows: Sequence[Row], arm: str, other: str) -> Interval:
    """How much more of the held-out completions of `arm` are right after training."""
    pairs = zip(of_arm(rows, arm), of_arm(rows, other), strict=True)
    return interval(
        [one.after[name] - share for one, two in pairs for name, share in two.after.items()]
    )


def table(rows: Sequence[Row]) -> str:
    arms = list(dict.fromkeys(row.arm for row in rows))
    return HEAD + "\n".join(row.line for arm in arms for row in of_arm(rows, arm)) + "\n"


def series(run: Any, name: str, window: int = 5) -> dict[int, float]:
    """A metric by the number of finished steps; one of every step as the mean over a window."""
    if name.startswith("eval/"):
        found = run.evaluations().to_pandas()
        return {int(at): float(value) for at, value in zip(found["version"], found[name])}
    values = run.metrics().to_pandas()[name].astype(float)
    return {at + window: float(values[at : at + window].mean())
            for at in range(0, len(values), window)}  # fmt: skip


def draw(rows: Sequence[Row], metrics: Mapping[str, str], target: Path) -> None:
    """The metrics over the steps, a panel each: an arm's mean and the range of its seeds."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    size = (4.2 * len(metrics), 3.4)
    figure, axes = plt.subplots(1, len(metrics), figsize=size, layout="constrained", squeeze=False)
    for axis, (name, title) in zip(axes[0], metrics.items(), strict=True):
        for arm in dict.fromkeys(row.arm for row in rows):
            tables = [series(row.run, name) for row in of_arm(rows, arm)]
            at = sorted(tables[0])
            columns = [[each[step] for each in tables] for step in at]
            (line,) = axis.plot(at, list(map(fmean, columns)), label=arm)
            low, high = list(map(min, columns)), list(map(max, columns))
            axis.fill_between(at, low, high, color=line.get_color(), alpha=0.15, lw=0)
        axis.set(title=title, xlabel="steps")
        axis.grid(alpha=0.2)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(target, metadata={"Date": None})


def draw_points(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    points: Sequence[str],
    measures: Mapping[str, str],
    target: Path,
) -> None:
    """Measures at named points of a pipeline, a panel each: an arm's mean and its seeds' range."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    size = (4 * len(measures), 3.2)
    figure, axes = plt.subplots(1, len(measures), figsize=size, layout="constrained")
    for axis, (name, title) in zip(axes, measures.items(), strict=True):
        for arm, found in curves.items():
            columns = list(zip(*(each[name] for each in found), strict=True))
            (line,) = axis.plot(list(map(fmean, columns)), marker=".", label=arm)
            low, high = list(map(min, columns)), list(map(max, columns))
            axis.fill_between(
                range(len(points)), low, high, color=line.get_color(), alpha=0.2, lw=0
            )
        axis.set(title=f"{title}, held out")
        axis.set_ylim(bottom=0)
        axis.set_xticks(range(len(points)), points)
        axis.grid(alpha=0.2)
    axes[0].legend(frameon=False)
    figure.savefig(target, metadata={"Date": None})
