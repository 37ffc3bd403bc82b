"""What the page on choosing tells people to write is legal, and its links name presets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from groupwise.algorithms import PRESETS, algorithm_from_table
from groupwise.algorithms.presets import KEYS
from groupwise.recipe import field_table
from groupwise.records import find_metric

TEXT = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
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


def test_the_metric_it_names_exists() -> None:
    assert find_metric("groups/no_signal").name == "groups/no_signal"
