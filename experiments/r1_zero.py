"""Reasoning grows by itself: 5 seeds of recipes/r1_zero.toml, with a control and English rewarded.

Checks what it claims for every run, and writes docs/r1_zero.md with its table and docs/r1_zero.svg.
The gain is paired by prompt: the share of right sampled completions after training minus that
before; its interval is over the held-out prompts. Lengths are of the rollouts of the first and the
last two steps. Runs that are there already are read, not run again.

    python experiments/r1_zero.py --output runs/r1_zero    # needs matplotlib, `pip install .[docs]`
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import groupwise as gw

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "r1_zero.toml"
PAGE, CURVE = ROOT / "docs" / "r1_zero.md", ROOT / "docs" / "r1_zero.svg"
SEEDS = (0, 1, 2, 3, 4)
SELF_CHECKS, ENGLISH, CHINESE = ("wait", "等等"), "plus", "加"


def random_reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
    """0 or 1 by the bits of the texts: it says nothing about the answer, and repeats exactly."""
    pairs = zip(prompts, completions, strict=True)
    return [float(zlib.crc32(repr(pair).encode()) % 2) for pair in pairs]


def verifiers(reward: str, english: float) -> list[dict[str, Any]]:
    """The recipe's verifiers, with another reward or a weight for English."""
    tables = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["environment"]["verifiers"]
    for table in tables:
        if table.get("label") == "english":
            table["weight"] = english
        elif reward == "random":
            table["weight"] = 0.0
    return tables + ([{"name": "r1_zero:random_reward"}] if reward == "random" else [])


ARMS: dict[str, tuple[tuple[int, ...], Callable[[], dict[str, Any]]]] = {
    "the recipe": (SEEDS, dict),
    "random reward": (SEEDS, lambda: {"environment.verifiers": verifiers("random", 0.0)}),
    "English rewarded": (SEEDS, lambda: {"environment.verifiers": verifiers("accuracy", 0.3)}),
}
"""Arm: its seeds, and what it changes in the recipe."""


@dataclass(frozen=True)
class Row:
    """One run. `before` and `after` are shares of the sampled held-out completions: right (inside
    the tag), with a self-check, with steps; `chinese` and `both` (languages) are of those with
    steps."""

    arm: str
    seed: int
    before: dict[str, float]
    after: dict[str, float]
    gain: tuple[float, float, float]
    tokens: tuple[float, float]
    seconds: float

    @property
    def line(self) -> str:
        def change(name: str) -> str:
            return f"{self.before[name]:.0%} to {self.after[name]:.0%}"

        gain, low, high = self.gain
        return (
            f"| {self.arm} | {self.seed} | {change('right')} | {gain:+.0%} ({low:+.0%} to "
            f"{high:+.0%}) | {self.tokens[0]:.1f} to {self.tokens[1]:.1f} | {change('steps')} | "
            f"{change('self_check')} | {change('chinese')} | "
            f"{change('both')} |"
        )


def run_of(arm: str, seed: int, folder: Path) -> Any:
    changes = ARMS[arm][1]()
    return gw.train(RECIPE, overrides={"seed": seed, **changes}, output=folder, resume=True)


def measured(arm: str, seed: int, run: Any) -> Row:
    last = int(run.summary["steps"])
    before, after = (samples(run, version) for version in (0, last))
    shares = [by_prompt(rows) for rows in (before, after)]
    gains = [shares[1][name] - share for name, share in shares[0].items()]
    half = 1.96 * stdev(gains) / math.sqrt(len(gains))
    tokens = run.metrics().to_pandas()["completions/tokens_mean"]
    return Row(
        arm=arm,
        seed=seed,
        before=rates(before),
        after=rates(after),
        gain=(fmean(gains), fmean(gains) - half, fmean(gains) + half),
        tokens=(float(tokens[:2].mean()), float(tokens[-2:].mean())),
        seconds=float(run.summary["seconds"]),
    )


def samples(run: Any, version: int) -> list[dict[str, Any]]:
    """The sampled completions of one evaluation (the recipe evaluates held-out prompts)."""
    rows = run.evaluation_rollouts(version).to_pylist()
    return [row for row in rows if row["kind"] == "evaluation"]


def is_right(row: dict[str, Any]) -> bool:
    return str(row["text"]).endswith(f"<answer>{json.loads(row['answer'])}</answer>")


def by_prompt(rows: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row["prompt_id"]].append(float(is_right(row)))
    return {name: fmean(values) for name, values in sorted(found.items())}


def rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    texts = [str(row["text"]) for row in rows]
    steps = [text for text in texts if "<think>" in text]
    return {
        "right": fmean(map(is_right, rows)),
        "steps": len(steps) / len(texts),
        "self_check": fmean(any(word in text for word in SELF_CHECKS) for text in texts),
        "chinese": fmean(CHINESE in text for text in steps) if steps else 0.0,
        "both": fmean(CHINESE in t and ENGLISH in t for t in steps) if steps else 0.0,
    }


def check(rows: list[Row]) -> None:
    """What the experiment claims. AssertionError with the row that does not show it."""
    for row in rows:
        longer = row.tokens[1] / row.tokens[0] - 1
        if row.arm == "random reward":
            assert row.gain[0] < 0.05, f"learnt from noise: {row.line}"
            continue
        assert row.gain[0] >= 0.15, f"gained less than 15 points: {row.line}"
        assert longer >= 0.1, f"not 10 % longer: {row.line}"
        assert row.after["self_check"] > row.before["self_check"], f"fewer checks: {row.line}"
        if row.arm == "English rewarded":
            assert row.after["chinese"] < row.before["chinese"] / 2, f"still mixed: {row.line}"
        else:
            assert row.after["chinese"] > row.before["chinese"], f"all English: {row.line}"


def shown(run: Any) -> str:
    """What the policy writes to three held-out prompts, before and after."""
    lines = []
    last = int(run.summary["steps"])
    for title, version in (("Before", 0), ("After", last)):
        rows = [row for row in samples(run, version) if row["group_index"] == 0][:4]
        lines.append(f"{title}:\n\n```text")
        for row in rows:
            question = json.loads(row["prompt"])[-1]["content"]
            lines.append(f"{question} {row['text']}")
        lines.append("```\n")
    return "\n".join(lines)


def draw(runs: list[Any], controls: list[Any]) -> None:
    """Accuracy, length and self-checks over the steps: mean and range of the seeds."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
    names = ("eval/heldout_verifier/accuracy", "completions/tokens_mean",
             "eval/heldout_verifier/self_check")  # fmt: skip
    titles = ("right, held out", "mean length, tokens", "with a self-check, held out")
    for axis, name, title in zip(axes, names, titles, strict=True):
        for group, colour, label in ((runs, "C0", "accuracy"), (controls, "0.6", "random")):
            table = [series(run, name) for run in group]
            at = sorted(table[0])
            columns = [[each[step] for each in table] for step in at]
            axis.plot(at, list(map(fmean, columns)), color=colour, label=f"reward: {label}")
            low, high = list(map(min, columns)), list(map(max, columns))
            axis.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)
        axis.set(title=title, xlabel="steps", ylim=(0, None if "tokens" in name else 1))
        axis.grid(alpha=0.2)
    axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(CURVE, metadata={"Date": None})


def series(run: Any, name: str) -> dict[int, float]:
    """A metric by the number of finished steps; of every step the mean over ten."""
    if name.startswith("eval/"):
        table = run.evaluations().to_pandas()
        return {int(step): float(value) for step, value in zip(table["version"], table[name])}
    values = run.metrics().to_pandas()[name]
    return {at + 10: float(values[at : at + 10].mean()) for at in range(0, len(values), 10)}


HEAD = """\
# Reasoning that grows by itself

<!-- Written by experiments/r1_zero.py. -->

`recipes/r1_zero.toml` is R1-Zero at the size of a laptop: one stage of group RL on a policy that
sometimes reasons, a reward for the right answer, a small one (0.1) for the answer tag, and nothing
else. Accuracy, length and the rate of self-checks rise together.

![Accuracy, mean length and self-checks over the steps](r1_zero.svg)

## The policy

`tiny-reasoner` is built on first use, in about a minute of one core, from rows that are made up. It
is asked for sums of three or four digits (`7+8+5=`). Of the labels of its start, 35 % write out
steps between `<think>` and `</think>`. 40 % of these begin in Chinese, and 10 % of the lines change
the language; 25 % of the English steps and 15 % of the Chinese ones have a slip (the result is one
off). 30 % check their first step (`wait, ...`, `等等...`) and mostly go on so; a check repeats
the sum without a slip. A direct answer is a number up to 3 away from the right one. 10 % of the
answers have no tag. All are shares of labels. What the policy then does, at the start of the
recipe's five runs:

{rates}

## Seeds

{table}

`right`: sampled completions whose answer tag holds the sum; gain with its 95 % interval over the
held-out prompts. `tokens`: mean length of the rollouts of the first and of the last two steps.
`Chinese`, `both languages`: of the completions with steps, those with a Chinese line, and those
with lines of either. The cold start draws from all sums, the held-out ones included; what is held
out is held out from RL.

- Self-checks rise first, since a check repairs a slip, and fall again where the steps themselves
  become sure (the curve shows it).
- Chinese steps slip less, so accuracy alone draws the policy away from English; 8 to 17 % of the
  traces stay mixed. `English rewarded` gives the verifier `language` (`english` in the recipe) the
  weight 0.3: Chinese nearly goes, at the price of 2 to 6 points and of longer traces, in which
  checks make up for the slips.
- `random reward` is the control: the same run, rewarded by bits of the texts. It drifts, and does
  not learn.

## What it writes

{shown}
Run it: `groupwise train recipes/r1_zero.toml`; the table: `python experiments/r1_zero.py`. A run
took {seconds} s on 2 cores of an Intel Xeon (AVX2) that were shared with other work. Self-checks
and language are verifiers of weight 0 in the recipe, so `verifier/self_check` and
`verifier/english` are in every step's metrics and, as `eval/heldout_verifier/...`, in every
evaluation: any phrase can be counted in any run like that.
"""


def page(rows: list[Row], written: str, start: list[dict[str, Any]]) -> str:
    head = (
        "| arm | seed | right | gain (95 % interval) | tokens | with steps | with a self-check "
        "| Chinese | both languages |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    seconds = sorted(row.seconds for row in rows)
    return HEAD.format(
        rates=base_rates(start),
        table=head + "\n".join(row.line for row in rows),
        shown=written,
        seconds=f"{seconds[0]:.0f} to {seconds[-1]:.0f}",
    )


def base_rates(rows: list[dict[str, Any]]) -> str:
    """Accuracy at the start by what is written: a table."""
    lines = ["| before training | share | right | tokens |", "|---|---|---|---|"]
    kinds: dict[str, Callable[[str], bool]] = {
        "direct": lambda text: "<think>" not in text,
        "steps, no check": lambda text: "<think>" in text and not checked(text),
        "steps with a check": checked,
    }
    for kind, belongs in kinds.items():
        some = [row for row in rows if belongs(row["text"])]
        right = fmean(map(is_right, some))
        tokens = fmean(len(row["completion_ids"]) for row in some)
        lines.append(f"| {kind} | {len(some) / len(rows):.0%} | {right:.0%} | {tokens:.1f} |")
    return "\n".join(lines)


def checked(text: str) -> bool:
    return any(word in text for word in SELF_CHECKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "r1_zero")
    output = parser.parse_args().output
    rows, runs = [], defaultdict(list)
    for arm, (seeds, _) in ARMS.items():
        for seed in seeds:
            run = run_of(arm, seed, output / f"{arm.replace(' ', '_')}-{seed}")
            runs[arm].append(run)
            rows.append(measured(arm, seed, run))
            print(rows[-1].line, flush=True)
    check(rows)
    start = [row for run in runs["the recipe"] for row in samples(run, 0)]
    draw(runs["the recipe"], runs["random reward"])
    PAGE.write_text(page(rows, shown(runs["the recipe"][0]), start), encoding="utf-8")


if __name__ == "__main__":
    main()
