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
    assert json.loads(found["prompt"]) == row["prompt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("{", "line 1 is not JSON"),
        ("3", "row 1 is a int"),
        ('{"prompt": "a"}', "row 1 has none of completion"),
        ('{"prompt": "a", "text": "b", "reward": "good"}', "'good' is not a number"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        import_rollouts("jsonl", path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
