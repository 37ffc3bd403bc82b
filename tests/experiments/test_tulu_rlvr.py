"""Each part of Tulu 3's order adds right answers; the page has every arm and seed."""

from __future__ import annotations

import pytest
import tulu_rlvr as experiment
from arms import over_seeds


def curve(*right: float) -> experiment.Curve:
    return {"guard/accuracy": list(right), "guard/tokens_mean": [15.0] * 4}


def test_the_claims_are_checked() -> None:
    given = {"right over wrong": [curve(0.3, 0.5, 0.6, 0.7)], "a coin": [curve(0.3, 0.5, 0.5, 0.7)]}
    experiment.check(given)
    for arm, bad, words in (
        ("right over wrong", curve(0.3, 0.3, 0.6, 0.7), "seed 0: sft adds 0.0%"),
        ("right over wrong", curve(0.3, 0.5, 0.5, 0.7), "dpo adds"),
        ("right over wrong", curve(0.3, 0.5, 0.6, 0.5), "rlvr adds -10.0%"),
        ("a coin", curve(0.3, 0.5, 0.6, 0.7), "a coin, seed 0"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check({**given, arm: [bad]})


def test_the_interval_of_three_seeds_is_students() -> None:
    mean, low, high = over_seeds([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2)
    assert high - mean == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert mean - low == pytest.approx(high - mean)


def test_the_page_has_three_seeds_of_each_arm() -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert [(row[0], row[1]) for row in rows[1:]] == [
        (arm, str(seed)) for arm in experiment.ARMS for seed in experiment.SEEDS
    ]
