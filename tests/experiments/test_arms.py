"""The arms of the recipe experiments: intervals, claims that can fail, pages that show them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import arms
import code_rl
import dapo_full as dapo
import minimal_two as minimal
import pytest
import repository

import groupwise as gw
from groupwise.recipe import load_recipe

ROOT = Path(__file__).parents[2]


def row(arm: str, *after: float, before: float = 0.25) -> Any:
    prompts = [f"p{number}" for number in range(len(after))]
    return arms.Row(arm, 0, dict.fromkeys(prompts, before), dict(zip(prompts, after)))


def test_a_gain_is_paired_by_prompt() -> None:
    gain = row("a", 0.25, 0.75, 0.5, 0.5).gain
    assert gain[0] == pytest.approx(0.25)
    assert gain[2] - gain[0] == pytest.approx(1.96 * (1 / 24) ** 0.5 / 2)
    rows = [row("a", 0.5, 0.75), row("b", 0.25, 0.5)]
    assert arms.difference(rows, "a", "b") == (0.25, 0.25, 0.25)
    assert "| a | 0 | 25.0% | 62.5% |" in arms.table(rows)


RUNGS = ((0.5, 0.6, 0.5), *[(0.9, 1.0, 0.9), (1.0, 0.9, 0.9)] * 2, (0.9, 1.0, 0.9))
HIGH, MIDDLE, LOW = (0.9, 1.0, 0.9), (0.5, 0.6, 0.5), (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("experiment", "good", "bad", "words"),
    [
        (minimal, (HIGH, HIGH, MIDDLE), (HIGH, HIGH, HIGH), "does as well"),
        (minimal, (HIGH, HIGH, MIDDLE), (MIDDLE, HIGH, (0.4, 0.4, 0.4)), "differ"),
        (dapo, RUNGS, (HIGH, *RUNGS[1:]), "not ahead of GRPO"),
        (dapo, RUNGS, (MIDDLE, LOW, *RUNGS[2:]), "no gain"),
        (dapo, RUNGS, (*RUNGS[:5], (1.2, 1.1, 1.15)), "told apart"),
        *[
            (each, (HIGH, LOW), bad, words)
            for each in (repository, code_rl)
            for bad, words in (((LOW, LOW), "no gain"), ((HIGH, MIDDLE), "from noise"))
        ],
    ],
)
def test_the_claim_is_checked(experiment: ModuleType, good: Any, bad: Any, words: str) -> None:
    names = list(experiment.PARTS if experiment is dapo else experiment.ARMS)
    experiment.check([row(name, *after) for name, after in zip(names, good, strict=True)])
    with pytest.raises(AssertionError, match=words):
        experiment.check([row(name, *after) for name, after in zip(names, bad, strict=True)])


def test_the_last_rung_is_the_recipe() -> None:
    last = list(dapo.ladder().values())[-1]
    whole = load_recipe(dapo.RECIPE)
    rung = load_recipe(dapo.RECIPE, last)
    assert rung.algorithm.kl.coef == 0
    for name in ("surrogate", "weight", "filters", "shapers", "scale", "baseline"):
        assert getattr(rung.algorithm, name) == getattr(whole.algorithm, name), name


def test_the_control_reports_the_recipes_verdict_and_rewards_noise() -> None:
    for experiment in (repository, code_rl):
        recipe = load_recipe(experiment.RECIPE, experiment.ARMS["random reward"])
        weights = {each.name: each.weight for each in recipe.environment.verifiers}
        (own,) = load_recipe(experiment.RECIPE).environment.verifiers
        assert own.label == "accuracy"
        assert weights == {own.name: 0.0, "arms:random_reward": 1.0}
    row = {"rewards": {"accuracy": 0.0, "random_reward": 1.0}, "outcome": "correct"}
    assert not arms.is_accurate(row)
    assert arms.is_accurate({"rewards": {"accuracy": 1.0, "random_reward": 0.0}})


@pytest.mark.parametrize("experiment", [minimal, dapo, repository, code_rl])
def test_the_page_shows_every_arm_and_seed(experiment: ModuleType) -> None:
    lines = experiment.PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    shown = {(each[0], int(each[1])): each[4] for each in cells if each[1].isdigit()}
    names = list(experiment.PARTS if experiment is dapo else experiment.ARMS)
    seeds = experiment.SEEDS
    seeds = seeds if isinstance(seeds, dict) else dict.fromkeys(names, seeds)
    assert list(shown) == [(name, seed) for name in names for seed in seeds[name]]
    first = next(iter(experiment.PARTS if experiment is dapo else experiment.ARMS))
    assert all(float(gain.split("%")[0]) > 20 for (arm, _), gain in shown.items() if arm == first)
    assert f"({experiment.CURVE.name})" in "\n".join(lines)
    assert experiment.CURVE.is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "steps"), [(minimal, 12), (dapo, 12), (repository, 20), (code_rl, 15)],
    ids=lambda each: getattr(each, "__name__", None),
)  # fmt: skip
def test_the_recipe_learns_and_noise_teaches_nothing(
    experiment: ModuleType, steps: int, tmp_path: Path
) -> None:
    gained = []
    for number, reward in enumerate(({}, arms.at_random(experiment.RECIPE))):
        changes = {"training.steps": steps, "evaluation.every": 0, "evaluation.max_prompts": 4,
                   "evaluation.samples": 1, **reward}  # fmt: skip
        run = gw.train(experiment.RECIPE, changes, output=tmp_path / str(number))
        right = run.metrics().to_pandas()["verifier/accuracy"]
        gained.append(right.iloc[-4:].mean() - right.iloc[:4].mean())
    assert gained[0] > 0.12
    assert gained[1] < 0.08
