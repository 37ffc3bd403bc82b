"""The pipeline of docs/stages.md runs as it is written, by the command and from Python."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.cli.app import run
from groupwise.stages import KINDS
from pipeline_helpers import sum_rows, write_rows

TEXT = (Path(__file__).parents[2] / "docs" / "stages.md").read_text(encoding="utf-8")
RECIPE, *_ = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.toml").write_text(RECIPE)
    write_rows(tmp_path / "sums.jsonl", sum_rows())
    return tmp_path


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "pipeline.toml", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["stages"]
    assert [each["name"] for each in plans] == ["cold_start", "rl", "mean"]
    assert plans[1]["plan"]["inputs"]["steps"] == 20
    assert run(["plan", "pipeline.toml"]) == 0
    assert "stage cold_start (supervised)" in capsys.readouterr().out
    small = ["--stages.rl.training.steps", "1", "--small", "--output", "runs/p2"]
    assert run(["train", "pipeline.toml", *small]) == 0
    shown = capsys.readouterr()
    assert "3 stages, finished" in shown.out
    assert "stage rl (rl)" in shown.err
    stages = gw.open_run("runs/p2").summary["stages"]
    assert [each["status"] for each in stages] == ["finished"] * 3
    assert gw.open_run("runs/p2/stages/rl").summary["steps"] == 1
    assert run(["train", "pipeline.toml", "--resume", "--output", "runs/p2"]) == 2
    assert "was made by another recipe" in capsys.readouterr().err
    assert run(["recipe", "stages"]) == 0
    assert "stages.supervised.training.patience" in capsys.readouterr().out
    assert run(["eval", "pipeline.toml"]) == 2
    assert "this is a pipeline" in capsys.readouterr().err


def test_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    table = tomllib.loads(RECIPE)
    small: dict[str, Any] = {"stages": {"rl": {"training": {"steps": 1, "prompts_per_step": 4}}}}
    gw.train({**table, "small": small}, output="runs/p", small=True)
    code = CODE.replace('run = gw.train("pipeline.toml", output="runs/p")', "run = done")
    assert code != CODE
    names: dict[str, Any] = {"done": gw.open_run("runs/p")}
    exec(code, names)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "cold_start",
        "rl",
        "mean",
    ]
    assert names["policy"].num_parameters > 0
    assert names["steps"].num_rows == 1


def test_every_kind_is_in_the_table() -> None:
    assert [kind for kind in KINDS if f"| `{kind}` |" not in TEXT] == []
