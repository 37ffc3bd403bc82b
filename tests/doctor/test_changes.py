"""Every change that a finding proposes is a list of flags that a recipe takes."""

from __future__ import annotations

import copy
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from test_doctor import FAULTS, planted

from groupwise.cli.overrides import parse_overrides
from groupwise.doctor import Finding, kinds
from groupwise.doctor import diagnosis as rules
from groupwise.recipe import load_recipe

WHOLE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "algorithm": {"preset": "grpo", "kl_coef": 0.0},
    "environment": {"name": "arithmetic"},
}
DATASET = {"name": "dataset", "path": "rows.jsonl", "heldout_path": "others.jsonl"}
NOTHING_TO_CHANGE = {"run_failed", "loss_zero", "literal_tests"}
"""The message of the first names what to mend; the second says that nothing is wrong; the third
needs other tests."""


def whole_recipe(folder: Path, kind: str) -> dict[str, Any]:
    """The record's recipe with the tables that a record for a test lacks."""
    table = copy.deepcopy(WHOLE)
    for name, own in tomllib.loads((folder / "recipe.toml").read_text("utf-8")).items():
        table[name] = {**table.get(name, {}), **own} if isinstance(own, dict) else own
    if kind == "stale_data":  # replay is refused without it
        table["algorithm"]["correction"] = "truncate"
    if kind == "evaluation_overlap":
        table["environment"] = DATASET
    for verifier in table["environment"].get("verifiers", []):
        if verifier["name"] == "reward_model":
            verifier["arguments"] = {"model": "somebody/scorer"}
    return table


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - NOTHING_TO_CHANGE))
def test_the_recipe_takes_the_flags(tmp_path: Path, kind: str) -> None:
    found = planted(tmp_path / "run", kind)
    (finding,) = [each for each in (*found.findings, *found.waiting) if each.kind == kind]
    assert finding.evidence
    assert finding.confidence in ("sure", "likely", "possible")
    assert finding.steps == (0, 17)
    assert finding.change, "what to change is not said"
    flags = parse_overrides(shlex.split(finding.flags))
    assert set(flags) == set(finding.change)
    before = load_recipe(table := whole_recipe(tmp_path / "run", kind))
    assert load_recipe(table, flags) != before


def test_every_kind_has_a_record_that_shows_it() -> None:
    """`run_failed` needs a run that fails, which experiments/planted.py makes;
    `record_incomplete` a damaged folder (test_doctor.py)."""
    source = "".join(
        Path(module.__file__ or "").read_text("utf-8")
        for module in (rules.broken, rules.signal, rules.drift, rules.hacking, rules.tuning)
    )
    named = set(re.findall(r'^ +"(\w+)", "(?:broken|signal|drift|tuning|info)"', source, re.M))
    named |= set(re.findall(r'facts, "(\w+)", ', source)) | {"solved", "too_hard", "too_easy"}
    assert named - {"verifier_constant"} <= set(FAULTS) | {"run_failed", "record_incomplete"}
    assert len(kinds()) >= 36
    assert all(described for _, described in kinds())


def test_values_are_written_as_toml_and_quoted_for_a_shell() -> None:
    change = {
        "environment.verifiers": [{"name": "number", "weight": 0.5}],
        "sampling.stop": ["'x'"],
    }
    finding = Finding("k", "info", "m", {}, (0, 1), "sure", "a", change)
    words = shlex.split(finding.flags)
    values = [tomllib.loads(f"v = {value}")["v"] for value in words[1::2]]
    assert values == list(change.values())
