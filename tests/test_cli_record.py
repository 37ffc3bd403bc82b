"""The commands that read records, from the command line: exit codes, JSON, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from groupwise.cli.app import run


def imported(capsys: Any, folder: Path, rewards: list[float]) -> Path:
    source = folder / f"{len(list(folder.iterdir()))}.jsonl"
    rows = [
        {"prompt": "3+4=", "response": text, "score": reward, "answer": "7", "step": 0}
        for text, reward in zip(("7", "8"), rewards, strict=True)
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    output = source.with_suffix("")
    assert run(["import", "jsonl", str(source), "--output", str(output)]) == 0
    assert "the record of 1 step is in" in capsys.readouterr().out
    return output


def test_diff_names_the_rewards_and_ends_with_1(capsys: Any, tmp_path: Path) -> None:
    a, b = (imported(capsys, tmp_path, rewards) for rewards in ([1.0, 0.0], [0.0, 0.0]))
    assert run(["diff", str(a), str(a)]) == 0
    capsys.readouterr()
    assert run(["diff", str(a), str(b), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["first_difference"]["step"]) == (False, 0)
    assert found["parted"] == {"rewards": 0, "metrics": 0}
    assert found["first_difference"]["causes"] == found["causes"]
    assert found["causes"][0]["name"].startswith("rewards (reward) in 1 of 2 rows")


def test_diff_draws_both_runs(capsys: Any, tmp_path: Path) -> None:
    a, b = (imported(capsys, tmp_path, rewards) for rewards in ([1.0, 0.0], [0.0, 0.0]))
    picture = tmp_path / "both.svg"
    assert run(["diff", str(a), str(b), "--plot", str(picture)]) == 1
    tree = ElementTree.parse(picture)
    texts = [each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"reward", str(a), str(b), "where they part"} <= set(texts)
    inner = tmp_path / "new" / "both.svg"
    assert run(["diff", str(a), str(b), "--plot", str(inner)]) == 1
    assert inner.read_bytes() == picture.read_bytes()
    capsys.readouterr()
    for path, message in ((picture / "x.svg", "cannot be written"), ("x.png", "ends in .svg")):
        assert run(["diff", str(a), str(b), "--plot", str(path)]) == 2
        assert message in capsys.readouterr().err


def test_replay_of_an_imported_record(capsys: Any, tmp_path: Path) -> None:
    folder = imported(capsys, tmp_path, [0.0, 0.0])
    command = ["replay", str(folder), "--verifier", "number", "--algorithm", "grpo"]
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [change["text"] for change in found["changes"]] == ["7"]
    assert found["signal"] == [0, 1]
    assert run(command) == 0
    assert "incorrect -> correct: 1" in capsys.readouterr().out


def test_a_pipeline_is_refused_with_its_stages(capsys: Any, tmp_path: Path) -> None:
    stage = imported(capsys, tmp_path, [1.0, 0.0])
    folder = tmp_path / "pipeline"
    for path in (folder, folder / "stages" / "rl"):
        path.mkdir(parents=True)
        (path / "recipe.toml").write_text("seed = 0\n")
    for command, verb in (
        (["diff", str(folder), str(stage)], "compare"),
        (["diff", str(stage), str(folder)], "compare"),
        (["replay", str(folder), "--verifier", "number"], "replay"),
        (["replay", str(folder), "--step", "0", "--algorithm", "grpo"], "replay"),
        (["doctor", str(folder)], "diagnose"),
    ):
        assert run(command) == 2
        named = f"is a pipeline; {verb} one of its stages: {folder / 'stages' / 'rl'}"
        assert named in capsys.readouterr().err


def test_what_a_policy_wrote_is_not_obeyed_by_the_terminal(capsys: Any, tmp_path: Path) -> None:
    source = tmp_path / "theirs.jsonl"
    row = {
        "prompt": "3+4=",
        "response": "7",
        "score": 0.0,
        "answer": "7",
        "reason": "\x1b[2J\u202eno",
    }
    source.write_text(json.dumps(row) + "\n")
    folder = tmp_path / "record"
    assert run(["import", "jsonl", str(source), "--output", str(folder)]) == 0
    assert run(["replay", str(folder), "--verifier", "number", "--algorithm", "grpo"]) == 0
    printed = capsys.readouterr().out
    assert "before 0.0 incorrect: \\x1b[2J\\u202eno" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --verifier NAME, or --step N with --algorithm NAME"),
        (["--verifier", "number"], "has no algorithm in its recipe; name one: --algorithm grpo"),
        (["--step", "0", "--algorithm", "grpo"], "no token ids and no log-probabilities"),
        (["--verifier", "os:system", "--algorithm", "grpo"], "no column 'command'"),
        (["--verifier", "nmber", "--algorithm", "grpo"], "number"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    capsys: Any, tmp_path: Path, options: list[str], message: str
) -> None:
    folder = imported(capsys, tmp_path, [1.0, 0.0])
    assert run(["replay", str(folder), *options]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_source_is_refused_in_plain_words(capsys: Any) -> None:
    assert run(["import", "csv", "x", "--output", "y"]) == 2
    assert "'source': 'csv' is not one of 'trl-completions', 'jsonl'" in capsys.readouterr().err


def test_a_verifier_without_its_answers_is_refused(capsys: Any, tmp_path: Path) -> None:
    source, output = tmp_path / "a.jsonl", tmp_path / "run"
    source.write_text('{"prompt": "3+4=", "text": "7", "reward": 1}\n')
    assert run(["import", "jsonl", str(source), "--output", str(output)]) == 0
    options = ["--verifier", "number", "--algorithm", "grpo"]
    assert run(["replay", str(output), *options]) == 2
    assert "has no answers, and the verifier number compares" in capsys.readouterr().err


def test_a_torn_line_is_noted_once(capsys: Any, tmp_path: Path) -> None:
    """Both files are read several times, in different places."""
    folder = imported(capsys, tmp_path, [1.0, 0.0])
    for name in ("metrics.jsonl", "events.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"torn')
    command = [sys.executable, "-m", "groupwise", "doctor", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert sorted(notes) == [
        f"note: {folder / 'events.jsonl'}: line 2 is incomplete and skipped",
        f"note: {folder / 'metrics.jsonl'}: line 2 is incomplete and skipped",
    ]
