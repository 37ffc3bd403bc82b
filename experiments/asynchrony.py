"""Sampling ahead of learning against waiting: throughput, and accuracy after as many rollouts.

The policy of recipes/r1_zero.toml answers at once or writes steps (4 to 80 tokens), and a verifier
of weight 0 takes as long as a judge behind an endpoint: mostly a fifth of a second, for one
completion in fifty two seconds. Asserts that every arm is faster than the synchronous one, and that
one step ahead it learns as much; writes the end of docs/asynchrony.md.

    python experiments/asynchrony.py            # one to two minutes a run
    python experiments/asynchrony.py --fresh    # not from the runs that are there
"""

from __future__ import annotations

import asyncio
import tomllib
import zlib
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from arms import ROOT, Row, delete_if_fresh, interval, is_accurate, of_arm, play, shown

RECIPE = ROOT / "recipes" / "r1_zero.toml"
PAGE = ROOT / "docs" / "asynchrony.md"
SECTION = "## Measured\n"
RUNS = ROOT / "runs" / "asynchrony"
SEEDS = (0, 1, 2)
STEPS = 30
WAITING = "synchronous"
ARMS: dict[str, dict[str, Any]] = {
    WAITING: {},
    "1 ahead": {"max_staleness": 1},
    "1 ahead, parked": {"max_staleness": 1, "park_after": 24},
    "2 ahead, correct": {"max_staleness": 2, "stale": "correct", "park_after": 24},
}


async def judge(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
    """1 for every completion, after the time that its judge takes: a function of the texts."""

    async def verdict(pair: tuple[Any, Any]) -> float:
        draw = zlib.crc32(repr(pair).encode()) % 1000
        await asyncio.sleep(2.0 if draw < 20 else 0.1 + draw / 5000)
        return 1.0

    return list(await asyncio.gather(*map(verdict, zip(prompts, completions, strict=True))))


def settings(arm: dict[str, Any]) -> dict[str, Any]:
    tables = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["environment"]["verifiers"]
    judged = [*tables, {"name": "asynchrony:judge", "weight": 0.0}]
    changed = {f"compute.{name}": value for name, value in arm.items()}
    return {
        "environment.verifiers": judged,
        "algorithm.correction": "truncate",
        "evaluation.every": 0,
        "checkpoints.every": 0,
        "training.steps": STEPS,
        **changed,
    }


def figures(row: Row) -> dict[str, float]:
    """Of one run: wall clock of its steps, tokens, staleness and the shares that `ahead` counts."""
    metrics = row.run.metrics().to_pandas()
    seconds = metrics["seconds/step"] - metrics["seconds/evaluate"].fillna(0.0)
    named = {name: float(metrics[name].fillna(0.0).mean()) if name in metrics else 0.0
             for name in ("staleness", "ahead/mixed", "seconds/rollout",
                          "seconds/learn", "sampler_gap/mean")}  # fmt: skip
    waited = metrics["seconds/rollout"] + metrics["seconds/score"].fillna(0.0)
    named["waited"] = float(waited.mean())
    return {"seconds": float(seconds.sum()), "tokens": float(metrics["tokens"].sum()), **named}


def line(rows: list[Row], waiting: list[Row]) -> str:
    """An arm over its seeds, its gain paired by seed and prompt with the synchronous arm's."""
    found = [figures(row) for row in rows]
    mean = {name: fmean(each[name] for each in found) for name in found[0]}
    speed = fmean(
        (own["tokens"] / own["seconds"]) / (other["tokens"] / other["seconds"])
        for own, other in zip(found, map(figures, waiting))
    )
    behind = [
        one.after[name] - other.after[name]
        for one, other in zip(rows, waiting)
        for name in one.after
    ]
    accuracy = fmean(fmean(row.after.values()) for row in rows)
    against = "" if rows is waiting else shown(interval(behind))
    return (
        f"| {rows[0].arm} | {mean['seconds']:.0f} | {mean['tokens'] / mean['seconds']:.0f} | "
        f"{mean['waited']:.2f} | {speed:.2f} | {mean['staleness']:.2f} | "
        f"{mean['ahead/mixed']:.1%} | {mean['sampler_gap/mean']:.4f} | {accuracy:.1%} | {against} |"
    )


HEAD = (
    "| arm | seconds | tokens a second | waited a step | to synchronous | staleness | "
    "several versions | sampler gap | held out | difference (95 %) |\n|---|" + "---|" * 9 + "\n"
)


def page(rows: list[Row]) -> str:
    """The section that the docs show."""
    waiting = of_arm(rows, WAITING)
    lines = [line(waiting if arm == WAITING else of_arm(rows, arm), waiting) for arm in ARMS]
    head = (
        f"{SECTION}\n<!-- Written by experiments/asynchrony.py. -->\n\n"
        f"{len(SEEDS)} seeds, {STEPS} steps of 16 prompts of 8 completions of up to 80 tokens "
        "(`recipes/r1_zero.toml`); a judge that waits a\nfifth of a second for most completions "
        "and two seconds for one in fifty. All arms learn from as many rollouts.\n`seconds` are "
        "those of the steps without evaluations, `waited a step` is the time until a step has\nits "
        "groups and their rewards, `sampler gap` the mean distance of the sampler's "
        "log-probabilities from the\nlearner's, in nats; accuracy is on held-out sums, the "
        "difference paired by seed and prompt.\n\n"
    )
    return head + HEAD + "\n".join(lines) + "\n"


def check(rows: list[Row]) -> None:
    """What the experiment claims. AssertionError with the row that does not show it."""
    waiting = of_arm(rows, WAITING)
    for arm in ARMS:
        if arm == WAITING:
            continue
        pairs = list(zip(of_arm(rows, arm), waiting, strict=True))
        for own, other in pairs:
            one, two = figures(own), figures(other)
            assert one["tokens"] / one["seconds"] > two["tokens"] / two["seconds"], own.line
        low = interval([o.after[n] - w.after[n] for o, w in pairs for n in o.after])
        assert low[2] > 0 or arm.startswith("2"), f"{arm} learns less: {shown(low)}"


def main() -> None:
    delete_if_fresh(__doc__, RUNS)
    arms = {name: settings(arm) for name, arm in ARMS.items()}
    rows = play(RECIPE, arms, SEEDS, RUNS, is_accurate)
    text = page(rows)
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(SECTION)
    PAGE.write_text(before + text, encoding="utf-8")
    print(text)
    check(rows)


if __name__ == "__main__":
    main()
