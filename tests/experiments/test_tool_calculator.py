"""The calculator is learnt: the claim is checked, and the page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tool_calculator as experiment

import groupwise as gw

ROOT = Path(__file__).parents[2]


def row(arm: str, **values: float) -> object:
    given = {"first": 0.05, "last": 0.9, "gain": 0.85, "low": 0.8, "high": 0.9,
             "calls_first": 0.1, "calls_last": 0.96, **values}  # fmt: skip
    return experiment.Row(arm=arm, seed=0, **given)


def test_the_claim_is_checked() -> None:
    experiment.check([row("calculator"), row("tool off", last=0.0)])
    for bad, words in (
        (row("calculator", low=-0.01), "no gain"),
        (row("calculator", calls_last=0.5), "not used"),
        (row("tool off"), "without the tool"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([bad])


def test_the_page_has_three_seeds_of_each_arm() -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith(("| calc", "| tool"))]
    assert [(each[0].strip("| "), int(each[1])) for each in rows] == [
        (arm, seed) for arm in experiment.ARMS for seed in experiment.SEEDS
    ]
    after = [float(each[3].rstrip("%")) for each in rows]
    assert min(after[:3]) > 80 > 5 > max(after[3:])


@pytest.mark.slow
def test_the_tool_is_learnt_within_fifteen_steps(tmp_path: Path) -> None:
    changes = {"training.steps": 15, "evaluation.max_prompts": 40}
    run = gw.train(experiment.RECIPE, overrides=changes, output=tmp_path / "run")
    reward = run.metrics().to_pandas()["reward"]
    assert reward.iloc[0] < 0.2
    assert reward.iloc[-3:].mean() > 0.6
    assert run.summary["eval/heldout_last"] > run.summary["eval/heldout_first"] + 0.4
