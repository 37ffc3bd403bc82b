"""The recipes' tables on docs/selection.md are legal, and its metrics exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.recipe import load_recipe
from groupwise.records import find_metric

PAGE = (Path(__file__).parents[2] / "docs" / "selection.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "countdown", "level": "mixed"},
    "algorithm": {"preset": "grpo"},
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_accepted(block: str) -> None:
    table = tomllib.loads(block)
    recipe = load_recipe({**BASE, **table})
    for name in table.get("selection", {}):
        assert getattr(recipe.selection, name) is not None


def test_the_page_shows_every_table() -> None:
    shown = "\n".join(BLOCKS)
    for name in ("pool", "curriculum", "sizes", "length", "replay"):
        assert f"[selection.{name}]" in shown


def test_the_metrics_it_names_exist() -> None:
    for name in ("groups/no_signal", "tokens/gradient_share", "staleness", "selection/level"):
        assert f"`{name}`" in PAGE
        find_metric(name)
    listed = re.search(r"`selection/rounds`, (.*?) \|", PAGE)
    assert listed is not None
    for name in re.findall(r"`/(\w+)`", listed.group(1)):
        find_metric(f"selection/{name}")
