"""Other libraries' dumps become records with the rewards, groups and steps they had."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.errors import RecipeError
from groupwise.records.importing import import_rollouts


def test_trl_completions(tmp_path: Path) -> None:
    """The columns that TRL's GRPOTrainer logs: step as text, a column a reward function."""
    table = {
        "step": ["5", "5", "5", "5"],
        "prompt": ["1+1=", "1+1=", "2+2=", "2+2="],
        "completion": ["2", "3", "4", "4"],
        "accuracy_reward": [1.0, 0.0, 1.0, 1.0],
        "format_reward": [0.5, 0.5, 0.0, float("nan")],
        "advantage": [0.7, -0.7, 0.0, 0.0],
    }
    pq.write_table(pa.table(table), tmp_path / "completions_00005.parquet")
    run = import_rollouts("trl-completions", tmp_path, tmp_path / "run")
    rows = run.rollouts().to_pylist()
    assert [row["reward"] for row in rows] == [1.5, 0.5, 1.0, 1.0]
    assert [row["group_index"] for row in rows] == [0, 1, 0, 1]
    assert [row["advantage"] for row in rows] == [0.7, -0.7, 0.0, 0.0]
    (line,) = run.metrics().to_pylist()
    assert line["step"] == 5
    assert (line["reward"], line["groups/count"], line["groups/no_signal"]) == (1.0, 2, 0.5)
    assert {row["finish_reason"] for row in rows} == {"not recorded"}
    assert line["completions/truncated"] is None
    assert run.summary == {"status": "imported", "steps": 1}
    assert (line["verifier/accuracy_reward"], line["verifier/format_reward"]) == (0.75, 1 / 3)


def test_verl_dumps_take_their_step_from_the_row_or_the_file(tmp_path: Path) -> None:
    for step in (1, 10, 2):
        rows = [{"input": "q", "output": f"a{n}", "gts": "a1", "score": float(n)} for n in range(2)]
        path = tmp_path / f"{step}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = import_rollouts("jsonl", tmp_path, tmp_path / "run")
    assert run.steps == [1, 2, 10]
    rows = run.rollouts(10).to_pylist()
    assert [(row["text"], row["answer"], row["outcome"]) for row in rows] == [
        ("a0", "a1", "incorrect"),
        ("a1", "a1", "correct"),
    ]


def test_chats_keep_their_messages(tmp_path: Path) -> None:
    row = {
        "prompt": [{"role": "user", "content": "hi"}],
        "completion": [{"role": "assistant", "content": "yo"}],
        "reward": None,
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    run = import_rollouts("jsonl", tmp_path / "a.jsonl", tmp_path / "run")
    (found,) = run.rollouts().to_pylist()
    assert (found["text"], found["reward"], found["outcome"]) == ("yo", None, "not_applicable")
    assert found["reason"] == "no reward in the file"
    assert json.loads(found["prompt"]) == row["prompt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("{", "line 1 is not JSON"),
        ("3", "row 1 is a int"),
        ('{"prompt": "a"}', "row 1 has none of completion"),
        ('{"prompt": "a", "text": "b", "reward": "good"}', "reward = 'good' is not a number"),
        ('{"prompt": "a", "text": "b", "reward": 1e308}', "row 1: reward = 1e.308; give a number"),
        ('{"prompt": "a", "text": "b", "reward": 1, "step": -5}', "row 1: step = -5; give a whole"),
        ('{"prompt": "a", "text": "b", "reward": 1, "step": 1e30}', "step = 1e.30; give a whole"),
        ('{"prompt": "a", "text": "b", "reward": 1, "step": 1.5}', "step = 1.5; give a whole"),
        ('[{"prompt": "a", "text": "b", "reward": 1}]', "line 1 begins a JSON array"),
        ('{"prompt": "a", "text": "\\ud800", "reward": 1}', "line 1 is not UTF-8"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        import_rollouts("jsonl", path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]


def test_another_encoding_is_refused_by_line(tmp_path: Path) -> None:
    row = '{"prompt": "a", "text": "\xe9", "reward": 1, "finish_reason": "length"}\n'
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + row.encode() + row.encode("latin-1"))
    with pytest.raises(RecipeError, match="line 2 is not UTF-8"):
        import_rollouts("jsonl", path, tmp_path / "run")
    path.write_bytes(b"\xef\xbb\xbf" + row.encode())
    run = import_rollouts("jsonl", path, tmp_path / "run")
    assert run.rollouts().column("text").to_pylist() == ["\xe9"]
    assert run.metrics().column("completions/truncated").to_pylist() == [1.0]
    with pytest.raises(RecipeError, match="is there already; name a new folder"):
        import_rollouts("jsonl", path, tmp_path / "run")
