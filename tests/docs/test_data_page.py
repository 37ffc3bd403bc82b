"""The tables of docs/data.md name every verifier that a recipe can name, each once."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

from groupwise.verifiers import BUILTIN
from groupwise.verifiers.core.registry import ENTRY_POINTS

TEXT = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.+) \|$", TEXT, re.MULTILINE)


def offered() -> set[str]:
    """What this package offers by entry point; other packages' verifiers are not ours to list."""
    return {
        each.name
        for each in entry_points(group=ENTRY_POINTS)
        if each.value.startswith("groupwise.")
    }


def test_the_tables_name_every_verifier_once() -> None:
    names = [name for name, _ in ROWS]
    assert len(names) == len(set(names))
    assert {"reward_model", "process_reward_model", "local_judge"} <= offered()
    assert set(names) == set(BUILTIN) | offered()


def test_every_row_says_something_of_its_own() -> None:
    lines = [line for _, line in ROWS]
    assert len(lines) == len(set(lines))
    assert all(len(line.split()) >= 3 for line in lines)
