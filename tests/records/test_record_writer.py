"""Writing and reading a run: complete, readable after a kill, equal after a resume."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.records import (
    COMMON_KEYS,
    REQUIRED_COLUMNS,
    SUMMARY_KEYS,
    RunWriter,
    open_run,
    rollout_rows,
)
from groupwise.records.rows import schema
from record_helpers import group, rollout

RECIPE = 'seed = 0\n\n[training]\nsteps = 3  # "quoted" ü\n'


def write_steps(writer: RunWriter, steps: range, *, shift: float = 0.0) -> None:
    for step in steps:
        groups = [
            group("p", [1.0, 0.0], parts=[{"number": 1.0}, {"number": 0.0}], step=step),
            group("q", [0.5, None], parts=[{"number": 0.5}, {"form": 1.0}], step=step),
        ]
        writer.rollouts(step, rollout_rows(step, groups, [1.0 + shift, -1.0, 0.0, 0.0]))
        writer.metrics(step, {"reward": 0.5 + step, "verifier/number": 0.5, "tokens": 8})


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    with RunWriter.create(tmp_path / "run", RECIPE, {"versions": {"torch": "2.13.0"}}) as writer:
        writer.event("started", step=0)
        writer.evaluation(0, {"eval/accuracy": 0.25}, rollout_rows(0, [group("p", [1.0])]))
        write_steps(writer, range(3))
        writer.evaluation(3, {"eval/accuracy": 0.75, "eval/heldout": None})
        writer.summary({**dict.fromkeys(SUMMARY_KEYS), "status": "finished", "steps": 3})
    return tmp_path / "run"


def test_a_run_reads_back_as_it_was_written(run_folder: Path):
    run = open_run(run_folder)
    assert run.recipe_text == RECIPE
    assert run.recipe["training"] == {"steps": 3}
    about = run.environment
    assert re.fullmatch("[0-9a-f]{16}", about.pop("run_id"))
    assert about == {"record_version": 2, "versions": {"torch": "2.13.0"}}
    assert run.summary["status"] == "finished"
    assert run.steps == [0, 1, 2]
    metrics = run.metrics().to_pandas()
    assert list(metrics["step"]) == [0, 1, 2]
    assert list(metrics["reward"]) == [0.5, 1.5, 2.5]
    assert list(metrics["tokens"]) == [8, 8, 8]
    assert metrics["kl"].isna().all()
    assert set(COMMON_KEYS) <= set(metrics.columns)
    assert [event["kind"] for event in run.events()] == ["started", "evaluation", "evaluation"]
    evaluations = run.evaluations().to_pylist()
    assert [(e["version"], e["eval/accuracy"]) for e in evaluations] == [(0, 0.25), (3, 0.75)]
    assert run.evaluation_rollouts(0).column("outcome").to_pylist() == ["correct"]
    assert run.evaluation_rollouts(3).num_rows == 0


def test_every_step_line_has_every_common_key(run_folder: Path):
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    for line in lines:
        assert set(COMMON_KEYS) <= set(json.loads(line))


def test_rollouts_keep_ids_logprobs_rewards_and_reasons(run_folder: Path):
    table = open_run(run_folder).rollouts()
    assert set(REQUIRED_COLUMNS) <= set(table.column_names)
    assert table.num_rows == 12
    rows = table.to_pylist()
    first = rows[0]
    assert first["prompt_ids"] == [5, 6]
    assert first["completion_ids"] == [10, 11]
    assert first["mask"] == [True, True]
    assert first["sampler_logprobs"] == [-0.5, -0.75]
    assert (first["reward"], first["outcome"], first["reason"]) == (1.0, "correct", "because")
    assert first["rewards"] == {"number": 1.0, "form": None}
    assert (first["advantage"], first["token_advantages"]) == (1.0, None)
    assert json.loads(first["prompt"]) == [{"role": "user", "content": "p?"}]
    assert rows[3]["reward"] is None
    assert rows[3]["rewards"] == {"number": None, "form": 1.0}
    assert [row["step"] for row in rows] == [s for s in range(3) for _ in range(4)]
    assert list(table.to_pandas()["completion_ids"].iloc[0]) == [10, 11]


def test_rollouts_can_be_read_by_step_and_column(run_folder: Path):
    run = open_run(run_folder)
    assert run.rollouts(steps=1, columns=["step", "reward"]).to_pydict() == {
        "step": [1] * 4,
        "reward": [1.0, 0.0, 0.5, None],
    }
    assert run.rollouts(steps=[0, 2]).num_rows == 8
    assert run.rollouts(steps=9).num_rows == 0


def test_verifiers_may_differ_between_steps(tmp_path: Path):
    with RunWriter.create(tmp_path / "run", RECIPE, {}) as writer:
        writer.rollouts(0, rollout_rows(0, [group("p", [1.0], parts=[{"a": 1.0}])]))
        writer.rollouts(1, rollout_rows(1, [group("p", [1.0], parts=[{"b": 0.5, "a": 0.0}])]))
        writer.rollouts(2, rollout_rows(2, [group("p", [0.25])]))
    rows = open_run(tmp_path / "run").rollouts().to_pylist()
    assert [row["rewards"]["a"] for row in rows] == [1.0, 0.0, None]
    assert [row["rewards"]["b"] for row in rows] == [None, 0.5, None]
    assert rows[2]["rewards"]["reward"] == 0.25


def test_sql_over_the_record(run_folder: Path):
    table = open_run(run_folder).query(
        "select m.step, m.reward, count(*) as n, max(r.advantage) as top from metrics m "
        "join rollouts r using (step) group by all order by step"
    )
    assert table.to_pydict() == {
        "step": [0, 1, 2],
        "reward": [0.5, 1.5, 2.5],
        "n": [4, 4, 4],
        "top": [1.0, 1.0, 1.0],
    }


def test_a_resumed_record_equals_the_unbroken_one(run_folder: Path, tmp_path: Path):
    with RunWriter.create(tmp_path / "cut", RECIPE, {"versions": {"torch": "2.13.0"}}) as writer:
        writer.evaluation(0, {"eval/accuracy": 0.25}, rollout_rows(0, [group("p", [1.0])]))
        write_steps(writer, range(2))
        writer.evaluation(2, {"eval/accuracy": 0.5}, rollout_rows(2, [group("p", [1.0])]))
        writer.rollouts(2, rollout_rows(2, [group("lost", [1.0])]))
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')  # killed while writing
    with RunWriter.reopen(tmp_path / "cut") as writer:
        writer.truncate_after(1)
        assert open_run(tmp_path / "cut").evaluations().column("version").to_pylist() == [0]
        assert open_run(tmp_path / "cut").evaluation_rollouts(2).num_rows == 0
        write_steps(writer, range(1, 3))
        writer.evaluation(3, {"eval/accuracy": 0.75, "eval/heldout": None})
    whole, resumed = open_run(run_folder), open_run(tmp_path / "cut")
    assert (whole.folder / "metrics.jsonl").read_bytes() == (
        resumed.folder / "metrics.jsonl"
    ).read_bytes()
    assert whole.rollouts().equals(resumed.rollouts())
    assert whole.evaluations().equals(resumed.evaluations())


def test_truncation_refuses_a_record_of_another_run(run_folder: Path):
    with (
        RunWriter.reopen(run_folder) as writer,
        pytest.raises(GroupwiseError, match=r"ends at step 2.*written after 7 steps"),
    ):
        writer.truncate_after(7)
    assert open_run(run_folder).steps == [0, 1, 2]


def test_truncation_to_the_start_keeps_the_first_evaluation(run_folder: Path):
    with RunWriter.reopen(run_folder) as writer:
        writer.truncate_after(0)
    run = open_run(run_folder)
    assert run.steps == []
    assert run.rollouts().num_rows == 0
    assert run.evaluations().column("version").to_pylist() == [0]
    assert run.summary == {"status": "unfinished", "steps": 0}


def test_a_torn_line_is_skipped_with_a_warning(run_folder: Path):
    with (run_folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3')
    with pytest.warns(UserWarning, match="line 4 is incomplete"):
        assert open_run(run_folder).steps == [0, 1, 2]


def test_a_broken_line_in_the_middle_is_an_error(run_folder: Path):
    path = run_folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('{"step": 1', "{step: 1"))
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        open_run(run_folder).metrics()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("recipe.toml", "seed = ", "recipe.toml cannot be read"),
        ("environment.json", '{"a": ', "environment.json cannot be read"),
        ("environment.json", "[1]", "an object is expected"),
        ("environment.json", '{"record_version": "2"}', "is no whole number"),
        ("summary.json", "", "summary.json cannot be read"),
        ("metrics.jsonl", "1\n", "line 1 is no object with 'step'"),
        (
            "metrics.jsonl",
            '{"step": 0, "reward": "high"}\n',
            "reward = 'high'; expected int",
        ),
        ("events.jsonl", '{"kind": "started"}\n{}\n', "line 2 is no object with 'kind'"),
        ("rollouts/step_000001.parquet", "half", "step_000001.parquet cannot be read"),
    ],
)
def test_a_damaged_file_is_named(run_folder: Path, file: str, content: str, message: str):
    (run_folder / file).write_text(content)

    def read() -> None:
        run = open_run(run_folder)
        _ = (run.recipe, run.environment, run.summary, run.metrics(), run.events(), run.rollouts())

    with pytest.raises(RecipeError, match=message):
        read()


def test_another_program_s_parquet_is_no_rollouts(run_folder: Path):
    table = pa.table({"step": [1], "text": ["7"]})
    pq.write_table(table, run_folder / "rollouts" / "step_000001.parquet")
    with pytest.raises(RecipeError, match="holds no rollouts: it lacks prompt_id, group_index"):
        open_run(run_folder).rollouts()


def test_an_existing_run_is_not_overwritten(run_folder: Path):
    before = (run_folder / "metrics.jsonl").read_bytes()
    with pytest.raises(RecipeError, match="already holds a run; resume it"):
        RunWriter.create(run_folder, RECIPE, {})
    assert (run_folder / "metrics.jsonl").read_bytes() == before


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="holds no run"):
        open_run(tmp_path)
    with pytest.raises(RecipeError, match="no run to resume"):
        RunWriter.reopen(tmp_path)


def test_two_writers_of_one_folder_are_refused(run_folder: Path):
    code = (
        "from groupwise.records import RunWriter; from groupwise.errors import GroupwiseError\n"
        f"try: RunWriter.reopen({str(run_folder)!r})\n"
        "except GroupwiseError as error: print(error)\n"
    )
    with RunWriter.reopen(run_folder):
        done = _python(code)
    assert "another process is writing this run" in done
    assert _python(code) == ""


def test_a_step_has_one_line(run_folder: Path):
    with RunWriter.reopen(run_folder) as writer:
        with pytest.raises(ValueError, match="step 2 after step 2"):
            writer.metrics(2, {})
        with pytest.raises(ValueError, match="no metric is called"):
            writer.metrics(3, {"made/up": 1.0})
        with pytest.raises(ValueError, match="no metric is called"):
            writer.evaluation(3, {"eval/acuracy": 1.0})
    assert open_run(run_folder).steps == [0, 1, 2]


def test_a_summary_is_whole(run_folder: Path):
    with RunWriter.reopen(run_folder) as writer:
        with pytest.raises(ValueError, match="the summary has no seconds, tokens"):
            writer.summary({**dict.fromkeys(set(SUMMARY_KEYS) - {"seconds", "tokens"})})
        about = {**dict.fromkeys(SUMMARY_KEYS), "status": "finished", "steps": 0}
        writer.summary({**about, "kl_last": float("nan"), "extra": [1]})
    assert open_run(run_folder).summary["kl_last"] is None
    assert open_run(run_folder).summary["extra"] == [1]


def test_rows_must_be_whole(tmp_path: Path):
    with RunWriter.create(tmp_path / "run", RECIPE, {}) as writer:
        rows = rollout_rows(0, [group("p", [1.0])])
        del rows[0]["reason"]
        with pytest.raises(ValueError, match="row 0 has no reason"):
            writer.rollouts(0, rows)
        with pytest.raises(ValueError, match="3 advantages for 1 rollouts"):
            rollout_rows(0, [group("p", [1.0])], [1.0, 2.0, 3.0])
    assert list((tmp_path / "run" / "rollouts").iterdir()) == []


def test_rows_stay_aligned_with_their_advantages():
    """Fault 9, in the log: each row keeps its own prompt, ids, reward and advantage."""
    groups = [
        group(f"p{p}", [float(10 * p + i) for i in range(4)], tokens=[1, 2, 3, 4]) for p in range(3)
    ]
    advantages = [100.0 * p + i for p in range(3) for i in range(4)]
    found = {
        (row["prompt_id"], len(row["completion_ids"]), row["reward"], row["advantage"])
        for row in rollout_rows(0, groups, advantages)
    }
    assert found == {
        (f"p{p}", i + 1, float(10 * p + i), 100.0 * p + i) for p in range(3) for i in range(4)
    }


def test_token_advantages_and_greedy_rows():
    groups = [group("p", [1.0], tokens=[2], greedy=rollout("p", 0.0, index=-1))]
    rows = rollout_rows(0, groups, [[0.5, 1.5, 0.0]])
    assert [row["kind"] for row in rows] == ["training", "greedy"]
    assert rows[0]["advantage"] == 1.0
    assert rows[0]["token_advantages"] == [0.5, 1.5]
    assert rows[1]["advantage"] is None
    assert rows[1]["group_index"] == -1


def test_columns_that_a_reward_function_logged_are_kept(tmp_path: Path):
    with RunWriter.create(tmp_path / "run", RECIPE, {}) as writer:
        rows = rollout_rows(0, [group("p", [1.0, 0.0])])
        rows[1]["extracted"] = "7"
        writer.rollouts(0, rows)
    assert open_run(tmp_path / "run").rollouts().column("extracted").to_pylist() == [None, "7"]


def test_records_need_no_torch():
    code = (
        "import sys, groupwise.records as r; r.describe_machine()\n"
        "print([m for m in ('torch', 'transformers', 'pyarrow', 'duckdb', 'pandas') "
        "if m in sys.modules])"
    )
    assert _python(code) == "[]"


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": "/usr/bin:/bin"},
    )
    return done.stdout.strip()


def test_halves_of_characters_are_replaced_and_never_end_a_run(tmp_path: Path):
    """What a tool, an environment or a verifier said may hold them, and so may what was logged."""
    with RunWriter.create(tmp_path / "run", RECIPE, {"note": "\ud83d"}) as writer:
        row = rollout_rows(0, [group("p", [1.0])])[0]
        row.update(reason="a\ud83d", messages='[{"content": "\ud83d"}]', logged=["\udc00"])
        row["said\ud83d"] = 1
        writer.rollouts(0, [row])
        writer.event("warning", message="\ud83d, then more")
        writer.event("failed", error="\ud83d\ude00")
    run = open_run(tmp_path / "run")
    (read,) = run.rollouts().to_pylist()
    assert (read["reason"], read["logged"], read["said\ufffd"]) == ("a\ufffd", ["\ufffd"], 1)
    assert json.loads(read["messages"]) == [{"content": "\ufffd"}]
    assert [event.get("message", event.get("error")) for event in run.events()] == [
        "\ufffd, then more",
        "😀",
    ]
    assert json.loads((tmp_path / "run" / "environment.json").read_text()) == {
        "record_version": 2,
        "run_id": ANY,
        "note": "\ufffd",
    }


@pytest.mark.parametrize(
    ("logged", "texts"),
    [
        ([1, "a"], ["1", "a"]),
        ([10**30, None], [str(10**30), None]),
        ([[1], ["a"]], ["[1]", '["a"]']),
        ([{1, 2}, Path("x")], ['"{1, 2}"', '"x"']),
    ],
)
def test_what_no_column_type_holds_is_recorded_as_texts(
    tmp_path: Path, logged: list[Any], texts: list[str | None]
):
    with RunWriter.create(tmp_path / "run", RECIPE, {}) as writer:
        made = rollout_rows(0, [group("p", [1.0, 0.0])])
        writer.rollouts(0, [{**row, "logged": value} for row, value in zip(made, logged)])
    assert open_run(tmp_path / "run").rollouts()["logged"].to_pylist() == texts


def test_a_logged_column_may_change_its_type_from_step_to_step(tmp_path: Path):
    with RunWriter.create(tmp_path / "run", RECIPE, {}) as writer:
        for step, value in enumerate((1, "a", [2], None, 0.5)):
            rows = rollout_rows(step, [group("p", [1.0])])
            writer.rollouts(step, [{**row, "logged": value} for row in rows])
    run = open_run(tmp_path / "run")
    assert run.rollouts()["logged"].to_pylist() == ["1", "a", "[2]", None, "0.5"]
    assert run.rollouts(steps=[0, 3, 4])["logged"].to_pylist() == [1, None, 0.5]
    assert run.rollouts()["reward"].to_pylist() == [1.0] * 5


def test_every_column_is_documented_and_a_newer_record_is_refused(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "record.md").read_text("utf-8")
    assert [name for name in (*schema().names, "rewards") if f"`{name}`" not in page] == []
    RunWriter.create(tmp_path / "run", "seed = 0\n", {}).close()
    about = tmp_path / "run" / "environment.json"
    assert json.loads(about.read_text("utf-8")) == {"record_version": 2, "run_id": ANY}
    about.write_text('{"record_version": 3}', "utf-8")
    with pytest.raises(RecipeError, match="record of version 3"):
        open_run(tmp_path / "run")
    about.unlink()  # a record of version 1 may lack the file
    assert open_run(tmp_path / "run").steps == []


def test_jupyter_shows_a_run_as_a_table_without_its_markup(tmp_path: Path) -> None:
    folder = tmp_path / "<b>run"
    with RunWriter.create(folder, RECIPE, {}) as writer:
        write_steps(writer, range(2))
        assert "unfinished, 2 steps" in open_run(folder)._repr_html_()
        given = dict.fromkeys(SUMMARY_KEYS) | {"status": "finished", "steps": 2}
        writer.summary(given | {"eval/heldout_first": 0.25, "eval/heldout_last": 0.5})
    shown = open_run(folder)._repr_html_()
    assert "<tr><th>eval/heldout</th><td>25.0% to 50.0%</td></tr>" in shown
    assert "&lt;b&gt;run" in shown
