"""Groups of 2 against groups of 8, as many completions a step: recipes/minimal_two.toml, 3 seeds.

Checks what it claims and writes docs/minimal_two.md and docs/minimal_two.svg.

    python experiments/minimal_two.py    # about 3 minutes of one core; needs matplotlib
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from arms import ROOT, Row, difference, draw, of_arm, play, series, shown, table

RECIPE = ROOT / "recipes" / "minimal_two.toml"
PAGE, CURVE = ROOT / "docs" / "minimal_two.md", ROOT / "docs" / "minimal_two.svg"
RUNS = ROOT / "runs" / "minimal_two"
SEEDS = (0, 1, 2)
TWO, EIGHT, FEWER = "groups of 2", "groups of 8", "groups of 2, a fourth of the prompts"
ARMS = {
    TWO: {},
    EIGHT: {
        "algorithm.preset": "grpo", "algorithm.kl_coef": 0.0,
        "sampling.group_size": 8, "training.prompts_per_step": 16,
    },
    FEWER: {"training.prompts_per_step": 16},
}  # fmt: skip

HEAD = """\
# Groups of two

<!-- Written by experiments/minimal_two.py. -->

`recipes/minimal_two.toml` trains `tiny-reasoner` with groups of 2 (2-GRPO: plain GRPO, so an
advantage is 1, -1 or 0). Compared are 64 prompts in groups of 2 and 16 prompts in groups of 8, both
128 completions a step, and as the control 16 prompts in groups of 2, a fourth of the completions.
30 steps, 3 seeds, 200 held-out prompts with 4 samples each; intervals are over the prompts.

![Held-out accuracy and groups without a signal](minimal_two.svg)

"""


def check(rows: Sequence[Row]) -> None:
    """What the experiment claims. AssertionError with what does not show it."""
    for row in rows:
        assert row.gain[1] > 0, f"no gain: {row.line}"
    lost = difference(rows, FEWER, TWO)
    assert lost[2] < 0, f"a fourth of the prompts does as well: {shown(lost)}"
    paired = difference(rows, TWO, EIGHT)
    assert abs(paired[0]) < 0.1, f"groups of 2 and 8 differ: {shown(paired)}"


def page(rows: Sequence[Row]) -> str:
    silent = {
        arm: [series(row.run, "groups/no_signal") for row in of_arm(rows, arm)] for arm in ARMS
    }
    first, last = (
        {arm: sum(each[at(each)] for each in silent[arm]) / len(silent[arm]) for arm in ARMS}
        for at in (min, max)
    )
    seeds = [
        f"{100 * (fmean(two.after.values()) - fmean(eight.after.values())):+.1f}"
        for two, eight in zip(of_arm(rows, TWO), of_arm(rows, EIGHT), strict=True)
    ]
    lines = [
        f"- Groups of 2 less groups of 8, paired by prompt: {shown(difference(rows, TWO, EIGHT))};",
        f"  by seed {', '.join(seeds)} points. Three seeds do not tell the two apart.",
        f"- A fourth of the prompts less all of them: {shown(difference(rows, FEWER, TWO))}.",
        "  How many completions there are is what pays; pairs spread them over more prompts.",
        f"- Groups without a signal, first and last five steps: {first[TWO]:.0%} and "
        f"{last[TWO]:.0%} of the pairs,",
        f"  {first[EIGHT]:.0%} and {last[EIGHT]:.0%} of the groups of 8. A pair says less, and "
        "there are four times as many.",
    ]
    return HEAD + table(rows) + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    rows = play(RECIPE, ARMS, SEEDS, RUNS)
    check(rows)
    draw(rows, {"eval/heldout": "right, held out", "groups/no_signal": "groups without a signal"},
         CURVE)  # fmt: skip
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
