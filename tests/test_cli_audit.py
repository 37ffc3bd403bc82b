"""`groupwise audit` and `groupwise init verifier` as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli.app import run

RECIPES = Path(__file__).parents[1] / "recipes"


def rows(folder: Path) -> Path:
    path = folder / "rows.jsonl"
    path.write_text(
        "\n".join(json.dumps({"prompt": f"{n}+{n}=", "answer": str(2 * n)}) for n in range(1, 5))
    )
    return path


def test_a_sound_verifier_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "format", "--arguments", 'kind = "think_answer"']) == 0
    shown = capsys.readouterr().out
    assert "format: wrong accepted     0 of 35" in shown
    assert "audit of format; answers are written in format's own form" in shown
    assert run(["audit", "exact", "--data", str(rows(tmp_path))]) == 0


def test_a_hole_exits_with_1_and_is_shown_with_its_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holed = "groupwise.verifiers.audit.holed:answer_anywhere"
    assert run(["audit", holed, "--data", str(rows(tmp_path))]) == 1
    shown = capsys.readouterr().out
    assert "HOLE" in shown
    assert "0123456789" in shown
    assert run(["audit", holed, "--data", str(rows(tmp_path)), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is False
    assert report["golds_rejected"]["total"] == 4
    assert {"every_option", "hedged"} <= {p["name"] for p in report["probes"] if p["hole"]}


def test_a_recipe_is_audited_on_its_own_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(RECIPES / "holed_verifier.toml")
    assert run(["audit", recipe, "--limit", "10", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["golds_rejected"]["total"] == 10
    assert "every_option" in {p["name"] for p in report["probes"] if p["hole"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "nubmer"], "did you mean 'number'"),
        (["audit", "judge", "--arguments", 'url = "http://x", model = "m"'], "--data"),
        (["audit", "regex", "--data", "nowhere.jsonl"], "no such file"),
        (["audit", "number", "--data", "nowhere.jsonl"], "no such file"),
        (["audit", "format", "--arguments", "kind = boxed"], "for example"),
        (["audit", "format", "--arguments", 'knd = "boxed"'], "did you mean 'kind'"),
        (["audit", "number", "--set", "algebra"], "numbers"),
        (["init", "verifier", "not-a-name"], "my_verifier"),
        (["init", "loss", "not-a-name"], "my_loss"),
    ],
)
def test_bad_input_exits_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_scaffold_s_own_test_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "verifier", "last_line", "--folder", str(tmp_path)]) == 0
    written = capsys.readouterr().out.split()
    assert written == [str(tmp_path / "last_line.py"), str(tmp_path / "test_last_line.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_last_line.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    before = (tmp_path / "last_line.py").read_text()
    assert run(["init", "verifier", "last_line", "--folder", str(tmp_path)]) == 2
    assert (tmp_path / "last_line.py").read_text() == before
