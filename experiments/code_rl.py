"""A tiny policy learns to pass test cases in the sandbox: recipes/code_rl.toml, a control, 3 seeds.

Checks what it claims and writes docs/code_rl.md and docs/code_rl.svg.

    python experiments/code_rl.py    # some minutes of one core; needs matplotlib
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from arms import ROOT, Row, at_random, draw, is_accurate, of_arm, play, series, table

RECIPE = ROOT / "recipes" / "code_rl.toml"
PAGE, CURVE = ROOT / "docs" / "code_rl.md", ROOT / "docs" / "code_rl.svg"
RUNS = ROOT / "runs" / "code_rl"
SEEDS = (0, 1, 2)
TESTS, RANDOM = "the recipe", "random reward"
ARMS: Mapping[str, Mapping[str, Any]] = {TESTS: {}, RANDOM: at_random(RECIPE)}
SHOWN = "eval/heldout_verifier/accuracy"
HIDDEN = "eval/heldout_strict"
GREEDY = "eval/heldout_greedy_verifier/accuracy"


def check(rows: Sequence[Row]) -> None:
    """What the experiment claims. AssertionError with what does not show it."""
    for row in of_arm(rows, TESTS):
        assert row.gain[1] > 0.15, f"no gain: {row.line}"
    for row in of_arm(rows, RANDOM):
        assert row.gain[1] < 0.05, f"learned from noise: {row.line}"


HEAD = """\
# Learning to pass test cases

<!-- Written by experiments/code_rl.py. -->

`recipes/code_rl.toml`: functions of a whole number, asked for in a few words (`solve(x):
add 7`). The policy is `tiny_code`, built in seconds from a table of twelve kinds of
functions, with the program of another kind for most labels: it writes a program that runs, the
right one about a third of the time, and its most likely program is wrong. The reward is 1 where all
six cases pass in the sandbox, else 0. Held-out functions are none of those trained on, and `hidden`
is the share that passes six further cases, which training never sees. That learning from test cases
works is what this shows, not how well a model codes: the policy knows nothing beyond its table.

![Right, held out, over the steps](code_rl.svg)

"""


def ends(run: Any, name: str) -> str:
    values = series(run, name)
    return f"{values[min(values)]:.1%} to {values[max(values)]:.1%}"


def page(rows: Sequence[Row]) -> str:
    lines = ["| arm, seed | hidden cases, sampled | greedy |", "|---|---|---|"]
    for arm in ARMS:
        for row in of_arm(rows, arm):
            cells = [f"{arm}, {row.seed}", ends(row.run, HIDDEN), ends(row.run, GREEDY)]
            lines.append(f"| {' | '.join(cells)} |")
    seconds = fmean(float(row.run.summary["seconds"]) for row in of_arm(rows, TESTS))
    return f"""{HEAD}{table(rows)}
{chr(10).join(lines)}

`random reward` is the control: a reward for the bits of the text. A text is always paid alike, so
some programs are learned, and most of them are wrong. Intervals are over the {len(rows[0].before)}
held-out functions, 4 samples each; gains are paired by function. A run took {seconds:.0f} s on 2
cores that were shared with other work.
"""


def main() -> None:
    rows = play(RECIPE, ARMS, SEEDS, RUNS, is_accurate)
    draw(rows, {SHOWN: "all cases pass, held out", HIDDEN: "all hidden cases pass, held out"},
         CURVE)  # fmt: skip
    PAGE.write_text(page(rows), encoding="utf-8")
    check(rows)


if __name__ == "__main__":
    main()
