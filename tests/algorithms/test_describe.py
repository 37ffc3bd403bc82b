"""What is claimed to be verified is what the tests verify; curves for the docs."""

from __future__ import annotations

import json

import pytest

import claims
from groupwise.algorithms import PRESETS, describe, preset


def test_verified_json_is_what_the_tests_verify() -> None:
    held = json.loads(claims.TARGET.read_text(encoding="utf-8"))
    assert held == claims.collected(), "run: python tests/claims.py"


def test_every_preset_says_what_was_verified() -> None:
    for name in PRESETS:
        lines = describe(preset(name)).verified
        assert any("independent reference" in line for line in lines)
        assert len(lines) >= 6
    assert any(line.startswith("golden") for line in describe(preset("dapo")).verified)
    assert any(line.startswith("TRL") for line in describe(preset("dapo")).verified)


def test_nothing_is_claimed_of_a_changed_preset() -> None:
    changed = describe(preset("dapo", surrogate={"high": 0.3}))
    assert changed.verified == ()
    assert changed.title == "dapo with surrogate.high = 0.3 (changed)"
    assert "1 + 0.3" in changed.text()


def test_formula_follows_the_parts_and_the_order_of_the_computation() -> None:
    assert describe(preset("reinforce_pp")).formula == (
        "x_i = R_i",
        "A_i = x_i",
        "A_i,j = 1[j is the row's last token]·A_i - 0.01·(old - ref) [k1]",
        "A_i,t = Σ over entries j ending at or after t of A_i,j",
        "A ← (A - mean over the step's tokens)/(std over the step's tokens (ddof 0))",
        "r_i,t = exp(lp_i,t - old_i,t)",
        "f = min(r·A, clip(r, 1 - 0.2, 1 + 0.2)·A)",
        "w_i,t = 1/N, N = trainable tokens of the update",
        "loss = -Σ_i,t w_i,t·f_i,t",
    )
    process = describe(preset("grpo_process")).formula
    assert process[2] == "A_i,j = (x_i,j - b_i)/(std over the group (ddof 0))"
    assert process[-1] == "loss ← loss + Σ_i,t w_i,t·0.04·(exp(ref - lp) - (ref - lp) - 1) [k3]"
    ppo = describe(preset("ppo")).formula
    assert ppo[1] == "R_i,j = 1[j is the row's last token]·x_i - 0.05·(old - ref) [k1]"
    assert ppo[-1] == "loss ← loss + 0.1·Σ w·(V - R)²/2, V clipped to V_old ± 0.2"
    rloo = describe(preset("rloo")).formula
    assert rloo[1] == "x_i ← x_i - 0.05·Σ_t (old - ref) [k1]"
    assert describe(preset("gtpo")).formula[1] == "A_i,t = x_i,t"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_text_has_everything(name: str) -> None:
    shown = describe(preset(name))
    flat = " ".join(shown.text().split())
    for wanted in (
        *shown.formula, *(part for row in shown.parts for part in row), *shown.verified,
        *shown.unsettled, *shown.needs, shown.citation, shown.typical, shown.misread,
    ):  # fmt: skip
        assert " ".join(wanted.split()) in flat
    longest = max(len(line) for line in shown.text().splitlines())
    assert longest <= 100


def test_what_is_from_memory_is_said_to_be() -> None:
    for name, entry in PRESETS.items():
        said = any("from memory" in line for line in describe(preset(name)).unsettled)
        assert said == ("[M]" in entry.citation or name == "grpo_s")
