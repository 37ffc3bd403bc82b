"""Rows of a data file, a folder, a generator or a `datasets` name, each with a place to name.

JSON lines, JSON (a list of objects), CSV, TSV and Parquet are read here, `module:function` is
called, everything else is asked of `datasets`. Left out: what the columns mean (`dataset.py`).
"""

from __future__ import annotations

import csv
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.verifiers.core.contract import describe_error
from groupwise.verifiers.core.user import call_user

LONGEST_FIELD = 2**31 - 1
"""Characters of a CSV field: a long context is one field."""
MOST_ROWS = 5_000_000
"""A source of more rows than this has no end, or is more than a run can use."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row and where it stands, as `problems.jsonl, line 3`."""

    where: str
    values: dict[str, Any]


class Source(NamedTuple):
    """Where rows are. `config` and `split` are for `datasets` names and folders.

    A generator gets `split` and `seed` if it takes them; messages call the path `field`.
    """

    path: str
    config: str | None = None
    split: str = "train"
    seed: int = 0
    field: str = "environment.path"

    @property
    def named(self) -> str:
        return f"{self.field} = {self.path!r}"


def read_rows(source: Source, limit: int | None = None) -> list[Row]:
    """All rows (the first `limit`); `RecipeError` naming the field where there are none."""
    rows = list(islice(iter_rows(source), MOST_ROWS + 1 if limit is None else limit))
    if not rows:
        raise RecipeError(f"{source.named} holds no rows; give a file with at least one")
    if limit is None and len(rows) > MOST_ROWS:
        raise RecipeError(f"{source.named} yielded more than {MOST_ROWS:,} rows; set limit")
    return rows


def iter_rows(source: Source) -> Iterator[Row]:
    """The rows one after the other. Raises RecipeError naming what cannot be read."""
    file = Path(source.path).expanduser()
    reader = READERS.get(file.suffix.lower())
    if reader is not None and file.is_file():
        return reader(file)
    if reader is not None and not file.is_dir():
        raise RecipeError(f"{source.named}: there is no such file in {Path.cwd()}")
    if file.is_file():
        raise RecipeError(
            f"{source.named}: the ending {file.suffix!r} is not one of {', '.join(READERS)}"
        )
    if _is_function(source.path):
        return _read_function(source)
    return _read_datasets(source, file)


def is_file(path: str) -> bool:
    """Whether a path is one of the files that are read here."""
    file = Path(path).expanduser()
    return file.suffix.lower() in READERS and file.is_file()


def _is_function(path: str) -> bool:
    module, _, name = path.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


@contextmanager
def open_text(file: Path, newline: str | None = None) -> Iterator[TextIO]:
    """The file opened as UTF-8. Raises RecipeError with the line that is not, or the reason."""
    try:
        with file.open(encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{file.name}, line {_first_undecodable_line(file)}: not UTF-8 text; save it as UTF-8"
        ) from error
    except OSError as error:
        raise RecipeError(
            f"{file} cannot be read: {error.strerror}; give a file that can"
        ) from error


def _first_undecodable_line(file: Path) -> int:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _read_jsonl(file: Path) -> Iterator[Row]:
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file.name}, line {number}"
            if line.strip():
                yield Row(where, _object(_json(line.rstrip("\n"), where), where))


def _read_json(file: Path) -> Iterator[Row]:
    with open_text(file) as text:
        content = _json(text.read(), file.name)
    if not isinstance(content, list):
        raise RecipeError(
            f"{file.name} holds a {type(content).__name__}; give a list of objects, or JSON lines "
            "in a file ending in .jsonl"
        )
    yield from _rows(content, file.name)


def _read_table(file: Path, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    with open_text(file, newline="") as lines:
        reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
        try:
            _check_header(reader.fieldnames or (), file)
            for values in reader:
                where = f"{file.name}, line {reader.line_num}"
                if None in values or any(value is None for value in values.values()):
                    names = ", ".join(reader.fieldnames or ())
                    raise RecipeError(f"{where}: not as many fields as the header has ({names})")
                yield Row(where, dict(values))
        except csv.Error as error:
            raise RecipeError(
                f"{file.name}, line {reader.line_num + 1}: {error}; a field with commas, quotes or "
                'line ends stands in double quotes, and a quote within it is written twice: ""'
            ) from error


def _check_header(names: Sequence[str], file: Path) -> None:
    _check_twice(names, f"{file.name}, line 1")
    others = [sign for sign in ";,\t" if len(names) == 1 and sign in names[0]]
    if others:
        raise RecipeError(
            f"{file.name}, line 1: one column {names[0]!r}, with {others[0]!r} in its name; .csv "
            "is read with commas and .tsv with tabs between columns"
        )


def _check_twice(names: Sequence[str], where: str) -> None:
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise RecipeError(
            f"{where}: the column {twice[0]!r} is there twice; give each its own name"
        )


def _read_parquet(file: Path) -> Iterator[Row]:
    import pyarrow.parquet as parquet

    try:
        table = parquet.ParquetFile(file)
    except Exception as error:
        raise RecipeError(
            f"{file.name} cannot be read as Parquet: {_in_one_line(error)}"
        ) from error
    with table:
        _check_twice(table.schema_arrow.names, file.name)
        yield from _rows(_dicts(table), file.name)


def _dicts(table: Any) -> Iterator[dict[str, Any]]:
    """The rows. If one cannot be read, those before it come first."""
    for batch in table.iter_batches(batch_size=1024):
        try:
            rows = batch.to_pylist(maps_as_pydicts="strict")
        except Exception:  # noqa: BLE001 (raised again with its row)
            rows = (batch.slice(n, 1).to_pylist()[0] for n in range(batch.num_rows))
        yield from map(_unpadded_row, rows)


def _unpadded_row(row: Any) -> Any:
    return {name: unpadded(value) for name, value in row.items()} if type(row) is dict else row


def unpadded(value: Any) -> Any:
    """A value of a Parquet or Arrow column without the nulls that padded its objects.

    Columnar storage gives every object the keys of all objects of its column: a call without the
    argument `a` comes back with `"a": null`. A null that was written on purpose looks the same and
    goes too; a message keeps its content.

    >>> unpadded([{"a": 1, "b": None}, {"role": "assistant", "content": None, "name": None}])
    [{'a': 1}, {'role': 'assistant', 'content': None}]
    """
    if isinstance(value, dict):
        kept = "content" if "role" in value else None
        return {
            name: unpadded(each) for name, each in value.items() if each is not None or name == kept
        }
    return [unpadded(each) for each in value] if isinstance(value, list) else value


def _read_function(source: Source) -> Iterator[Row]:
    """The rows that a user's function gives. What it raises stops the run with its row named."""
    function = import_object(source.path, "data")
    found = function
    if callable(function):
        try:
            taken: Mapping[str, Any] = inspect.signature(function).parameters
        except ValueError:
            taken = {}  # unknown for some functions written in C
        given = {"split": source.split, "seed": source.seed}
        given = {name: value for name, value in given.items() if name in taken}
        found = call_user(function, given, f"environment.path = {source.path!r}")
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise RecipeError(
            f"environment.path = {source.path!r} returned a {type(found).__name__}; give a "
            "function that yields one dict a row"
        )
    return _rows(found, source.path)


def _read_datasets(source: Source, folder: Path) -> Iterator[Row]:
    import datasets

    split, path = source.split, str(folder) if folder.is_dir() else source.path
    try:
        if Path(path, "state.json").is_file() or Path(path, "dataset_dict.json").is_file():
            data = datasets.load_from_disk(path)
            if isinstance(data, datasets.DatasetDict):
                if split not in data:
                    raise RecipeError(
                        f"{source.named} has no split {split!r}; it has {', '.join(data)}"
                    )
                data = data[split]
            elif split not in ("train", str(data.split)):
                raise RecipeError(
                    f"{source.named} holds one data set without splits, so there is no split "
                    f"{split!r}; leave it out, or save a DatasetDict"
                )
        else:
            _check_kinds(source, folder)
            data = datasets.load_dataset(path, source.config, split=split)
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(
            f"{source.named} is neither a file ending in {', '.join(READERS)} nor a folder or "
            f"name that `datasets` can load (split {split!r}): {_in_one_line(error)}"
        ) from error
    return _rows(map(_unpadded_row, data), f"{path} ({split})")


def _check_kinds(source: Source, folder: Path) -> None:
    """`RecipeError` where a folder holds data files of several kinds: `datasets` reads one of them
    and passes over the others in silence. A README.md may say how they belong together.
    """
    if not folder.is_dir() or (folder / "README.md").is_file():
        return
    kinds: dict[str, Path] = {}
    for file in sorted(folder.rglob("*")):
        kind = file.suffix.lower().replace(".jsonl", ".json")
        hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if kind in READERS and not hidden and not file.name.startswith("dataset_info"):
            kinds.setdefault(kind, file.relative_to(folder))
    if len(kinds) > 1:
        raise RecipeError(
            f"{source.named} holds files of several kinds "
            f"({', '.join(map(str, kinds.values()))}), of which one would be read; name a file, or "
            "keep one kind in the folder"
        )


def _in_one_line(error: BaseException) -> str:
    """An error and its cause, for a message; what libraries write over many lines is cut off."""
    cause = "" if error.__cause__ is None else f"; {describe_error(error.__cause__)}"
    return f"{' '.join(f'{describe_error(error)}{cause}'.split()):.600}"


def _rows(values: Iterable[Any], name: str) -> Iterator[Row]:
    """The values as rows. Raises RecipeError with the place where getting the next one raises."""
    number = 0
    try:
        for number, each in enumerate(values, start=1):
            where = f"{name}, row {number}"
            yield Row(where, _object(each, where))
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:
        raise RecipeError(f"{name}, row {number + 1}: raised {_in_one_line(error)}") from error


def _json(text: str, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecipeError(f"{where}: the key {twice!r} is there twice; keep one of them")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecipeError:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        wrong = error.msg.removesuffix(" at")
        raise RecipeError(f"{where}: not JSON: {wrong} at {line}column {error.colno}") from error
    except ValueError as error:
        limit = sys.get_int_max_str_digits()
        raise RecipeError(
            f"{where}: a number of more than {limit} digits; write it as a text, in quotes"
        ) from error
    except RecursionError as error:
        raise RecipeError(
            f"{where}: lists or objects too deep to be read; flatten them, or give them as a text"
        ) from error


def _what(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where}: {_what(value)}, not an object with columns")
    for name in value:
        if not isinstance(name, str):
            raise RecipeError(
                f"{where}: the column name {name!r} is a {type(name).__name__}; give a text"
            )
    return dict(value)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": lambda file: _read_table(file, ","),
    ".tsv": lambda file: _read_table(file, "\t"),
    ".parquet": _read_parquet,
}
"""A reader by file ending."""
