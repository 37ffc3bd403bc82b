"""Rows of a data file, a folder or a `datasets` name, each with a place that messages can name.

JSON lines, JSON (a list of objects), CSV, TSV and Parquet are read here; everything else is asked
of `datasets`. Left out: what the columns mean (`dataset.py`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from groupwise.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Row:
    """One row and where it stands, as `problems.jsonl, line 3`."""

    where: str
    values: dict[str, Any]


def read_rows(
    path: str, *, config: str | None = None, split: str = "train", field: str = "environment.path"
) -> list[Row]:
    """All rows; `RecipeError` naming `field` where there is no such data or none in it.

    `config` and `split` are for `datasets` names and folders.
    """
    file = Path(path).expanduser()
    reader = READERS.get(file.suffix.lower())
    if reader is not None and file.is_file():
        rows = reader(file)
    elif reader is not None and not file.is_dir():
        raise RecipeError(f"{field} = {path!r}: there is no such file in {Path.cwd()}")
    elif file.is_file():
        raise RecipeError(
            f"{field} = {path!r}: the ending {file.suffix!r} is not one of {', '.join(READERS)}"
        )
    else:
        rows = _read_datasets(path, config, split, field)
    if not rows:
        raise RecipeError(f"{field} = {path!r} holds no rows; give a file with at least one")
    return rows


@contextmanager
def _utf8(file: Path, newline: str | None = None) -> Iterator[TextIO]:
    """The file opened as text; `RecipeError` with the line where it is not UTF-8."""
    try:
        with file.open(encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{file.name}, line {_first_undecodable_line(file)}: not UTF-8 text; save it as UTF-8"
        ) from error


def _first_undecodable_line(file: Path) -> int:
    content = file.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    return 1


def _read_jsonl(file: Path) -> list[Row]:
    rows: list[Row] = []
    with _utf8(file) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{file.name}, line {number}"
                rows.append(Row(where, _object(_json(line, where), where)))
    return rows


def _read_json(file: Path) -> list[Row]:
    with _utf8(file) as text:
        content = _json(text.read(), file.name)
    if not isinstance(content, list):
        raise RecipeError(
            f"{file.name} holds a {type(content).__name__}; give a list of objects, or JSON lines "
            "in a file ending in .jsonl"
        )
    places = [f"{file.name}, row {number}" for number in range(1, len(content) + 1)]
    return [Row(where, _object(each, where)) for where, each in zip(places, content)]


def _read_table(file: Path, delimiter: str) -> list[Row]:
    rows: list[Row] = []
    with _utf8(file, newline="") as lines:
        reader = csv.DictReader(lines, delimiter=delimiter)
        for values in reader:
            where = f"{file.name}, line {reader.line_num}"
            if None in values or any(value is None for value in values.values()):
                names = ", ".join(reader.fieldnames or ())
                raise RecipeError(f"{where}: not as many fields as the header has ({names})")
            rows.append(Row(where, dict(values)))
    return rows


def _read_parquet(file: Path) -> list[Row]:
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(file)
    except (OSError, ValueError) as error:
        raise RecipeError(f"{file.name} cannot be read as Parquet: {error}") from error
    return _numbered(table.to_pylist(), file.name)


def _read_datasets(path: str, config: str | None, split: str, field: str) -> list[Row]:
    import datasets

    try:
        if Path(path, "state.json").is_file() or Path(path, "dataset_dict.json").is_file():
            data = datasets.load_from_disk(path)
            if isinstance(data, datasets.DatasetDict):
                if split not in data:
                    raise RecipeError(
                        f"{field} = {path!r} has no split {split!r}; it has {', '.join(data)}"
                    )
                data = data[split]
        else:
            data = datasets.load_dataset(path, config, split=split)
    except (OSError, ValueError, ConnectionError) as error:
        raise RecipeError(
            f"{field} = {path!r} is neither a file ending in {', '.join(READERS)} nor a folder or "
            f"name that `datasets` can load (split {split!r}): {type(error).__name__}: {error}"
        ) from error
    return _numbered(data.to_list(), f"{path} ({split})")


def _numbered(values: list[dict[str, Any]], name: str) -> list[Row]:
    return [Row(f"{name}, row {number}", each) for number, each in enumerate(values, start=1)]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RecipeError(f"{where}: not JSON: {error}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: a {type(value).__name__}, not an object with columns")
    return value


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": lambda file: _read_table(file, ","),
    ".tsv": lambda file: _read_table(file, "\t"),
    ".parquet": _read_parquet,
}
"""A reader by file ending."""
