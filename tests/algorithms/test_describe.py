"""What is claimed to be verified is what the tests verify; curves for the docs."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest

from algorithms import test_golden
from groupwise.algorithms import PRESETS, describe, preset, surrogate_curve
from groupwise.algorithms.misread import MISREAD
from groupwise.algorithms.parts import number
from groupwise.algorithms.verified import (
    BOTH,
    GOLDEN,
    NO_BASELINE,
    NOT_SHIFT_INVARIANT,
    SCALE_INVARIANT,
    TRL,
    TRL_VERSION,
)

ROOT = Path(__file__).parents[2]
# Golden entries that have a test function of their own: what was changed for each.
OWN_TESTS: dict[str, dict[str, str]] = {
    "raft": {BOTH: ""},
    "two_grpo": {BOTH: ""},
    "online_pair_logistic": {BOTH: ""},
    "grpo_process": {"advantages": ""},
    "grpo_s": {"advantages": ""},
    "dcpo": {"advantages": ""},
    "ppo": {
        BOTH: "",
        "advantages": "kl_coef = 0.1, scale = {ddof = 1, variance_eps = 1e-8}",
        "value loss": "",
    },
    "dppo_binary_tv": {"divergence": ""},
    "dppo_binary_kl": {"divergence": ""},
    "dppo_topk_tv": {"divergence": ""},
    "dppo_topk_kl": {"divergence": ""},
}


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {as_toml(v)}" for k, v in value.items()) + "}"
    return number(value) if isinstance(value, float) else str(value)


def golden_claims() -> dict[str, dict[str, str]]:
    """What the golden tests hold: the preset as composed if one entry has it so, else changed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for table in (test_golden.LOSSES, test_golden.MISREADINGS, test_golden.ADVANTAGES):
        what = "advantages" if table is test_golden.ADVANTAGES else BOTH
        for name, overrides, _ in table.values():
            found.setdefault(name, {}).setdefault(what, []).append(overrides)
    claims = {name: dict(entries) for name, entries in OWN_TESTS.items()}
    for name, kinds in found.items():
        for what, overrides in kinds.items():
            changed = "" if {} in overrides else as_toml(overrides[0])[1:-1]
            claims.setdefault(name, {})[what] = changed
    return claims


def test_golden_claims_match_the_golden_tests() -> None:
    assert golden_claims() == GOLDEN


def trl_cases() -> dict[str, Any]:
    """The comparison's table, read as text: importing that module imports TRL."""
    tree = ast.parse((ROOT / "tests" / "conformance" / "test_trl.py").read_text())
    tables = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return dict(ast.literal_eval(tables["CASES"]))


def test_trl_claims_match_the_comparison() -> None:
    plain = {
        name for name, overrides, _ in trl_cases().values() if overrides in ({}, {"kl_coef": 0})
    }
    changed = {name for name, _, _ in trl_cases().values()} - plain
    own_tests = {"rloo_clipped", "gspo_length_weighted"}
    assert set(TRL) == plain | changed | own_tests
    for name in plain | {"rloo_clipped"}:
        assert TRL[name] == BOTH
    for name in changed:
        assert " with " in TRL[name]


def test_trl_version_is_the_pinned_one() -> None:
    assert f"trl=={TRL_VERSION}" in (ROOT / "constraints.txt").read_text().splitlines()


def test_every_preset_says_what_was_verified() -> None:
    for name in PRESETS:
        lines = describe(preset(name)).verified
        assert any("independent reference" in line for line in lines)
        assert any(line.startswith("golden") for line in lines) == (name in GOLDEN)
        assert any(line.startswith("TRL") for line in lines) == (name in TRL)


def test_nothing_is_claimed_of_a_changed_preset() -> None:
    changed = describe(preset("dapo", surrogate={"high": 0.3}))
    assert changed.verified == ()
    assert changed.title.endswith("(changed)")
    assert "1 + 0.3" in changed.text()


def test_tables_name_presets_only() -> None:
    for table in (GOLDEN, TRL, NOT_SHIFT_INVARIANT, SCALE_INVARIANT, NO_BASELINE, MISREAD):
        assert set(table) <= set(PRESETS)


def test_formula_follows_the_parts_and_the_order_of_the_computation() -> None:
    assert describe(preset("reinforce_pp")).formula == (
        "x_i = R_i",
        "A_i = x_i",
        "A_i,j = 1[j is the row's last token]·A_i - 0.01·(old - ref) [k1]",
        "A_i,t = Σ over entries j ending at or after t of A_i,j",
        "A ← (A - mean over the step)/(std over the step (ddof 0))",
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
        *shown.offered, shown.misread_of,
    ):  # fmt: skip
        assert " ".join(wanted.split()) in flat
    longest = max(len(line) for line in shown.text().splitlines())
    assert longest <= 100


def test_misread_forms_point_at_each_other() -> None:
    assert describe(preset("gspo")).offered == ("gspo_length_weighted",)
    assert describe(preset("gspo_length_weighted")).misread_of == "gspo"
    for entry in PRESETS.values():
        if entry.misread_of:
            assert f"offered as {entry.algorithm.name}" in MISREAD[entry.misread_of]


def test_what_is_from_memory_is_said_to_be() -> None:
    for name, entry in PRESETS.items():
        said = any("from memory" in line for line in describe(preset(name)).unsettled)
        assert said == ("[M]" in entry.citation or name == "grpo_s")


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
    want = 0.1 / 2 if name == "online_pair_logistic" else 1.0
    assert curve.weight == pytest.approx((want,))
    assert math.isfinite(curve.objective[0])
