"""What the page on choosing tells people to write is legal, and its links name presets."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from groupwise.algorithms import PRESETS, algorithm_from_table
from groupwise.algorithms.presets import KEYS
from groupwise.recipe import field_table
from groupwise.records import find_metric

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "choosing.md").read_text(encoding="utf-8")
SETTINGS = sorted(set(re.findall(r"`([a-z_]+ = [^`]+)`", TEXT)))


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_legal(setting: str) -> None:
    ((key, value),) = tomllib.loads(setting).items()
    if key in KEYS:
        changed = algorithm_from_table({"preset": "grpo", key: value})
        assert changed != algorithm_from_table({"preset": "grpo"})
    else:
        assert any(name.endswith(f".{key}") for name, *_ in field_table())


def test_links_name_presets() -> None:
    linked = re.findall(r"\[`(\w+)`\]\(generated/algorithms/(\w+)\.md\)", TEXT)
    assert len(linked) > 10
    for shown, target in linked:
        assert shown == target
        assert target in PRESETS


def test_the_figures_are_computed() -> None:
    found = runpy.run_path(str(DOCS / "choosing_figures.py"))
    assert found["written"](TEXT) == TEXT
    assert found["silent"](0.18, 2) == pytest.approx(0.7048)
    assert "| 18% | 70% | 45% | 20% | 4% | 0% |" in TEXT


def test_every_recipe_it_names_ships_and_what_is_missing_is_marked() -> None:
    recipes = re.findall(r"`recipes/(\w+\.toml)`", TEXT)
    named = ("r1_zero", "code_rl", "dapo_full", "minimal_two")
    assert {f"{name}.toml" for name in named} <= set(recipes)
    assert all((DOCS.parent / "recipes" / each).is_file() for each in recipes)
    first = TEXT.split("## Which preset?")[0]
    rows = [line.split(" | ") for line in first.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        assert "](" in row[2] or "not in groupwise yet" in row[2], row


def test_the_metric_it_names_exists() -> None:
    assert find_metric("groups/no_signal").name == "groups/no_signal"
