"""Reading a run's record: while it runs, after it ended, after it was killed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

from groupwise.errors import RecipeError
from groupwise.records.files import read_json_lines
from groupwise.records.metrics import COMMON_KEYS, is_whole
from groupwise.records.rows import check_whole, read_groups, read_tables
from groupwise.texts import counted, from_json, from_toml

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_VERSION = 2
"""The layout of a run folder, in `environment.json`; docs/record.md says what changed when."""
_FILES = (
    "recipe.toml", "environment.json", "metrics.jsonl", "events.jsonl", "schedule.jsonl",
    "summary.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk. Everything is read when it is asked for, so a running run can be followed.

    Tables are `pyarrow.Table`: `.to_pandas()`, `.to_pylist()`, `.column(name)`.
    """

    folder: Path

    @property
    def recipe_text(self) -> str:
        """The resolved recipe as it was written, TOML."""
        text: str = _read(self.folder / "recipe.toml", str)
        return text

    @property
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = _read(self.folder / "recipe.toml", from_toml)
        return recipe

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, platform and hashes (`environment.json`)."""
        return _read_object(self.folder / "environment.json")

    @property
    def summary(self) -> dict[str, Any]:
        """`summary.json`; without it "imported" or "unfinished", and the steps there are."""
        path = self.folder / "summary.json"
        if not path.exists():
            status = "imported" if "imported" in self.environment else "unfinished"
            return {"status": status, "steps": len(self.steps)}
        summary = _read_object(path)
        _check_form(path, summary, {"status": str, "steps": int})
        figures = [key for key in summary if key.startswith("eval/") and key.count("_")]
        _check_form(path, summary, dict.fromkeys(figures, (int, float, NoneType)))
        return summary

    def _repr_html_(self) -> str:
        """How Jupyter shows a run: its folder, status and accuracies before and after."""
        summary = self.summary
        rows = [
            ("folder", str(self.folder)),
            ("status", f"{summary['status']}, {counted(summary['steps'], 'step')}"),
        ]
        for name in ("accuracy", "greedy", "heldout"):
            values = [summary.get(f"eval/{name}_{when}") for when in ("first", "last")]
            if None not in values:
                rows.append((f"eval/{name}", f"{values[0]:.1%} to {values[1]:.1%}"))
        rows += [(name, str(run.summary["status"])) for name, run in self.stages.items()]
        cells = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
        return f"<table>{cells}</table>"

    @property
    def stages(self) -> dict[str, Run]:
        """The runs of a pipeline's stages that have begun, by name; none of an ordinary run."""
        folders = sorted((self.folder / "stages").glob("*/recipe.toml"))
        return {path.parent.name: Run(path.parent) for path in folders}

    @property
    def steps(self) -> list[int]:
        return [line["step"] for line in self.metric_lines()]

    def metric_lines(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, one a step."""
        path = self.folder / "metrics.jsonl"
        lines = read_objects(path, "step", int)
        for number, line in enumerate(lines, start=1):
            _check_form(f"{path}, line {number}", line, dict.fromkeys(line, (int, float, NoneType)))
        return lines

    def metrics(self) -> pa.Table:
        """One row per step, one column per metric; counts are integers, the rest floats."""
        return _values_table(self.metric_lines(), COMMON_KEYS)

    def evaluations(self) -> pa.Table:
        """One row per evaluation, by `version` (0 = before training), one column per metric."""
        latest: dict[int, dict[str, Any]] = {}
        for event in self.events("evaluation"):
            _check_form(f"{self.folder}: an evaluation", event, {"version": int, "values": dict})
            latest[event["version"]] = {"version": event["version"], **event["values"]}
        return _values_table([latest[version] for version in sorted(latest)], ("version",))

    def rollouts(
        self, steps: int | Iterable[int] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """One row per rollout, in step order. `steps` and `columns` limit what is read."""
        if steps is None:
            return read_tables(self.rollout_files().values(), columns)
        wanted = sorted({steps} if isinstance(steps, int) else set(steps))
        paths = [path for step in wanted if (path := self._rollout_file(step)).exists()]
        return read_tables(paths, columns)

    def rollout_files(self) -> dict[int, Path]:
        """The file of each step whose rollouts are recorded, in step order."""
        paths = (self.folder / "rollouts").glob("step_*.parquet")
        numbers = {path.stem.removeprefix("step_"): path for path in paths}
        return {int(n): numbers[n] for n in sorted(numbers) if n.isdecimal()}

    def group_rows(
        self, step: int, keys: Collection[tuple[str, int | None, str | None]]
    ) -> list[dict[str, Any]]:
        """The rollouts of some groups of a step, each by its (prompt_id, visit, kind)."""
        path = self._rollout_file(step)
        return read_groups(path, keys) if path.exists() else []

    def _rollout_file(self, step: int) -> Path:
        return self.folder / "rollouts" / f"step_{step:06d}.parquet"

    def evaluation_rollouts(self, version: int) -> pa.Table:
        """The completions of one evaluation, where they were recorded."""
        path = self.folder / "evaluations" / f"version_{version:06d}.parquet"
        return read_tables([path] if path.exists() else [])

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened, in order, each with `time` and `kind`; of one kind where given."""
        events = read_objects(self.folder / "events.jsonl", "kind", str)
        return [event for event in events if kind is None or event["kind"] == kind]

    def steps_without_rollouts(self) -> list[int]:
        """The recorded steps that sampled completions and whose file of rollouts is not there."""
        sampled = {line["step"] for line in self.metric_lines() if line.get("completions/count")}
        return sorted(sampled - self.rollout_files().keys())

    def gaps(self) -> list[str]:
        """What the record should hold and does not, in words; empty for a whole one.

        Raises RecipeError naming a Parquet file that is cut short.
        """
        recorded = self.rollout_files()
        for path in (*recorded.values(), *sorted(self.folder.glob("evaluations/*.parquet"))):
            check_whole(path)
        lines = self.metric_lines()
        steps = Counter(line["step"] for line in lines)
        written = (self.folder / "metrics.jsonl").exists()
        newest = max((*steps, *recorded), default=0)  # a step's rollouts come just before its line
        unlisted = {step for step in recorded if step < newest and written} - steps.keys()
        found = [] if written else ["metrics.jsonl is not there"]
        for what, which in (
            ("the rollouts of {} are not in the record", self.steps_without_rollouts()),
            ("metrics.jsonl has no line of {}", unlisted),
            ("metrics.jsonl has more than one line of {}", {s for s, n in steps.items() if n > 1}),
        ):
            found += [what.format(_steps_text(sorted(which)))] if which else []
        return found

    def query(self, sql: str) -> pa.Table:
        """Run SQL (DuckDB) over the tables `metrics`, `evaluations` and `rollouts`.

        `run.query('select step, avg(reward) from rollouts group by step order by step')`
        """
        import duckdb

        with duckdb.connect() as connection:
            connection.register("metrics", self.metrics())
            connection.register("evaluations", self.evaluations())
            connection.register("rollouts", self.rollouts())
            return connection.sql(sql).to_arrow_table()


def open_run(folder: str | Path) -> Run:
    """Open a run's record.

    Raises RecipeError where the folder holds none, or a link in place of a file; what is read of it
    later raises it, with the file's name, where that file is damaged.
    """
    folder = Path(folder)
    if not (folder / "recipe.toml").is_file():
        raise RecipeError(f"{folder} holds no run: a run folder has a recipe.toml")
    _refuse_links(folder)
    for stage in Run(folder).stages.values():
        _refuse_links(stage.folder)
    about = folder / "environment.json"
    version = _read_object(about).get("record_version", 1) if about.exists() else 1
    if not isinstance(version, int):
        raise RecipeError(f"{about}: record_version = {version!r} is no whole number")
    if version > RECORD_VERSION:
        raise RecipeError(
            f"{folder} is a record of version {version}, and this groupwise reads up to "
            f"{RECORD_VERSION}; install a newer one"
        )
    return Run(folder)


def check_layout(folder: Path) -> None:
    """Refuse a run folder in which something else stands in the place of a file or a folder, and
    a checkpoint that is a link, which cannot be replaced. Raises RecipeError naming it."""
    _refuse_links(folder)
    for name in (*_FILES, "rollouts", "evaluations", "checkpoints"):
        path = folder / name
        fits, kind = (path.is_file, "file") if name in _FILES else (path.is_dir, "folder")
        if os.path.lexists(path) and not fits():
            raise RecipeError(f"{path} is not a {kind}; restore it, or name another output")
    for path in (folder / "checkpoints").glob("step_*"):
        if path.name.removeprefix("step_").isdigit() and (path.is_symlink() or not path.is_dir()):
            found = "is a symbolic link" if path.is_symlink() else "is not a folder"
            raise RecipeError(
                f"{path} {found}; put the checkpoint's folder in its place, or remove it"
            )


def _refuse_links(folder: Path) -> None:
    """A record's files are its own: a link would show, or on resume change, a file elsewhere."""
    for name in _FILES:
        if (folder / name).is_symlink():
            raise RecipeError(f"{folder / name} is a symbolic link; put the file in its place")


def check_single(run: Run, does: str) -> None:
    """Refuse a pipeline's folder, with those of its stages; `does` is the command's verb.

    Raises RecipeError.
    """
    if run.stages:
        raise RecipeError(
            f"{run.folder} is a pipeline; {does} one of its stages: "
            + ", ".join(str(stage.folder) for stage in run.stages.values())
        )


def _steps_text(steps: Sequence[int], most: int = 5) -> str:
    shown = ", ".join(map(str, steps[:most]))
    more = f" and {len(steps) - most} more" if len(steps) > most else ""
    return f"step{'s' if len(steps) > 1 else ''} {shown}{more}"


def _read(path: Path, parse: Callable[[str], Any]) -> Any:
    """A file's text, parsed. Raises RecipeError where it is missing or damaged."""
    try:
        return parse(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(f"the record's {path} cannot be read: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    value = _read(path, from_json)
    if not isinstance(value, dict):
        raise RecipeError(f"the record's {path} holds {value!r:.60}, and an object is expected")
    return value


def _check_form(where: object, found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """RecipeError naming a field that is absent or not of its kinds."""
    for name, given in kinds.items():
        kinds_of = given if isinstance(given, tuple) else (given,)
        if not isinstance(found.get(name), kinds_of):
            names = " or ".join("none" if each is NoneType else each.__name__ for each in kinds_of)
            raise RecipeError(f"{where}: {name} = {found.get(name)!r:.60}; expected {names}")


def read_objects(
    path: Path, key: str, kind: type, *, torn: Literal["warn", "ignore"] = "warn"
) -> list[dict[str, Any]]:
    """Objects of a JSON-lines file, each with `key`. Raises RecipeError naming another line."""
    lines = list(read_json_lines(path, torn=torn))
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or not isinstance(line.get(key), kind):
            raise RecipeError(f"{path}: line {number} is no object with {key!r}: {line!r:.60}")
    return lines


def _values_table(lines: Sequence[dict[str, Any]], first: Sequence[str]) -> pa.Table:
    """Lines of named numbers as a table: the columns `first`, then others as they arrive."""
    import pyarrow as pa

    columns = {}
    for name in dict.fromkeys([*first, *(name for line in lines for name in line)]):
        kind = pa.int64() if name == "version" or is_whole(name) else pa.float64()
        try:
            columns[name] = pa.array([line.get(name) for line in lines], type=kind)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise RecipeError(f"the record's metric {name!r} is no number: {error}") from error
    return pa.table(columns)
