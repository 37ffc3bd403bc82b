"""The claims of experiments/rejection.py are checked; its page has every arm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rejection as experiment

ROOT = Path(__file__).parents[2]


def curves(**changes: Any) -> dict[str, Any]:
    given = {
        "RAFT": [[(0, 0.3), (100, 0.6)]],
        "RAFT of random rows": [[(0, 0.3), (100, 0.35)]],
        "STaR": [[(0, 0.3), (0, 0.4), (100, 0.6)]],
    }
    return {**given, **changes}


def test_the_claims_are_checked() -> None:
    experiment.check(curves())
    for changes, words in (
        ({"RAFT": [[(0, 0.3), (100, 0.4)]]}, r"RAFT, seed 0: gained \+10%"),
        ({"RAFT of random rows": [[(0, 0.3), (100, 0.55)]]}, "random rows, seed 0"),
        ({"STaR": [[(0, 0.3), (0, 0.55), (100, 0.6)]]}, "STaR, seed 0"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check(curves(**changes))


def test_accuracy_at_equal_tokens_and_the_interval() -> None:
    assert experiment.accuracy_at([(0, 0.2), (100, 0.4), (200, 0.5)], 150) == pytest.approx(0.45)
    with pytest.raises(ValueError, match="beyond"):
        experiment.accuracy_at([(0, 0.2), (100, 0.4)], 101)
    mean, low, high = experiment.interval([0.1, 0.2, 0.3])
    assert (mean, high - mean) == (pytest.approx(0.2), pytest.approx(4.303 * 0.1 / 3**0.5))
    assert low == pytest.approx(2 * mean - high)


def test_the_controls_differ_from_the_recipes_in_one_thing() -> None:
    star = experiment.without_hints()["stages"]
    assert [each for each in star if "rationalise" in each] == []
    for stage, own in zip(experiment.table("star")["stages"], star, strict=True):
        stage.pop("rationalise", None)
        assert stage == own


def test_the_page_has_every_arm() -> None:
    text = experiment.PAGE.read_text(encoding="utf-8")
    for arm, last in (("RAFT", "round 3"), ("RAFT of random rows", "round 3"),
                      ("STaR", "round 2"), ("STaR without hints", "round 2")):  # fmt: skip
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {arm}, {last} | ")]
        assert len(line.split(" | ")) == 1 + len(experiment.SEEDS)
    assert "| GRPO, as many tokens | " in text
