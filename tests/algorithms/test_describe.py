"""What is claimed to be verified is what the tests verify; curves for the docs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from algorithms import test_golden
from groupwise.algorithms import PRESETS, describe, preset, surrogate_curve
from groupwise.algorithms.verified import GOLDEN, TRL

OTHER_LOSS_TESTS = {"raft", "two_grpo", "online_pair_logistic", "ppo"}


def test_golden_claims_match_the_golden_tests() -> None:
    tables = (test_golden.LOSSES, test_golden.MISREADINGS)
    losses = {name for table in tables for name, _, _ in table.values()} | OTHER_LOSS_TESTS
    assert {name for name, what in GOLDEN.items() if "loss" in what} == losses
    advantages = {name for name, _, _ in test_golden.ADVANTAGES.values()}
    advantages |= {"grpo_process", "grpo_s", "dcpo", "ppo"}
    assert {name for name, what in GOLDEN.items() if "advantages" in what} == advantages


def test_trl_claims_match_the_comparison() -> None:
    """Read as text: importing that module imports TRL."""
    text = (Path(__file__).parents[1] / "conformance" / "test_trl.py").read_text()
    for name in TRL:
        assert f'"{name}"' in text


def test_every_preset_says_what_was_verified() -> None:
    for name in PRESETS:
        lines = describe(preset(name)).verified
        assert any("independent reference" in line for line in lines)


RATIOS = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 3.0, 1e9]


def test_curves() -> None:
    up = surrogate_curve(preset("dapo"), RATIOS)
    assert up.ratios == (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 3.0)
    assert up.weight == pytest.approx((0.25, 0.5, 0.75, 1.0, 1.25, 0.0, 0.0))
    assert up.objective[-1] == pytest.approx(1.28)
    down = surrogate_curve(preset("dapo"), RATIOS, advantage=-2.0)
    assert down.weight == pytest.approx((0.0, 0.0, 0.0, 1.0, 1.25, 1.5, 3.0))
    with pytest.raises(ValueError, match="other than 0"):
        surrogate_curve(preset("dapo"), RATIOS, advantage=0.0)


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_weight_is_one_at_ratio_one(name: str, sign: float) -> None:
    curve = surrogate_curve(preset(name), [1.0], advantage=sign)
    want = 0.0 if name == "online_pair_logistic" else 1.0
    assert curve.weight == pytest.approx((want,))
    assert math.isfinite(curve.objective[0])
