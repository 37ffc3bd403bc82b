"""Rollouts with nulls or other types where none belong: one message, whatever reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.cli.app import run as command
from groupwise.dashboard.data import RunView
from groupwise.errors import RecipeError
from groupwise.records import open_run
from groupwise.records.rows import NEVER_NULL, REQUIRED_COLUMNS, read_groups, read_tables
from page_helpers import write_run


def damage(folder: Path, *names: str, kind: pa.DataType | None = None) -> None:
    """Columns of every step as nulls, or as `kind` where given."""
    for path in (folder / "rollouts").iterdir():
        table = pq.read_table(path)
        for name in names:
            place = table.column_names.index(name)
            values = pa.nulls(table.num_rows) if kind is None else ["x"] * table.num_rows
            table = table.set_column(place, name, pa.chunked_array([pa.array(values, kind)]))
        pq.write_table(table, path)


@pytest.mark.parametrize("names", [*((name,) for name in NEVER_NULL), REQUIRED_COLUMNS])
def test_nulls_are_named_by_file_and_column(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = write_run(tmp_path / "a")
    damage(folder, *names)
    with pytest.raises(RecipeError, match=r"step_000000\.parquet is damaged: \w+ is null in 20"):
        open_run(folder).rollouts()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("completion_ids", r"completion_ids is of type string, and list<.*int32> is expected"),
        ("reward", "reward is of type string, and double is expected"),
        ("rewards", "rewards is of type string, and a struct of numbers is expected"),
        ("text", None),
    ],
)
def test_another_type_is_named(tmp_path: Path, name: str, message: str | None) -> None:
    folder = write_run(tmp_path / "a")
    damage(folder, name, kind=pa.string())
    if message is None:
        assert open_run(folder).rollouts(0).num_rows == 20
        return
    with pytest.raises(RecipeError, match=message):
        open_run(folder).rollouts(0)


def test_a_type_that_converts_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    path = folder / "rollouts" / "step_000000.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("completion_ids")
    wide = table["completion_ids"].cast(pa.list_(pa.int64()))
    pq.write_table(table.set_column(place, "completion_ids", wide), path)
    assert read_tables([path])["completion_ids"].type == pa.list_(pa.int32())


@pytest.mark.parametrize(
    "options",
    [
        ["report"], ["doctor"], ["diff"], ["replay", "--verifier", "number"],
        ["replay", "--step", "0", "--algorithm", "grpo"],
    ],
)  # fmt: skip
def test_every_command_says_it_in_one_message(
    capsys: Any, tmp_path: Path, options: list[str]
) -> None:
    folder = write_run(tmp_path / "a")
    damage(folder, *REQUIRED_COLUMNS)
    others = [str(write_run(tmp_path / "b"))] if options == ["diff"] else []
    assert command([options[0], str(folder), *others, *options[1:]]) == 2
    said = capsys.readouterr().err
    assert "is damaged: step is null in 20 of 20 rows" in said
    assert "Traceback" not in said


def test_a_page_of_a_damaged_record_says_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    view = RunView(open_run(folder))
    damage(folder, "prompt_id")
    with pytest.raises(RecipeError, match="step or prompt_id is null"):
        view.facets()


def test_rollouts_without_a_reward_are_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    damage(folder, "reward", "advantage", "reason", "rewards")
    with pytest.raises(RecipeError, match="rewards is of type null"):
        open_run(folder).rollouts()
    folder = write_run(tmp_path / "b")
    damage(folder, "reward", "advantage", "reason")
    assert open_run(folder).rollouts(0)["reward"].null_count == 20
    assert command(["report", str(folder)]) == 0


def test_groups_are_read_from_their_row_groups_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    path = folder / "rollouts" / "step_000002.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=3)
    wanted = {("p2-1", 0, "training"), ("p2-9", 0, "training")}
    rows = read_groups(path, wanted)
    assert [(row["prompt_id"], row["group_index"]) for row in rows] == [
        ("p2-1", 0), ("p2-1", 1), ("p2-9", 0), ("p2-9", 1)
    ]  # fmt: skip
    whole = {(row["prompt_id"], row["group_index"]): row for row in table.to_pylist()}
    assert rows == [whole[row["prompt_id"], row["group_index"]] for row in rows]
    assert read_groups(path, {("elsewhere", 0, "training")}) == []
