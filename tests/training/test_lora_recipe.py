"""The shipped recipe with an adapter learns."""

from __future__ import annotations

from pathlib import Path

import pytest

import groupwise as gw
from groupwise.policies import base_tensors, load_policy, weights_hash
from groupwise.training.trained import trained_policy

RECIPE = Path(__file__).parents[2] / "recipes" / "tiny_arithmetic_lora.toml"


@pytest.mark.slow
def test_accuracy_and_reward_rise_and_the_base_stays(tmp_path: Path) -> None:
    shorter = {"training.steps": 12, "evaluation.samples": 4, "environment.audit": False}
    run = gw.train(RECIPE, shorter, output=tmp_path / "run")
    summary, reward = run.summary, run.metrics().to_pandas()["reward"]
    assert summary["eval/accuracy_last"] > summary["eval/accuracy_first"] + 0.15
    assert reward.iloc[-3:].mean() > reward.iloc[:3].mean() + 0.1
    policy = trained_policy(run.folder)
    assert policy.num_trained == 19_456
    plain = load_policy("tiny").model.state_dict()
    assert weights_hash(base_tensors(policy.model)) == weights_hash(plain)
