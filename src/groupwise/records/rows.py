"""Rollouts as rows of a table: what each column holds, and how rows become Parquet and back."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.records.files import replace_file
from groupwise.texts import whole_text, whole_texts
from groupwise.types import Group, Prompt, Rollout

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_KEY = ("prompt_id", "visit", "kind")
"""What makes the rollouts of a step one group."""
REQUIRED_COLUMNS: tuple[str, ...] = (
    "step",
    "prompt_id",
    "group_index",
    "prompt_ids",
    "completion_ids",
    "text",
    "sampler_logprobs",
    "reward",
    "rewards",
    "outcome",
    "reason",
    "advantage",
    "finish_reason",
    "version",
)
"""Columns that every row of `rollouts/*.parquet` has."""

NEVER_NULL = (
    "step", "version", "prompt_id", "group_index", "prompt_ids", "completion_ids",
    "sampler_logprobs", "text", "finish_reason", "outcome",
)  # fmt: skip
"""Of these, the columns that have a value in every row."""
_DEFAULTS: dict[str, Any] = {"kind": "training", "visit": 0, "prompt": "", "mask": []}
"""What an empty cell of another column is read as; None in those that are not here."""
NOT_RECORDED = "not recorded"
"""An imported row's `finish_reason` where the file has none."""
ROW_GROUP = 256
"""Rows that a reader of a single group has to decode at least."""

_COLUMNS: dict[str, tuple[str, Callable[[Rollout], Any]]] = {
    "step": ("int64", lambda r: r.step),
    "version": ("int64", lambda r: r.version),
    "kind": ("string", lambda r: "training"),
    "prompt_id": ("string", lambda r: r.prompt.id),
    "visit": ("int64", lambda r: r.visit),
    "group_index": ("int64", lambda r: r.group_index),
    "prompt": ("string", lambda r: _prompt_text(r.prompt)),
    "answer": ("string", lambda r: _json_text(r.prompt.answer)),
    "columns": ("string", lambda r: _json_text(dict(r.prompt.columns) or None)),
    "opened": ("string", lambda r: r.extras.opened or None),
    "prompt_ids": ("ids", lambda r: list(r.prompt_ids)),
    "completion_ids": ("ids", lambda r: list(r.completion_ids)),
    "mask": ("flags", lambda r: list(r.mask)),
    "sampler_logprobs": ("floats", lambda r: list(r.sampler_logprobs)),
    "experts": (
        "experts",
        lambda r: _listed(r.experts, lambda e: memoryview(e).cast("h").tolist()),
    ),
    "text": ("string", lambda r: r.text),
    "finish_reason": ("string", lambda r: r.finish_reason),
    "reward": ("float64", lambda r: r.reward),
    "outcome": ("string", lambda r: r.score.outcome),
    "reason": ("string", lambda r: r.score.reason),
    "advantage": ("float64", lambda r: None),
    "token_advantages": ("floats", lambda r: None),
    "old_logprobs": ("floats", lambda r: None),
    "learner_logprobs": ("floats", lambda r: None),
    "entropies": ("floats", lambda r: None),
    "loss_weights": ("floats", lambda r: None),
    "step_rewards": ("floats", lambda r: _listed(r.score.steps, lambda step: step.value)),
    "step_ends": ("ids", lambda r: _listed(r.step_ends)),
    "messages": ("string", lambda r: _json_text(r.extras.messages)),
    "turn_ends": ("ids", lambda r: _turn_ends(r)),
    "limit": ("string", lambda r: r.extras.limit),
    "output": ("string", lambda r: r.extras.output),
    "versions": ("ids", lambda r: _versions(r)),
}
"""Type and value of every column but `rewards`, a struct of the step's verifiers."""


def schema() -> pa.Schema:
    """The columns and their types, without `rewards`."""
    import pyarrow as pa

    types = {
        "int64": pa.int64(),
        "float64": pa.float64(),
        "string": pa.string(),
        "ids": pa.list_(pa.int32()),
        "flags": pa.list_(pa.bool_()),
        "floats": pa.list_(pa.float32()),
        "experts": pa.list_(pa.list_(pa.int16())),
    }
    return pa.schema([(name, types[kind]) for name, (kind, _) in _COLUMNS.items()])


def rollout_rows(
    step: int,
    groups: Sequence[Group],
    advantages: Sequence[float] | Sequence[Sequence[float]] | None = None,
    *,
    kind: str = "training",
) -> list[dict[str, Any]]:
    """Rows of whole groups, in the groups' order; a group's greedy rollout follows it.

    A branch has a row of kind "branch" behind its rollout's. `advantages` has one entry per
    sequence in that order (greedy ones excluded): a number, or one number per completion id, of
    which `advantage` is the mean over the ids that the policy chose.
    `kind` is "training"; "replayed" for what is learned from again; "waiting" for what was sampled
    now and is learned from in a later step, where it has rows again; or "discarded".

    Raises ValueError where the advantages and the rollouts are not one to one.
    """
    count = sum(len(group.sequences) for group in groups)
    if advantages is not None and len(advantages) != count:
        raise ValueError(f"{len(advantages)} advantages for {count} rollouts")
    rows: list[dict[str, Any]] = []
    left: Iterator[float | Sequence[float]] = iter(advantages or ())
    for group in groups:
        for rollout in group.sequences:
            row = _row(step, rollout, "branch" if rollout.branch else kind)
            rows.append(row if advantages is None else row | _advantage(rollout, next(left)))
        if group.greedy is not None:
            rows.append(_row(step, group.greedy, "greedy"))
    return rows


def _row(step: int, rollout: Rollout, kind: str) -> dict[str, Any]:
    """One rollout as a row, its advantage not yet known."""
    parts = dict(rollout.score.parts) or {"reward": rollout.reward}
    row = {name: value(rollout) for name, (_, value) in _COLUMNS.items()}
    return {**row, "step": step, "kind": kind, "rewards": parts}


def _listed(
    values: Sequence[Any] | None, of: Callable[[Any], Any] = lambda value: value
) -> list[Any] | None:
    """A list column's cell: None and an empty list are different things."""
    return None if values is None else [of(value) for value in values]


def _versions(rollout: Rollout) -> list[int] | None:
    """The policy version of every completion id, -1 under context; None where all have one."""
    own = [turn.completion for turn in rollout.turns]
    several = len({each for one in own for each in one.versions or (one.version,)}) > 1
    return list(rollout.per_token("token_versions", -1)) if several else None


def _turn_ends(rollout: Rollout) -> list[int]:
    """Per turn, how many of `completion_ids` there are at its end."""
    ends = [0]
    for number, turn in enumerate(rollout.turns):
        context = len(turn.context_ids) if number else 0
        ends.append(ends[-1] + context + turn.completion.num_tokens)
    return ends[1:]


def _advantage(rollout: Rollout, advantage: float | Sequence[float]) -> dict[str, Any]:
    if isinstance(advantage, (int, float)):
        return {"advantage": float(advantage)}
    values = [float(value) for value in advantage]
    ids = rollout.completion_ids
    if len(values) < len(ids):
        raise ValueError(f"{len(values)} token advantages for {len(ids)} completion ids")
    values = values[: len(ids)]
    chosen = [value for value, mine in zip(values, rollout.mask) if mine]
    mean = math.fsum(chosen) / len(chosen) if chosen else 0.0
    return {"advantage": mean, "token_advantages": values}


def _prompt_text(prompt: Prompt) -> str:
    if prompt.text is not None:
        return prompt.text
    return _json_text([dict(message) for message in prompt.messages]) or ""


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def rows_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table: the known columns typed, any other as Arrow infers it, else texts.

    Raises ValueError naming the row and the columns that are missing.
    """
    import pyarrow as pa

    for number, row in enumerate(rows):
        missing = [name for name in REQUIRED_COLUMNS if name not in row]
        if missing:
            raise ValueError(f"rollout row {number} has no {', '.join(missing)}")
    columns: dict[str, pa.Array] = {}
    for field in schema():
        values = [row.get(field.name) for row in rows]
        if pa.types.is_string(field.type):
            values = whole_texts(values)
        columns[field.name] = pa.array(values, type=field.type)
    columns["rewards"] = _rewards_array([row["rewards"] for row in rows])
    others = dict.fromkeys(name for row in rows for name in row if name not in columns)
    for name in others:
        columns[whole_text(name)] = _inferred([row.get(name) for row in rows])
    return pa.table(columns)


def _inferred(values: Sequence[Any]) -> pa.Array:
    """What a function logged, in the type that fits all of it, else as texts."""
    import pyarrow as pa

    try:
        return pa.array(whole_texts(values))
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return _as_texts(values)


def _as_texts(values: Iterable[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array([whole_texts(_json_text(value)) for value in values], type=pa.string())


def _rewards_array(rewards: Sequence[Mapping[str, float | None]]) -> pa.Array:
    import pyarrow as pa

    rewards = [whole_texts(parts) for parts in rewards]
    names = list(dict.fromkeys(name for parts in rewards for name in parts)) or ["reward"]
    return pa.array(
        [{name: parts.get(name) for name in names} for parts in rewards],
        type=pa.struct([(name, pa.float64()) for name in names]),
    )


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as one Parquet file, atomically."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(
        path, lambda p: pq.write_table(table, p, compression="zstd", row_group_size=ROW_GROUP)
    )


def read_tables(paths: Iterable[Path], columns: Sequence[str] | None = None) -> pa.Table:
    """Read Parquet files into one table in the order given; columns that some lack are null.

    Raises RecipeError naming a file that is damaged, lacks one of `REQUIRED_COLUMNS`, has nulls in
    one of `NEVER_NULL` or another type in a known column.
    """
    import pyarrow as pa

    tables = []
    for path in paths:
        with _open_table(path) as file:
            tables.append(_checked(path, file.read(columns=columns), columns))
    if not tables:
        empty = schema()
        names = [n for n in empty.names if columns is None or n in columns]
        return pa.schema([empty.field(name) for name in names]).empty_table()
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowTypeError:  # what was logged changed its type from one file to another
        return pa.concat_tables(_same_types(tables), promote_options="permissive")


def check_whole(path: Path) -> None:
    """Raises RecipeError where a Parquet file lacks its end, without reading the rest."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4))
            whole = size >= 12 and file.read() == b"PAR1"
    except OSError as error:
        raise RecipeError(f"the record's {path} cannot be read: {error}") from error
    if not whole:
        raise RecipeError(
            f"the record's {path} cannot be read: its end is missing ({size} bytes are there)"
        )


def read_groups(
    path: Path, keys: Collection[tuple[str, int | None, str | None]]
) -> list[dict[str, Any]]:
    """The rows of one file whose (prompt_id, visit, kind) is among `keys`, in the file's order.

    Only the row groups that hold some are decoded. Raises RecipeError as `read_tables` does.
    """
    import pyarrow as pa

    with _open_table(path) as file:
        names = set(file.schema_arrow.names)
        light = file.read(columns=[name for name in GROUP_KEY if name in names])
        there = [_checked(path, light, GROUP_KEY)[name].to_pylist() for name in GROUP_KEY]
        places = [place for place, key in enumerate(zip(*there)) if key in keys]
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        ends = list(accumulate(sizes))
        parts = sorted({bisect_right(ends, place) for place in places})
        first = dict(zip(parts, accumulate((sizes[part] for part in parts), initial=0)))
        table = _checked(path, file.read_row_groups(parts))
    taken = []
    for place in places:
        part = bisect_right(ends, place)
        taken.append(first[part] + place - (ends[part] - sizes[part]))
    rows: list[dict[str, Any]] = table.take(pa.array(taken, pa.int64())).to_pylist()
    return rows


@contextmanager
def _open_table(path: Path) -> Iterator[pq.ParquetFile]:
    """A file of rollouts; what is wrong with it, then or while it is read, is a RecipeError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            lacking = [n for n in REQUIRED_COLUMNS if n not in file.schema_arrow.names]
            if lacking:
                raise RecipeError(f"{path} holds no rollouts: it lacks {', '.join(lacking)}")
            yield file
    except (OSError, pa.ArrowException) as error:
        raise RecipeError(f"the record's {path} cannot be read: {error}") from error


def _checked(path: Path, table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The table with all known columns (of `columns`) in their types, those that it lacks empty.

    Raises RecipeError naming a column of another type, and one with nulls where there are none.
    """
    import pyarrow as pa

    known = schema()
    for place, name in enumerate(table.column_names):
        column = table[name]
        if name in NEVER_NULL and column.null_count:
            raise RecipeError(
                f"the record's {path} is damaged: {name} is null in {column.null_count} of "
                f"{len(column)} rows, and every row has one"
            )
        if name == "rewards" and not pa.types.is_struct(column.type):
            raise RecipeError(
                f"the record's {path} is damaged: rewards is of type {column.type}, and a struct "
                "of numbers is expected"
            )
        if name in known.names and column.type != (kind := known.field(name).type):
            try:
                table = table.set_column(place, name, column.cast(kind))
            except pa.ArrowException as error:
                raise RecipeError(
                    f"the record's {path} is damaged: {name} is of type {column.type}, and {kind} "
                    "is expected"
                ) from error
    for field in known:
        if columns is not None and field.name not in columns:
            continue
        there, default = field.name in table.column_names, _DEFAULTS.get(field.name)
        column = table[field.name] if there else pa.nulls(table.num_rows, field.type)
        if default is not None and column.null_count:
            cells = [default if cell is None else cell for cell in column.to_pylist()]
            column = pa.array(cells, type=field.type)
        if not there:
            table = table.append_column(field, column)
        elif column is not table[field.name]:
            table = table.set_column(table.column_names.index(field.name), field, column)
    return table


def _same_types(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables, the columns that are not of one type in all of them as texts."""
    import pyarrow as pa

    known = set(schema().names) | {"rewards"}
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            if field.name not in known and not pa.types.is_null(field.type):
                types.setdefault(field.name, set()).add(field.type)
    mixed = {name for name, found in types.items() if len(found) > 1}
    made = []
    for table in tables:
        for name in mixed & set(table.column_names):
            texts = _as_texts(table[name].to_pylist())
            table = table.set_column(table.column_names.index(name), name, texts)
        made.append(table)
    return made
