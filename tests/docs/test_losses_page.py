"""Every block of docs/losses.md does what the page says, and its table has every field."""

from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.algorithms import PRESETS, algorithm_from_table, preset
from groupwise.algorithms.contracts import UpdatePlan
from groupwise.algorithms.surrogates import TokenTerms
from groupwise.cli.app import run

TEXT = (Path(__file__).parents[2] / "docs" / "losses.md").read_text(encoding="utf-8")
FUNCTION, PART, TEST, ENTRY = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
RECIPE, TABLE = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_loss", "squash"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "my_loss.py").write_text(FUNCTION)
    (tmp_path / "squash.py").write_text(PART)
    return tmp_path


def test_the_function_trains_and_evaluates(folder: Path) -> None:
    assert len(FUNCTION.splitlines()) <= 10
    (folder / "mine.toml").write_text(RECIPE)
    small = ["--training.prompts_per_step", "2", "--sampling.group_size", "2"]
    few = ["--evaluation.samples", "1"]
    assert run(["train", "mine.toml", "--output", "runs/mine", *small, *few]) == 0
    assert run(["eval", "runs/mine", *few]) == 0


def test_the_part_takes_its_fields_and_is_recorded(folder: Path) -> None:
    made = algorithm_from_table(tomllib.loads(TABLE)["algorithm"])
    assert made.surrogate.formula() == "f = 3·tanh(r/3)·A"
    assert made.surrogate.to_table() == {"kind": "squash:Squashed", "cap": 3.0}
    assert algorithm_from_table(made.to_table()) == made


def test_the_test_passes_and_the_entry_is_taken(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec(FUNCTION + TEST, names)
    try:
        exec(ENTRY, names)
        assert preset("squashed").surrogate.to_table()["cap"] == 3.0
        assert PRESETS["squashed"].title == "GRPO with a squashed ratio"
    finally:
        del PRESETS["squashed"]


def test_every_field_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert listed == [f.name for f in dataclasses.fields(TokenTerms)]
    (row,) = re.findall(r"^\| `plan` .*$", TEXT, re.MULTILINE)
    assert all(f"`{f.name}`" in row for f in dataclasses.fields(UpdatePlan))
