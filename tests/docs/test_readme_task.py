"""The README's own-task recipe, copied as it is with five lines of data, learns."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import groupwise as gw

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SUMS = (("3+4=", "7"), ("2+6=", "8"), ("1+1=", "2"), ("5+4=", "9"), ("0+3=", "3"))


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The README's recipe in a folder of its own; only the model is another."""
    found = re.search(r"## Your own task\n+```toml\n(.*?)```", README, re.DOTALL)
    assert found is not None
    text = re.sub(r'name = "[^"]+/[^"]+"', 'name = "tiny"', found[1], count=1)
    assert tomllib.loads(text)["model"] == {"name": "tiny"}
    monkeypatch.chdir(tmp_path)
    rows = "".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in SUMS)
    Path("problems.jsonl").write_text(rows, encoding="utf-8")
    path = tmp_path / "task.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_it_trains_on_chats(recipe: Path) -> None:
    run = gw.train(recipe, {"training.steps": 1}, output="run")
    assert run.summary["status"] == "finished"
    prompts = {row["prompt"] for row in run.rollouts().to_pylist()}
    assert all('"role": "user"' in each or "user" in each for each in prompts)


@pytest.mark.slow
def test_it_learns(recipe: Path) -> None:
    """Measured on 2026-11-30: rewards of the first 20 steps 0.45, of the last 20 0.87 (seed 0)."""
    rewards = [row["reward"] for row in gw.train(recipe, output="run").metrics().to_pylist()]
    assert len(rewards) == 200
    assert sum(rewards[-20:]) / 20 > sum(rewards[:20]) / 20 + 0.2
