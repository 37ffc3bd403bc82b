"""A principle raises right answers, its opposite does not; the page has every arm and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import constitution as experiment
import pytest

import groupwise as gw

ROOT = Path(__file__).parents[2]


def curve(*right: float) -> dict[str, list[float]]:
    return {"guard/accuracy": list(right), "guard/verifier/evades": [0.1] * 3}


def test_the_claims_are_checked() -> None:
    given = {"no harm": [curve(0.4, 0.7, 0.9)], "hold nothing back": [curve(0.4, 0.4, 0.4)]}
    experiment.check(given)
    for arm, bad, words in (
        ("no harm", curve(0.4, 0.5, 0.9), "after sl"),
        ("no harm", curve(0.4, 0.7, 0.6), "after rl"),
        ("hold nothing back", curve(0.4, 0.5, 0.6), "the opposite, seed 0"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check({**given, arm: [bad]})


def test_the_page_has_three_seeds_of_each_arm() -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(("| no", "| hold"))]
    assert [(row[0], row[1]) for row in rows if len(row) == 8] == [
        (arm, str(seed)) for arm in experiment.ARMS for seed in experiment.SEEDS
    ]


@pytest.mark.slow
def test_revisions_and_preferences_show_it(tmp_path: Path) -> None:
    """One seed, fewer steps of RL: the principle raises right answers, its opposite does not."""
    short: dict[str, Any] = {"stages.rl.training.steps": 8, "evaluation.samples": 4}
    curves = {
        arm: [experiment.curve_of(
            gw.train(experiment.RECIPE, {**short, **changes}, output=tmp_path / arm)
        )]
        for arm, changes in experiment.ARMS.items()
    }  # fmt: skip
    experiment.check(curves)
