"""Files that nobody checked: data, records and checkpoints, damaged in every way."""

from __future__ import annotations

import csv
import io
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fuzzing import NESTED, SCALARS, TEXTS, changed, damaged, refused_or_done, run
from hypothesis import strategies as st

import groupwise as gw
from groupwise.checkpoints import (
    best_checkpoints,
    checkpoint_steps,
    load_checkpoint,
    newest_complete,
    prune,
    save_checkpoint,
)
from groupwise.dashboard.data import RunView
from groupwise.doctor import diagnose
from groupwise.environments import load_environment
from groupwise.records import diff, open_run
from groupwise.records.files import file_hash
from groupwise.replay import replay_update, replay_verdicts
from groupwise.verifiers import load_verifier

# --- data files ----------------------------------------------------------------------------------

NAMES = st.sampled_from(["prompt", "answer", "tools", "id", "messages", "columns", "level"]) | TEXTS
ROWS = st.lists(
    st.dictionaries(NAMES, NESTED, max_size=4)
    | st.fixed_dictionaries({"prompt": TEXTS | NESTED, "answer": SCALARS | NESTED}),
    max_size=4,
)
GOOD = [{"prompt": f"{a}+{b}=", "answer": str(a + b), "n": a} for a in range(3) for b in range(3)]


def as_csv(rows: list[dict[str, Any]], delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["prompt", "answer"], extrasaction="ignore", delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def as_parquet(rows: list[dict[str, Any]]) -> bytes | None:
    sink = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist(rows), sink)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return None  # no Parquet file holds it
    return sink.getvalue()


WRITERS: dict[str, Any] = {
    ".jsonl": lambda rows: "".join(f"{json.dumps(row)}\n" for row in rows).encode(),
    ".json": lambda rows: json.dumps(rows).encode(),
    ".csv": lambda rows: as_csv(rows, ","),
    ".tsv": lambda rows: as_csv(rows, "\t"),
    ".parquet": as_parquet,
}


@st.composite
def data_files(draw: Any) -> tuple[str, bytes, str]:
    """An ending, a file's bytes (rows of anything, or good rows with damage), and a verifier."""
    ending = draw(st.sampled_from(sorted(WRITERS)))
    rows = draw(st.just(GOOD) | ROWS)
    content = WRITERS[ending](rows) or WRITERS[ending](GOOD)
    if draw(st.booleans()):
        content = draw(damaged(content))
    return ending, content, draw(st.sampled_from(["number", "exact", "text"]))


def read_data(case: tuple[str, bytes, str], folder: Path) -> None:
    ending, content, verifier = case
    path = folder / f"rows{ending}"
    path.write_bytes(content)

    def load() -> None:
        made = load_environment("dataset", path=str(path), verifiers=[{"name": verifier}])
        assert made.prompts(1)
        json.dumps(made.describe(), default=str)
        made.close()

    refused_or_done(load)


# --- records -------------------------------------------------------------------------------------

RECIPE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny", "device": "cpu"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 3, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 2, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 1, "keep": 3, "best": "eval/greedy"},
}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record") / "run"
    gw.train(RECIPE, output=folder)
    shutil.rmtree(folder / "checkpoints")
    return folder


@st.composite
def other_column(draw: Any, table: pa.Table) -> pa.Table:
    """The table with one column gone, null, of another type, or a value in it changed."""
    place = draw(st.integers(0, table.num_columns - 1))
    name = table.column_names[place]
    how = draw(st.sampled_from(["gone", "null", "type", "value", "rows"]))
    if how == "gone":
        return table.remove_column(place)
    if how == "rows":
        return table.slice(0, draw(st.integers(0, 2)))
    values: list[Any] = [None] * table.num_rows
    if how == "value":
        values = table[name].to_pylist()
        values[draw(st.integers(0, len(values) - 1))] = draw(st.none() | NESTED)
    if how == "type":
        one = draw(
            st.sampled_from([1, 1.5, "x", True, [1], ["a"], [None], {"a": 1}, [[1.0]], b"x"])
        )
        values = [one] * table.num_rows
    try:
        column = pa.array(values, type=table[name].type if how == "value" else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return table.remove_column(place)  # this type cannot hold it
    return table.set_column(place, name, column)


@st.composite
def record_damage(draw: Any, folder: Path) -> tuple[str, bytes | None]:
    """A file of the record, and what is in it now: None where it is gone."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix)
    path = draw(st.sampled_from(files))
    name, content = str(path.relative_to(folder)), path.read_bytes()
    how = draw(st.sampled_from(["bytes", "value", "value", "gone"]))
    if how == "gone":
        return name, None
    if how == "value" and path.suffix == ".parquet":
        sink = io.BytesIO()
        pq.write_table(draw(other_column(pq.read_table(path))), sink)
        return name, sink.getvalue()
    if how == "value" and path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(draw(changed(json.loads(lines[place]))))
        return name, "\n".join([*lines, ""]).encode()
    return name, draw(damaged(content))


def read_record(case: tuple[str, bytes | None], folder: Path) -> None:
    """Every reader of a record, on a copy with the damage."""
    name, content = case
    path = folder / name
    before = path.read_bytes()
    try:
        path.unlink() if content is None else path.write_bytes(content)
        verifier = load_verifier("number")
        for read in (
            lambda: open_run(folder).summary,
            lambda: open_run(folder)._repr_html_(),
            lambda: (open_run(folder).metrics(), open_run(folder).evaluations()),
            lambda: open_run(folder).rollouts().to_pandas(),
            lambda: (open_run(folder).events(), open_run(folder).recipe),
            lambda: open_run(folder).query("select count(*) from rollouts"),
            lambda: diagnose(folder).text(),
            lambda: json.dumps(RunView(open_run(folder)).whole(8), default=str),
            lambda: (RunView(open_run(folder)).facets(), RunView(open_run(folder)).passes()),
            lambda: RunView(open_run(folder)).distributions(),
            lambda: diff(folder, folder.parent / "same").lines(),
            lambda: replay_verdicts(open_run(folder), verifier).to_dict(),
            lambda: replay_update(open_run(folder), 0, gw.preset("rloo")).to_dict(),
        ):
            refused_or_done(read)
    finally:
        path.write_bytes(before)


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        weight = torch.arange(6.0).view(2, 3) * step
        save_checkpoint(
            folder,
            step,
            model_state={"a": weight, "tied": weight},
            optimizer_state={"state": {"a": {"step": torch.tensor(step), "betas": (0.9, 0.99)}}},
            state={"seconds": 1.0, "learner": {"update": step}},
            extra_tensors={"collector": torch.arange(9, dtype=torch.uint8)},
            metrics={"eval/greedy": 0.5 * step},
        )
    return folder


@st.composite
def checkpoint_damage(draw: Any, folder: Path) -> tuple[str, bytes | None, bool]:
    """A file of the newest checkpoint, what is in it now, and whether its manifest agrees."""
    files = sorted((folder / "step_000002").iterdir())
    path = draw(st.sampled_from(files))
    agrees = draw(st.booleans())
    how = draw(st.sampled_from(["bytes", "value", "value", "gone"]))
    if how == "gone":
        return path.name, None, False
    if how == "value" and path.suffix == ".json":
        content = json.dumps(draw(changed(json.loads(path.read_text())))).encode()
        return path.name, content, agrees
    return path.name, draw(damaged(path.read_bytes())), agrees


def read_checkpoints(case: tuple[str, bytes | None, bool], folder: Path) -> None:
    """Damage is found, the older checkpoint is used; nothing but the documented error is raised."""
    name, content, agrees = case
    newest = folder / "step_000002"
    before = {path: path.read_bytes() for path in newest.iterdir()}
    changes = before[newest / name] != content
    try:
        (newest / name).unlink() if content is None else (newest / name).write_bytes(content)
        if agrees and name != "manifest.json":
            manifest = json.loads((newest / "manifest.json").read_text())
            size, digest = len(content or b""), file_hash(newest / name)
            manifest["files"][name] = {"bytes": size, "sha256": digest}
            (newest / "manifest.json").write_text(json.dumps(manifest))
        assert checkpoint_steps(folder) == [1, 2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = newest_complete(folder)
        if changes and not agrees and name != "manifest.json":
            assert found == folder / "step_000001"
        assert found is not None
        refused_or_done(lambda: load_checkpoint(found))
        refused_or_done(lambda: best_checkpoints(folder, "eval/greedy", "higher"))
        assert refused_or_done(lambda: prune(folder, keep=2, best="eval/greedy")) in ([], None)
        assert load_checkpoint(folder / "step_000001").step == 1
    finally:
        for path, whole in before.items():
            path.write_bytes(whole)


@pytest.fixture(scope="module")
def same(record: Path) -> Path:
    """The record, and a copy beside it to compare with."""
    shutil.copytree(record, record.parent / "same")
    return record


def fuzz_data(folder: Path, number: int) -> None:
    run(lambda case: read_data(case, folder), data_files(), number)


def fuzz_records(folder: Path, number: int) -> None:
    run(lambda case: read_record(case, folder), record_damage(folder), number)


def fuzz_checkpoints(folder: Path, number: int) -> None:
    run(lambda case: read_checkpoints(case, folder), checkpoint_damage(folder), number)


def test_a_few_files(tmp_path: Path, checkpoints: Path) -> None:
    fuzz_data(tmp_path, 25)
    fuzz_checkpoints(checkpoints, 25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_data_files(tmp_path: Path) -> None:
    fuzz_data(tmp_path, 1200)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_records(same: Path) -> None:
    fuzz_records(same, 700)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_checkpoints(checkpoints: Path) -> None:
    fuzz_checkpoints(checkpoints, 700)
