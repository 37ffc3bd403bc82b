"""A policy learns to use the tests' output: recipes/repository.toml, a control, 3 seeds.

Checks what it claims and writes docs/repository.md and docs/repository.svg.

    python experiments/repository.py    # some minutes of one core; needs matplotlib
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from arms import ROOT, Row, at_random, draw, is_accurate, of_arm, play, table

RECIPE = ROOT / "recipes" / "repository.toml"
PAGE, CURVE = ROOT / "docs" / "repository.md", ROOT / "docs" / "repository.svg"
RUNS = ROOT / "runs" / "repository"
OUTPUT, RANDOM = "the recipe", "random reward"
SEEDS = {OUTPUT: (0, 1, 2), RANDOM: (0, 1, 2)}
ARMS: Mapping[str, Mapping[str, Any]] = {OUTPUT: {}, RANDOM: at_random(RECIPE)}


def check(rows: Sequence[Row]) -> None:
    """What the experiment claims. AssertionError with what does not show it."""
    for row in of_arm(rows, OUTPUT):
        assert row.gain[1] > 0.05, f"no gain: {row.line}"
    for row in of_arm(rows, RANDOM):
        assert row.gain[1] < 0.05, f"learned from noise: {row.line}"


HEAD = """\
# Repairing a repository from its tests' output

<!-- Written by experiments/repository.py. -->

`recipes/repository.toml`: three files, one of which does not do what its comment says. The policy
gives a file, whole; the tests run in the [sandbox](security.md), and the message of the first that
fails comes back (`case 3 of 3: assert b(41) == 5: AssertionError`); it may give one more file. The
reward is 1 where all tests pass at the end, and the hidden ones, of which no message tells.

The policy is `tiny_repository`, built in a minute from made-up rows of two turns: a file at random,
in half of the second turns the one that the message names; 45 % of the labels write what the
comment says. A first try that breaks another file cannot be made good in the second.

![Repaired, held out, and turns, over the steps](repository.svg)

"""


def by_turn(rows: Sequence[Row], version: str) -> tuple[float, float]:
    """The shares of the held-out rollouts that are right after the first turn, and at the end."""
    found = [
        (is_accurate(each) and len(each["turn_ends"]) == 1, is_accurate(each))
        for row in rows
        for each in row.run.evaluation_rollouts(
            0 if version == "before" else int(row.run.summary["steps"])
        ).to_pylist()
        if each["kind"] == "evaluation"
    ]
    first, last = zip(*found, strict=True)
    return fmean(first), fmean(last)


def turns(rows: Sequence[Row]) -> str:
    lines = ["| arm | | right after turn 1 | after turn 2 |", "|---|---|---|---|"]
    for arm in ARMS:
        for version in ("before", "after"):
            first, last = by_turn(of_arm(rows, arm), version)
            lines.append(f"| {arm} | {version} training | {first:.1%} | {last:.1%} |")
    return "\n".join(lines) + "\n"


def page(rows: Sequence[Row]) -> str:
    seconds = fmean(float(row.run.summary["seconds"]) for row in of_arm(rows, OUTPUT))
    return f"""{HEAD}{table(rows)}
`random reward` is the control: a reward for the bits of the text. Intervals are over the
{len(rows[0].before)} held-out repositories, 4 samples each; gains are paired by repository.

What the second turn gives, all seeds:

{turns(rows)}
The first turn has to guess the file, one of three, unless a policy sees the wrong line by itself;
what is gained beyond that is gained by reading the message. That the output is used is what this
shows, not how well a model codes: the policy knows nothing beyond its rows.

A run took {seconds:.0f} s on 2 cores that were shared with other work. Your own repositories:
`environment.path`, a file of tasks ([environments](environments.md#repository)).
"""


def main() -> None:
    rows = [row for arm, changes in ARMS.items()
            for row in play(RECIPE, {arm: changes}, SEEDS[arm], RUNS, is_accurate)]  # fmt: skip
    draw(rows, {"eval/heldout_verifier/accuracy": "repaired, held out", "turns/mean": "turns"},
         CURVE)  # fmt: skip
    PAGE.write_text(page(rows), encoding="utf-8")
    check(rows)


if __name__ == "__main__":
    main()
