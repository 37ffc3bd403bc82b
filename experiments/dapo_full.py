"""DAPO's ladder on `tiny-reasoner`: each part of recipes/dapo_full.toml added in turn, 2 seeds.

Checks what it claims and writes docs/dapo_full.md and docs/dapo_full.svg.

    python experiments/dapo_full.py    # about 4 minutes of one core; needs matplotlib
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from arms import ROOT, Interval, Row, difference, interval, of_arm, play, series, shown, table

RECIPE = ROOT / "recipes" / "dapo_full.toml"
PAGE, CURVE = ROOT / "docs" / "dapo_full.md", ROOT / "docs" / "dapo_full.svg"
RUNS = ROOT / "runs" / "dapo_full"
SEEDS = (0, 1)

PARTS: dict[str, dict[str, Any]] = {
    "GRPO": {"preset": "grpo", "kl_coef": 0.0},
    "+ overlong mask": {"filters": ["overlong_mask"]},
    "+ clip-higher": {"surrogate": {"kind": "clip", "low": 0.2, "high": 0.28}},
    "+ soft punishment": {"shapers": [{"kind": "soft_overlong", "cache": 12}]},
    "+ token weights": {"weight": "per_token"},
    "+ dynamic sampling": {"filters": ["dynamic_sampling", "overlong_mask"]},
}
"""The paper's order; each arm has the parts of those before it. The last is all of DAPO."""


def ladder() -> dict[str, dict[str, Any]]:
    """What every arm changes in the recipe: its `[algorithm]` table."""
    algorithm: dict[str, Any] = {}
    arms = {}
    for name, part in PARTS.items():
        algorithm = {**algorithm, **part}
        arms[name] = {"algorithm": algorithm}
    return arms


def check(rows: Sequence[Row]) -> None:
    """What the experiment claims. AssertionError with what does not show it."""
    for row in rows:
        assert row.gain[1] > 0, f"no gain: {row.line}"
    whole = difference(rows, list(PARTS)[-1], "GRPO")
    assert whole[1] > 0, f"all of DAPO is not ahead of GRPO: {shown(whole)}"
    for above, arm in pairwise(PARTS):
        step = difference(rows, arm, above)
        if arm == "+ overlong mask":
            assert step[1] > 0, f"the mask does not help: {shown(step)}"
        else:
            assert step[1] < 0 < step[2], f"{arm} is told apart now: {shown(step)}"


def level(rows: Sequence[Row], arm: str) -> Interval:
    """Held-out accuracy after training, over the prompts of all seeds."""
    return interval([share for row in of_arm(rows, arm) for share in row.after.values()])


def total(rows: Sequence[Row], arm: str, name: str) -> float:
    """A metric summed over the steps, mean of the seeds."""
    return fmean(float(row.run.metrics().to_pandas()[name].sum()) for row in of_arm(rows, arm))


def draw(rows: Sequence[Row]) -> None:
    """Left: accuracy over the steps. Right: the ladder's last values with their intervals."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    for place, arm in enumerate(PARTS):
        tables = [series(row.run, "eval/heldout") for row in of_arm(rows, arm)]
        left.plot(list(tables[0]), [fmean(each[at] for each in tables) for at in tables[0]],
                  color=f"C{place}", label=arm)  # fmt: skip
        mean, low, high = level(rows, arm)
        right.errorbar(mean, -place, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3,
                       color=f"C{place}")  # fmt: skip
    left.set(title="right, held out", xlabel="steps")
    left.legend(frameon=False, fontsize=8)
    right.set(title="after training, 95 % interval", yticks=[-n for n in range(len(PARTS))],
              yticklabels=list(PARTS))  # fmt: skip
    for axis in (left, right):
        axis.grid(alpha=0.2)
    figure.savefig(CURVE, metadata={"Date": None})


HEAD = """\
# All of DAPO, part by part

<!-- Written by experiments/dapo_full.py. -->

`recipes/dapo_full.toml` on `tiny-reasoner`: 8 prompts in groups of 8, four updates a step, 30
steps, a budget of 48 tokens that the longest traces overrun. The arms follow the paper's ladder;
each has the parts of those above it, and the last is the recipe. 2 seeds, 200 held-out prompts
with 4 samples each; intervals are over the prompts, not over seeds.

![The ladder](dapo_full.svg)

"""

NOTE = """
What helps at this scale is the overlong mask: without it, what is cut off counts as wrong, and
more than a third of the rollouts are. The other rungs are not told apart from the one above: their
intervals hold 0. The clip hardly ever binds (`clipped above`, the share of tokens at the upper
bound), so a higher one cannot do much; so few groups lack a signal ({silent:.0%} before dynamic
sampling) that there is little to sample anew; lengths differ by a factor of ten, yet the token
weights show no gain. With two seeds a small effect may be missed. The paper's ladder (30, 36, 38,
41, 42, 50 points at 32B on AIME24) is not to be expected at this size.
"""


def page(rows: Sequence[Row]) -> str:
    lines = [
        "| part | against the rung above | sampled tokens | cut off | clipped above |",
        "|---|---|---|---|---|",
    ]
    for above, arm in pairwise([None, *PARTS]):
        against = "" if above is None else shown(difference(rows, str(arm), above))
        clip, cut = (
            fmean(
                float(row.run.metrics().to_pandas()[name].mean()) for row in of_arm(rows, str(arm))
            )
            for name in ("clip/high", "completions/truncated")
        )
        tokens = total(rows, str(arm), "tokens")
        lines.append(f"| {arm} | {against} | {tokens:,.0f} | {cut:.1%} | {clip:.2%} |")
    whole = difference(rows, list(PARTS)[-1], "GRPO")
    silent = fmean(
        float(row.run.metrics().to_pandas()["groups/no_signal"].mean())
        for row in of_arm(rows, "+ token weights")
    )
    return (
        f"{HEAD}{table(rows)}\n" + "\n".join(lines)
        + f"\n\nAll of DAPO less GRPO: {shown(whole)}.\n{NOTE.format(silent=silent)}"
    )  # fmt: skip


def main() -> None:
    rows = play(RECIPE, ladder(), SEEDS, RUNS)
    draw(rows)
    PAGE.write_text(page(rows), encoding="utf-8")
    check(rows)


if __name__ == "__main__":
    main()
