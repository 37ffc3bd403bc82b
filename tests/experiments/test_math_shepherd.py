"""The claims of experiments/math_shepherd.py are checked; shuffled labels give no gain (slow)."""

from __future__ import annotations

import copy
import tomllib
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import math_shepherd as experiment
import pytest

import groupwise as gw
from groupwise.search.result import Candidate

ROOT = Path(__file__).parents[2]


def values(**changes: Any) -> dict[str, Any]:
    given = {
        "prm": {1: 0.3, 4: 0.6, 16: 0.9},
        "majority": {4: 0.4},
        "shuffled": {1: 0.3, 16: 0.35},
        "rl_prm": [(0.2, 0.3), (0.5, 0.7), (0.6, 0.4)],
    }
    return {**given, **changes}


def test_the_claims_are_checked() -> None:
    experiment.check([values()])
    for changes, words in (
        ({"prm": {1: 0.3, 4: 0.6, 16: 0.4}}, "seed 0: best of 16 by steps 40"),
        ({"majority": {4: 0.65}}, "not above the majority of 4"),
        ({"shuffled": {1: 0.3, 16: 0.8}}, r"shuffled labels gain \+50"),
        ({"rl_prm": [(0.2, 0.3), (0.6, 0.7)]}, "gold falls by 0"),
        ({"rl_prm": [(0.5, 0.3), (0.5, 0.7), (0.5, 0.4)]}, "the proxy does not rise"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([values(**changes)])


def test_lines_are_read_in_both_languages_with_their_checks() -> None:
    text = (
        "<think>first, seven plus eight is sixteen.\n等等七加八得十五。\n"
        "second, fifteen plus five is twenty.\n</think><answer>20</answer>"
    )
    assert experiment.right_steps("7+8+5=", text, True) == [False, True, True, True]
    assert experiment.right_steps("7+8+5=", "20", False) == [False]
    assert experiment.right_steps("7+8+5=", "<think>so\n20", True) == [None, True]


def test_the_expected_best_score_is_the_mean_over_all_draws() -> None:
    scores = [0.3, 0.9, 0.1, 0.5]
    group = [Candidate("", None, False, score) for score in scores]
    found = experiment.best_scores([group])
    for k in (1, 2, 4):
        assert found[k] == pytest.approx(fmean(map(max, combinations(scores, k))))


def test_the_page_has_every_row() -> None:
    text = experiment.PAGE.read_text(encoding="utf-8")
    for words in (*experiment.LINES.values(), "steps (product)", "by steps", "by outcome"):
        assert f"\n| {words} | " in text
    assert experiment.CURVE.is_file()


@pytest.mark.slow
def test_steps_choose_better_than_the_vote_and_shuffled_labels_do_not(tmp_path: Path) -> None:
    recipe = tomllib.loads(experiment.RECIPE.read_text(encoding="utf-8"))
    (stage,) = [each for each in recipe["stages"] if each["name"] == "prm"]
    made = {key: copy.deepcopy(recipe[key]) for key in ("seed", "model", "sampling", "checkpoints")}
    made["stages"] = [{**stage, "environment": recipe["environment"]}]
    run = gw.train(made, output=tmp_path / "run")
    rows = run.folder / "stages" / "prm" / "data.jsonl"
    shuffled = experiment.shuffled_rows(rows, tmp_path / "rows.jsonl", 0)
    control = gw.train(experiment.control(recipe, shuffled), output=tmp_path / "control")
    found = experiment.draws(0, 60, 8)
    models = [each.folder / "stages" / "prm" / "model" for each in (run, control)]
    own, other = (
        experiment.accuracies(
            experiment.scored(found, experiment.step_values(found, model)), "process"
        )
        for model in models
    )
    majority = experiment.accuracies(found.groups, "majority")
    assert own[8] > own[1] + 0.2
    assert own[4] > majority[4]
    assert other[8] - other[1] < 0.5 * (own[8] - own[1])
