"""Reasoning grows by itself: in a short run, not in the control; the page shows what is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
import r1_zero as experiment

import groupwise as gw

ROOT = Path(__file__).parents[2]


ARMS = experiment.ARMS


def row(arm: str, **values: object) -> object:
    rates = {"right": 0.3, "steps": 0.3, "self_check": 0.1, "chinese": 0.5, "both": 0.2}
    after = {**rates, "right": 0.8, "self_check": 0.4, "chinese": 0.6}
    given = {"before": rates, "after": after, "gain": (0.5, 0.4, 0.6), "tokens": (15.0, 30.0)}
    given = {**given, "seconds": 60.0, **values}
    return experiment.Row(arm=arm, seed=0, **given)


def test_the_claim_is_checked() -> None:
    none = {"right": 0.3, "steps": 0.3, "self_check": 0.1, "chinese": 0.05, "both": 0.01}
    more = {**none, "self_check": 0.3}
    experiment.check([row("the recipe"), row("English rewarded", after=more)])
    experiment.check([row("random reward", gain=(0.01, -0.02, 0.04))])
    for bad, words in (
        (row("the recipe", gain=(0.1, 0.05, 0.15)), "15 points"),
        (row("the recipe", tokens=(15.0, 16.0)), "10 % longer"),
        (row("the recipe", after=none), "fewer checks"),
        (row("the recipe", after=more), "all English"),
        (row("English rewarded"), "still mixed"),
        (row("random reward"), "noise"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([bad])


def test_the_page_has_every_seed_of_every_arm() -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith(tuple(f"| {a} |" for a in ARMS))]
    assert [(each[0].strip("| "), int(each[1])) for each in rows] == [
        (arm, seed) for arm, (seeds, _) in ARMS.items() for seed in seeds
    ]
    gains = [int(each[3].split("%")[0]) for each in rows]
    assert min(gains[:5]) >= 15
    assert max(gain for gain, each in zip(gains, rows) if "random" in each[0]) < 5


SHORT = {"training.steps": 12, "evaluation.every": 0, "evaluation.max_prompts": 25,
         "evaluation.samples": 2, "checkpoints.every": 0}  # fmt: skip


@pytest.mark.parametrize(
    "arm", ["the recipe", pytest.param("random reward", marks=pytest.mark.slow)]
)
def test_accuracy_and_length_rise_with_the_reward_for_accuracy(arm: str, tmp_path: Path) -> None:
    run = gw.train(experiment.RECIPE, {**SHORT, **ARMS[arm][1]()}, output=tmp_path / "run")
    steps = run.metrics().to_pandas()
    right, tokens = steps["verifier/accuracy"], steps["completions/tokens_mean"]
    gained = right.iloc[-3:].mean() - right.iloc[:3].mean()
    longer = tokens.iloc[-2:].mean() / tokens.iloc[:2].mean()
    if arm == "random reward":
        assert gained < 0.1
    else:
        assert gained > 0.15
        assert longer > 1.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", ARMS["the recipe"][0])
def test_the_claim_holds_on_every_seed(seed: int, tmp_path: Path) -> None:
    run = experiment.run_of("the recipe", seed, tmp_path / "run")
    experiment.check([experiment.measured("the recipe", seed, run)])
