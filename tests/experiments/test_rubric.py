"""A rubric raises what its judge does not see; random marks do not. The page shows both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import rubric as experiment

ROOT = Path(__file__).parents[2]


def row(arm: str, before: Mapping[str, float], after: Mapping[str, float]) -> object:
    return experiment.Row(arm=arm, seed=0, before=before, after=after)


def test_the_claims_are_checked() -> None:
    low, high = {"a": 0.2, "b": 0.25}, {"a": 0.8, "b": 0.75}
    experiment.check([row("the recipe", low, high), row("random marks", high, low)])
    for bad, words in (
        (row("the recipe", low, low), "the recipe, seed 0: gained"),
        (row("random marks", low, high), "random marks, seed 0: gained"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([bad])


def test_the_page_has_three_seeds_of_each_arm() -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ")[:2] for line in lines if line.startswith(("| the rec", "| random"))]
    assert [(arm.strip("| "), int(seed)) for arm, seed in rows] == [
        (arm, seed) for arm in experiment.ARMS for seed in experiment.SEEDS
    ]


@pytest.mark.slow
def test_half_the_steps_show_it(tmp_path: Path) -> None:
    """Fewer steps of the recipe: the gold measure, which the judge never sees, rises with the
    rubric and not with random marks."""
    changes = {"training.steps": 15, "environment.num_heldout": 60, "evaluation.every": 0}
    arms = {arm: {**changes, **own} for arm, own in experiment.ARMS.items()}
    own, control = experiment.play(experiment.RECIPE, arms, [0], tmp_path, experiment.is_right)
    assert own.gain[1] > 0.1
    assert control.gain[0] < 0.05
