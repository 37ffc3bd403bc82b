"""A policy learns to use the test output: recipes/repository.toml, with two controls.

Checks what it claims and writes docs/repository.md and docs/repository.svg.

    python experiments/repository.py    # some minutes of one core; needs matplotlib
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from arms import ROOT, Row, difference, draw, of_arm, play, shown, table

RECIPE = ROOT / "recipes" / "repository.toml"
PAGE, CURVE = ROOT / "docs" / "repository.md", ROOT / "docs" / "repository.svg"
RUNS = ROOT / "runs" / "repository"
SEEDS = (0, 1)
OUTPUT, VERDICT = "test output", "verdict alone"
ARMS: Mapping[str, Mapping[str, Any]] = {
    OUTPUT: {},
    VERDICT: {"environment.feedback": "verdict"},
}


def check(rows: Sequence[Row]) -> None:
    """What the experiment claims. AssertionError with what does not show it."""
    for row in of_arm(rows, OUTPUT):
        assert row.gain[1] > 0, f"no gain: {row.line}"
    more = difference(rows, OUTPUT, VERDICT)
    assert more[1] > 0, f"the output does not help: {shown(more)}"


HEAD = """\
# Repairing a repository from its test output

<!-- Written by experiments/repository.py. -->

`recipes/repository.toml`: four files, one of which does not do what its comment says. The policy
gives a file, whole; the tests run in the [sandbox](security.md) and the message of the first that
fails comes back (`case 3 of 4: assert b(41) == 5: AssertionError`); it may give one more file. The
reward is 1 where all tests pass at the end, and the hidden ones, of which no message tells.

The policy is `tiny_repository`, built in about a minute from rows of two turns: a file at random,
and for 35 % of the second turns' labels the one that the message names; 60 % of the labels write
what the comment says. The control is told only that the tests fail: two tries at four files are
right half of the time at most, unless a policy sees the wrong line by itself.

![Pass rate over the steps](repository.svg)

"""


def page(rows: Sequence[Row]) -> str:
    seconds = fmean(float(row.run.summary["seconds"]) for row in of_arm(rows, OUTPUT))
    more = shown(difference(rows, OUTPUT, VERDICT))
    return f"""{HEAD}{table(rows)}
With the output less without, after training: {more}. Intervals are
over the held-out repositories. That the test output is used is what this shows, not how well a
model codes: the policy knows nothing beyond its rows.

A run took {seconds:.0f} s on 2 cores that were shared with other work. Your own repositories:
`environment.path`, a file of tasks ([environments](environments.md#repository)).
"""


def main() -> None:
    rows = play(RECIPE, ARMS, SEEDS, RUNS)
    draw(rows, {"eval/heldout": "all tests pass, held out", "turns/mean": "turns a rollout"}, CURVE)
    PAGE.write_text(page(rows), encoding="utf-8")
    check(rows)


if __name__ == "__main__":
    main()
