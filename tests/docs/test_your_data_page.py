"""Every recipe on docs/your_data.md passes the checks before a run, and its table holds."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.training.preparing import prepare

TEXT = (Path(__file__).parents[2] / "docs" / "your_data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    rows = [json.loads(line) for line in shown.splitlines()]
    rows += [{"prompt": f"{a}+1=", "answer": str(a + 1), "level": 1} for a in range(8)]
    for name in ("sums.jsonl", "millions.jsonl"):
        write(tmp_path / name, rows)
    for name in ("eval.jsonl", "sums_eval.jsonl"):
        write(tmp_path / name, [{"prompt": "9+9=", "answer": "18"}])


@pytest.mark.parametrize(
    ("number", "splits"),
    [
        (0, {"train": 8, "heldout": 2}),
        (1, {"train": 1010, "heldout_sums": 1, "heldout_countdown": 200}),
        (2, {"train": 10, "heldout": 1}),
    ],
)
def test_the_recipes_are_accepted(number: int, splits: dict[str, int], files: None) -> None:
    table = tomllib.loads(BLOCKS[number])
    table = {"model": {"name": "tiny"}, "algorithm": {"preset": "grpo"}, **table}
    if table["environment"]["name"] == "dataset":
        table["environment"].setdefault("verifiers", [{"name": "number"}])
    prepared = prepare(load_recipe(table))
    assert prepared.environment.describe()["splits"] == splits
    prepared.environment.close()


def test_the_first_recipe_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says, with its own rows and nothing added."""
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(program, {})
    rows = [json.loads(line) for line in Path("sums.jsonl").read_text().splitlines()]
    (shown,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert len(rows) == 55
    assert all(json.loads(line) in rows for line in shown.splitlines())
    Path("sums.toml").write_text(BLOCKS[0])
    summary = gw.train("sums.toml", output="run").summary
    assert 0.38 < summary["eval/accuracy_first"] < 0.50
    assert summary["eval/accuracy_last"] > 0.75


def test_the_template_table_is_accepted_and_checked_against_the_model() -> None:
    table = tomllib.loads(BLOCKS[3])
    base = {"model": {"name": "tiny"}, "environment": {"name": "arithmetic"}}
    recipe = load_recipe({**base, "algorithm": {"preset": "grpo"}, **table})
    assert recipe.template.date.isoformat() == "2025-01-01"
    with pytest.raises(RecipeError, match="does not read 'enable_thinking'"):
        prepare(recipe)


def test_every_block_is_tested() -> None:
    assert len(BLOCKS) == 4
