"""The gap between the reward and a stricter verifier: figures by hand, and when it warns."""

from __future__ import annotations

import pytest

from groupwise.environments import Environment
from groupwise.environments.registry import environment_from_settings
from groupwise.environments.settings import EnvironmentSettings
from groupwise.errors import RecipeError
from groupwise.evaluation import EvaluationSets, gap_alarm
from groupwise.evaluation.strict import strict_metrics
from groupwise.types import Completion, Group, Outcome, Prompt, Rollout, Score, Turn
from groupwise.verifiers import Verifier, load_verifier


def group(name: str, texts: list[tuple[str, Outcome]]) -> Group:
    prompt = Prompt(name, text="?", answer="7")
    rollouts = []
    for index, (text, outcome) in enumerate(texts):
        turn = Turn((1,), Completion((2,), text, (-0.1,), "stop"))
        value = None if outcome == "infrastructure_error" else float(outcome == "correct")
        rollouts.append(Rollout(prompt, (turn,), Score(value, outcome), index, 0, 0))
    return Group(prompt, tuple(rollouts))


GROUPS = [
    group("a", [("7", "correct"), ("1 7 8", "correct")]),
    group("b", [("7 or 8", "correct"), ("8", "incorrect")]),
    group("guard", [("8", "correct")]),
]
SETS = EvaluationSets({"train": [GROUPS[0].prompt], "heldout": [GROUPS[1].prompt]}, ("heldout",))


def test_the_gap_is_the_mean_over_prompts_of_paired_differences() -> None:
    found = strict_metrics(GROUPS, SETS, load_verifier("number"))
    assert found["eval/strict"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["eval/strict_gap"] == pytest.approx((0.5 + 0.5) / 2)
    assert found["eval/heldout_strict"] == 0.0
    assert found["eval/heldout_strict_gap"] == 0.5
    assert found["eval/strict_unscored"] == 0
    low, high = found["eval/strict_low"], found["eval/strict_high"]
    assert low is not None
    assert high is not None
    assert low < 0.25 < high


def test_what_either_could_not_score_is_left_out() -> None:
    groups = [group("a", [("7", "infrastructure_error"), ("7", "correct")])]
    sets = EvaluationSets({"train": [groups[0].prompt]}, ())
    found = strict_metrics(groups, sets, load_verifier("number"))
    assert found["eval/strict"] == 1.0
    assert found["eval/strict_gap"] == 0.0
    assert "eval/heldout_strict" not in found


def test_it_warns_when_the_gap_passes_the_threshold_and_each_time_it_grows_by_as_much() -> None:
    gaps: list[float | None] = []
    warned = []
    for version, gap in enumerate([0.02, 0.08, 0.12, 0.15, 0.25, 0.2, None, 0.45]):
        gaps.append(gap)
        warning = gap_alarm(gaps, 0.1, version=version)
        if warning is not None:
            warned.append(version)
            assert f"{gap:.1%}" in warning
            assert "2.0%" in warning
    assert warned == [2, 4, 7]


def test_a_recipe_s_strict_verifiers_are_checked_like_the_reward_s() -> None:
    settings = EnvironmentSettings.model_validate(
        {"name": "arithmetic", "strict_verifiers": [{"name": "boxed"}]}
    )
    made = environment_from_settings(settings)
    assert isinstance(made, Environment)
    assert isinstance(made.strict, Verifier)
    assert "boxed" in made.describe()["strict_verifier"]
    assert made.verifier.name == "number"
    bad = EnvironmentSettings.model_validate(
        {"name": "arithmetic", "strict_verifiers": [{"name": "choice"}]}
    )
    with pytest.raises(RecipeError, match=r"strict_verifiers.*rejected"):
        environment_from_settings(bad)
