"""Runs in which the policy learns what a judge likes in place of the task: the doctor says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import recipe_of, verifier

import groupwise as gw
from groupwise.doctor import diagnose


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "judge", "said"),
    [
        ("style_exploited", "loud_judge", "judge follows exclamation marks"),
        ("length_exploited", "long_judge", "judge follows length"),
    ],
)
def test_a_judge_that_is_exploited_is_named(
    kind: str, judge: str, said: str, tmp_path: Path
) -> None:
    recipe, changes = recipe_of(kind, 0)
    asked = {"url": f"planted_models:{judge}", "model": "rules", "rubric": "Is it friendly?"}
    run = gw.train(recipe, changes | verifier("judge", arguments=asked), output=tmp_path / "run")
    found = {finding.kind: finding.message for finding in diagnose(run).findings}
    assert found[kind].startswith(said)
