"""Tulu 3's order on the tiny reasoner: 3 seeds, and the same pairs in the order of a coin.

Runs recipes/tulu_rlvr.toml and its control for 3 seeds; asserts that each part raises the share of
right answers to held-out sums, and that DPO does not on the control's pairs; writes
docs/tulu_rlvr.md and docs/tulu_rlvr.svg.

    python experiments/tulu_rlvr.py      # about 6 minutes on one core; finished runs are read
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arms import ROOT, draw_points, over_seeds, shown

import groupwise as gw

RECIPE = ROOT / "recipes" / "tulu_rlvr.toml"
PAGE, CURVE = ROOT / "docs" / "tulu_rlvr.md", ROOT / "docs" / "tulu_rlvr.svg"
SEEDS = (0, 1, 2)
ARMS: dict[str, dict[str, Any]] = {
    "right over wrong": {},
    "a coin": {"stages.dpo.data.0.pairing.by": "coin"},
}
POINTS = ("base", "sft", "dpo", "rlvr")
RIGHT = "guard/accuracy"
MEASURES = {RIGHT: "right", "guard/tokens_mean": "tokens"}
Curve = dict[str, list[float]]
"""Each measure at the points."""


def curve_of(run: Any) -> Curve:
    stages = {each["name"]: each for each in run.summary["stages"]}
    places = [stages["traces"]["first"], *(stages[name]["last"] for name in POINTS[1:])]
    return {name: [float(place[name]) for place in places] for name in MEASURES}


def play(folder: Path) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {arm: [] for arm in ARMS}
    for seed in SEEDS:
        for arm, changes in ARMS.items():
            output = folder / f"{arm.replace(' ', '_')}-{seed}"
            run = gw.train(RECIPE, {"seed": seed, **changes}, output=output, resume=True)
            found[arm].append(curve_of(run))
            print(arm, seed, found[arm][-1], f"{float(run.summary['seconds']):.0f} s", flush=True)
    return found


def gains(curves: list[Curve], after: str) -> list[float]:
    """What a part adds to the share of right answers, of each seed."""
    at = POINTS.index(after)
    return [each[RIGHT][at] - each[RIGHT][at - 1] for each in curves]


def check(curves: Mapping[str, list[Curve]]) -> None:
    """Each part raises right answers on every seed; DPO on a coin's pairs does not."""
    for after in POINTS[1:]:
        for seed, gain in enumerate(gains(curves["right over wrong"], after)):
            assert gain > 0.05, f"right over wrong, seed {seed}: {after} adds {gain:.1%}"
    for seed, gain in enumerate(gains(curves["a coin"], "dpo")):
        assert gain < 0.05, f"a coin, seed {seed}: dpo adds {gain:.1%}"


def table(curves: Mapping[str, list[Curve]]) -> str:
    titles = [f"{title}: {point}" for title in MEASURES.values() for point in POINTS]
    lines = ["| pairs | seed | " + " | ".join(titles) + " |", "|---" * (2 + len(titles)) + "|"]
    for arm, found in curves.items():
        for seed, curve in enumerate(found):
            cells = [f"{value:.1%}" for value in curve[RIGHT]]
            cells += [f"{value:.1f}" for value in curve["guard/tokens_mean"]]
            lines.append(f"| {arm} | {seed} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TEXT = """\
# Tulu 3's order

<!-- Written by experiments/tulu_rlvr.py. -->

Supervised, length-normalised DPO, RL with a verifiable reward (Lambert et al. 2024, arXiv
2411.15124), in one file: `recipes/tulu_rlvr.toml` on the [tiny reasoner](r1_zero.md#the-policy).

1. `sft`: supervised on the base model's own right traces (Tulu 3 has prompts and answers of many
   sources here);
2. `dpo`: right against wrong answers of the supervised model to other prompts, with
   [the loss](preference.md) `dpo_normalised`;
3. `rlvr`: 25 steps of group RL, whose reward is the right answer alone.

The control orders the same pairs by a coin (`--stages.dpo.data.0.pairing.by coin`).

```bash
groupwise train recipes/tulu_rlvr.toml
groupwise train recipes/tulu_rlvr.toml --small      # every stage, tiny
```

![Right answers and their length after each part](tulu_rlvr.svg)

{table}

`right`: sampled answers to 200 held-out sums, 4 of each. What each part adds, mean of the seeds and
95 % interval (Student's t):

- `sft` {sft}
- `dpo` {dpo}; on the coin's pairs {coin}
- `rlvr` {rlvr}

After `rlvr` the recipe is ahead of the control by {ahead}:
on a task this small, RL gets nearly as far without what DPO taught. The right answer of a pair is
mostly the one with steps, so answers grow.

The table: `python experiments/tulu_rlvr.py`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "tulu_rlvr")
    curves = play(parser.parse_args().output)
    check(curves)
    draw_points(curves, POINTS, MEASURES, CURVE)
    own = curves["right over wrong"]
    added = {after: shown(over_seeds(gains(own, after))) for after in POINTS[1:]}
    coin = shown(over_seeds(gains(curves["a coin"], "dpo")))
    pairs = zip(own, curves["a coin"], strict=True)
    ahead = shown(over_seeds([one[RIGHT][-1] - two[RIGHT][-1] for one, two in pairs]))
    text = TEXT.format(table=table(curves), coin=coin, ahead=ahead, **added)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
