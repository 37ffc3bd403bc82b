"""Rows that cannot be read: one message with file and line, whatever library found it out."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from groupwise.environments import load_environment
from groupwise.environments.readers import Source, iter_rows, read_rows
from groupwise.errors import RecipeError

NUMBER = [{"name": "number"}]
ROWS = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(3)]


def refused(path, **arguments):
    with pytest.raises(RecipeError) as error:
        load_environment("dataset", verifiers=NUMBER, path=str(path), **arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'prompt,answer\n"3+4=,7\n5+6=,11\n', "a.csv, line 2: unexpected end of data; a"),
        ("a.csv", b'prompt,answer\n"3+4="x,7\n', "a.csv, line 2: ',' expected after '\"'; a field"),
        ("a.csv", b'"prompt"x,answer\n3+4=,7\n', "a.csv, line 1: ',' expected after"),
        ("a.tsv", b'prompt\tanswer\n"3+4=\t7\n', "a.tsv, line 2: unexpected end of data"),
        (
            "a.jsonl", b'{"prompt": "x", "answer": ' + b"7" * 5000 + b"}\n",
            "a.jsonl, line 1: a number of more than 4300 digits; write it as a text, in quotes",
        ),
        (
            "a.json", b'[{"prompt": "x", "answer": ' + b"7" * 5000 + b"}]",
            "a.json: a number of more than 4300 digits; write it as a text",
        ),
        ("a.jsonl", b'{"prompt": ' + b"[" * 100_000, "a.jsonl, line 1: lists or objects too"),
        (
            "a.jsonl",
            json.dumps(ROWS[0]).encode() + b'\n{"prompt": "x", "answer": 1, "more": '
            + b"[" * 150 + b"]" * 150 + b"}\n",
            "a.jsonl, line 2: column 'more' holds lists or objects more than 100 deep; flatten",
        ),
        (
            "a.jsonl", json.dumps(ROWS[0]).encode() + b'\n{"prompt" 3}\n',
            "a.jsonl, line 2: not JSON: Expecting ':' delimiter at column 11",
        ),
        (
            "a.json", b'[\n {"prompt" 3}\n]\n',
            "a.json: not JSON: Expecting ':' delimiter at line 2, column 12",
        ),
        (
            "a.jsonl", b'{"prompt": "x\n',
            "a.jsonl, line 1: not JSON: Unterminated string starting at column 12",
        ),
        ("a.parquet", b"no parquet at all", "a.parquet cannot be read as Parquet: "),
        ("a.parquet", b"", "a.parquet cannot be read as Parquet: "),
    ],
)  # fmt: skip
def test_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refused(tmp_path / name)


def test_a_field_of_a_megabyte(tmp_path):
    (tmp_path / "a.csv").write_text(f"prompt,answer\n{'x' * 1_000_000},7\n")
    (row,) = read_rows(Source(str(tmp_path / "a.csv")))
    assert len(row.values["prompt"]) == 1_000_000


def test_parquet_that_breaks_off(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"prompt": [f"{n}+1=" for n in range(5000)], "answer": list(range(1, 5001))})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(content)
    assert refused(path).startswith("a.parquet, row 1: raised ")


def test_parquet_with_text_that_is_none(tmp_path):
    path = tmp_path / "a.parquet"
    text = pa.array([b"3+4=", b"\xff\xfe"]).cast(pa.string(), safe=False)
    parquet.write_table(pa.table({"prompt": text, "answer": [7, 8]}), path)
    assert refused(path).startswith("a.parquet, row 2: raised UnicodeDecodeError: ")


def test_parquet_with_a_column_twice(tmp_path):
    path = tmp_path / "a.parquet"
    columns = [pa.array(["3+4="]), pa.array(["3+5="]), pa.array([7])]
    parquet.write_table(pa.table(columns, names=["prompt", "prompt", "answer"]), path)
    message = "a.parquet: the column 'prompt' is there twice; give each its own name"
    assert refused(path) == message


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n")

    def denied(*arguments, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refused(path) == f"{path} cannot be read: Permission denied; give a file that can"


def test_spaces_around_a_column_are_seen_and_a_path_may_be_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("prompt, answer\n3+4=, 7\n")
    assert refused(path).endswith("line 2 has no such column; it has prompt, ' answer'")
    path.write_text("prompt,answer\n3+4=,7\n")
    environment = load_environment("dataset", verifiers=NUMBER, path=path)
    assert environment.prompts()[0].answer == "7"


@pytest.mark.parametrize(
    ("verifiers", "message"),
    [
        ("number", "environment.verifiers = 'number'; give a list of tables, as [{"),
        ({"name": "number"}, "environment.verifiers = {'name': 'number'}; give a list of tables"),
        (["number"], "environment.verifiers: 'number' is a str; give tables, as [{"),
    ],
)
def test_verifiers_that_are_no_tables(tmp_path, verifiers, message):
    (tmp_path / "a.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(RecipeError) as error:
        load_environment("dataset", verifiers=verifiers, path=str(tmp_path / "a.jsonl"))
    assert str(error.value).startswith(message)


def test_rows_of_parquet_in_several_batches(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": list(range(3000))}), path)
    rows = list(iter_rows(Source(str(path))))
    assert [row.values["n"] for row in rows] == list(range(3000))
    assert (rows[1500].where, rows[-1].where) == ("a.parquet, row 1501", "a.parquet, row 3000")


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{prompt.foo}", "AttributeError"),
        ("{prompt[foo]}", "TypeError"),
        ("{prompt[99]}", "IndexError"),
        ("{prompt:d}", "ValueError"),
        ("{0}", "IndexError"),
        ("{", "ValueError"),
        ("{nope}", "KeyError"),
    ],
)
def test_templates(tmp_path, template, error):
    (tmp_path / "a.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    message = refused(tmp_path / "a.jsonl", template=template)
    assert message.startswith(
        f"environment.template cannot be filled from a.jsonl, line 1 ({error}"
    )
    assert message.endswith("columns are prompt, answer; write a literal brace twice")


FUNCTIONS = """
ROW = {"prompt": "3+4=", "answer": 7}

def wants(folder):
    yield ROW

def raises():
    raise OSError("no disk")

def leaves():
    yield ROW
    raise SystemExit(3)

def numbered():
    yield {**ROW, 3: "x"}

def keyed():
    yield {**ROW, "table": {1: "a", "b": 2}}

def circle():
    more = []
    more += [more, more]
    yield {**ROW, "more": more}

USED = iter([ROW])
NUMBER = 5
"""


def test_splits_of_what_datasets_saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "both")
    one, both = str(tmp_path / "one"), str(tmp_path / "both")
    assert [row.values for row in read_rows(Source(one))] == ROWS
    assert [row.where for row in iter_rows(Source(both, split="test"))][2:] == [
        f"{both} (test), row 3"
    ]
    for arguments, message in [
        ({"path": one, "split": "test"}, f"path = {one!r} holds one data set without splits, so"),
        ({"path": one, "heldout_split": "test"}, f"path = {one!r} holds one data set without"),
        ({"path": both, "heldout_split": "tset"}, "has no split 'tset'; it has train, test"),
        ({"path": both, "heldout_split": "tset"}, f"environment.path = {both!r} has no split"),
        ({"path": both, "heldout_split": "train"}, "environment.heldout_split = 'train' is the"),
    ]:
        assert message in refused(arguments.pop("path"), **arguments)


def test_a_path_that_is_empty_and_a_configuration_of_a_file(tmp_path):
    assert "path = ''" in refused("")
    (tmp_path / "a.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    message = refused(tmp_path / "a.jsonl", config="main")
    assert message.startswith("environment.config = 'main': ")
    assert message.endswith("is one file and has no configurations; leave config out")


def test_functions(tmp_path, monkeypatch):
    (tmp_path / "reader_rows.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, message in [
        (
            "wants",
            "environment.path = 'reader_rows:wants' cannot be called with []: missing a req",
        ),
        ("raises", "environment.path = 'reader_rows:raises' raised OSError: no disk"),
        ("leaves", "reader_rows:leaves, row 2: raised SystemExit: 3"),
        ("numbered", "reader_rows:numbered, row 1: the column name 3 is a int; give a text"),
        ("keyed", "reader_rows:keyed, row 1: column 'table' cannot be written as JSON ('<' not"),
        ("circle", "reader_rows:circle, row 1: column 'more' holds lists or objects more than 100"),
        ("NUMBER", "environment.path = 'reader_rows:NUMBER' returned a int; give a function"),
    ]:
        assert message in refused(f"reader_rows:{name}")


def test_a_folder_of_files_of_several_kinds(tmp_path):
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    (tmp_path / "mixed" / "b.csv").write_text("prompt,answer\n3+4=,7\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a.jsonl").write_text('{"prompt": "x", "answer": 1}\n{"prompt": [1]}\n')
    assert refused(tmp_path / "mixed") == (
        f"environment.path = '{tmp_path / 'mixed'}' holds files of several kinds (a.jsonl, b.csv), "
        "of which one would be read; name a file, or keep one kind in the folder"
    )
    assert refused(tmp_path / "empty").startswith(
        f"environment.path = '{tmp_path / 'empty'}' is neither a file"
    )
    assert f"{tmp_path / 'odd'} (train), row 2: column 'prompt' must be" in refused(
        tmp_path / "odd"
    )
