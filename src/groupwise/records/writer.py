"""Writing a run's record: what happened, as it happens, so that a killed run can be read.

A step's metrics are one appended line; its rollouts are one file that appears whole. `sync` forces
both to the disk before a checkpoint that counts on them; `truncate_after` removes what a resumed
run will do again, so its record equals the unbroken run's.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.instants import passed
from groupwise.records.files import (
    append_whole,
    cut_torn_line,
    fsync_file,
    fsync_folder,
    json_line,
    write_json,
    write_text,
)
from groupwise.records.metrics import Value, clean_value, complete_step, find_metric
from groupwise.records.reader import RECORD_VERSION, check_layout, read_objects
from groupwise.records.rows import rows_table, write_table
from groupwise.texts import counted

SUMMARY_KEYS: tuple[str, ...] = (
    "status",
    "steps",
    "seconds",
    "tokens",
    "eval/accuracy_first",
    "eval/accuracy_last",
    "eval/greedy_first",
    "eval/greedy_last",
    "eval/heldout_first",
    "eval/heldout_last",
    "kl_last",
    "reward_last",
)
"""Keys that every `summary.json` has; None where a key does not apply."""
SCHEDULE = "schedule.jsonl"


class RunWriter:
    """The one writer of a run folder. Made by `create` or `reopen`; a context manager.

    The folder is locked while it is open, so a run that is started twice on one folder is refused
    and not interleaved.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsynced: set[Path] = set()
        self._lock: int | None = _lock_folder(folder)
        for half_written in folder.rglob(".*.tmp"):  # a killed process's
            half_written.unlink()
        self._last_step = -1

    @classmethod
    def create(
        cls, folder: str | Path, recipe_text: str, environment: Mapping[str, Any]
    ) -> RunWriter:
        """Start a record in a new or empty folder.

        Raises RecipeError where the folder already holds a record.
        """
        folder = Path(folder)
        if (folder / "recipe.toml").exists() or (folder / "metrics.jsonl").exists():
            raise RecipeError(
                f"output = {str(folder)!r} already holds a run; resume it (--resume), or name "
                "another folder"
            )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # rollouts are private
            writer = cls(folder)
        except OSError as error:
            raise RecipeError(f"output = {str(folder)!r} cannot be written: {error}") from error
        (folder / "rollouts").mkdir(exist_ok=True)
        about = {"record_version": RECORD_VERSION, "run_id": token_hex(8), **environment}
        write_json(folder / "environment.json", about)
        (folder / "metrics.jsonl").touch()
        (folder / "events.jsonl").touch()
        # Last: a folder with a recipe is a run.
        write_text(folder / "recipe.toml", recipe_text)
        return writer

    @classmethod
    def reopen(cls, folder: str | Path) -> RunWriter:
        """Reopen a record. Call `truncate_after` with the checkpoint's step before writing.

        Raises RecipeError if the folder holds no record, or a damaged one.
        """
        folder = Path(folder)
        if not (folder / "recipe.toml").exists():
            raise RecipeError(f"{folder} holds no run to resume (no recipe.toml)")
        check_layout(folder)
        writer = cls(folder)
        for name in ("metrics.jsonl", "events.jsonl"):
            cut_torn_line(folder / name)  # else the next line would be joined to half a line
        read_objects(folder / "events.jsonl", "kind", str)
        lines = read_objects(folder / "metrics.jsonl", "step", int)
        writer._last_step = lines[-1]["step"] if lines else -1
        return writer

    @property
    def steps_recorded(self) -> int:
        """Steps whose line is in the record without a gap from the first."""
        lines = read_objects(self.folder / "metrics.jsonl", "step", int, torn="ignore")
        return next((n for n, line in enumerate(lines) if line["step"] != n), len(lines))

    def metrics(self, step: int, values: Mapping[str, Value]) -> dict[str, Value]:
        """Append one step's line; returns it with every common key.

        Raises ValueError for an undefined metric or a step that does not follow the last.
        """
        if step <= self._last_step:
            raise ValueError(f"step {step} after step {self._last_step}: each has one line")
        line = complete_step(step, values)
        passed("record")
        self._append("metrics.jsonl", line)
        self._last_step = step
        return line

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Write a step's rollouts as one file, whole or not at all."""
        path = self.folder / "rollouts" / f"step_{step:06d}.parquet"
        self._write_table(path, rows)
        return path

    def schedule(self, line: Mapping[str, Any]) -> None:
        """Append a step's line of `schedule.jsonl`: what an asynchronous run's clock decided."""
        self._append(SCHEDULE, line)

    def evaluation(
        self, version: int, values: Mapping[str, Value], rows: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Record the evaluation of one version: its metrics, and its completions where given."""
        for name in values:
            find_metric(name)
        if rows:
            self._write_table(self.folder / "evaluations" / f"version_{version:06d}.parquet", rows)
        cleaned = {name: clean_value(name, value) for name, value in values.items()}
        self.event("evaluation", version=version, values=cleaned)

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event with the time (UTC): started, resumed, warning, checkpoint, error, ..."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append("events.jsonl", {"time": time, "kind": kind, **fields})

    def summary(self, values: Mapping[str, Any]) -> None:
        """Write `summary.json`. Raises ValueError where one of `SUMMARY_KEYS` is missing."""
        missing = [name for name in SUMMARY_KEYS if name not in values]
        if missing:
            raise ValueError(f"the summary has no {', '.join(missing)}")
        cleaned = {
            name: clean_value(name, value) if isinstance(value, float) else value
            for name, value in values.items()
        }
        with self._writing():
            write_json(self.folder / "summary.json", cleaned)

    def ended_early(
        self, status: str, error: BaseException, summary: Mapping[str, Any], **fields: Any
    ) -> None:
        """Record that the run was "interrupted" or "failed". Where the record itself cannot be
        written that is logged, so that `error` is still what the caller raises."""
        try:
            trace = "".join(traceback.format_exception(error))
            self.event(status, **fields, error=str(error), traceback=trace)
            self.summary(summary)
        except GroupwiseError as failure:
            logging.getLogger("groupwise").warning(
                "the end of the run is not recorded: %s", failure
            )

    def truncate_after(self, step: int) -> None:
        """Keep what the first `step` steps wrote; the resumed run writes the rest again.

        Dropped: metric and schedule lines and rollouts of steps >= `step`, evaluations of versions
        > `step`, and the summary. Other events stay: they say what happened.

        Raises GroupwiseError where the record ends before `step`, as it then is not the record of
        the checkpoint.
        """
        lines = read_objects(self.folder / "metrics.jsonl", "step", int, torn="ignore")
        kept = [line for line in lines if line["step"] < step]
        last = kept[-1]["step"] if kept else -1
        if last != step - 1:
            raise GroupwiseError(
                f"{self.folder / 'metrics.jsonl'} ends at step {last}, and the checkpoint was "
                f"written after {counted(step, 'step')}: they are not of one run"
            )
        events = read_objects(self.folder / "events.jsonl", "kind", str, torn="ignore")
        self._rewrite("metrics.jsonl", kept)
        if (self.folder / SCHEDULE).exists():
            lines = read_objects(self.folder / SCHEDULE, "step", int, torn="ignore")
            self._rewrite(SCHEDULE, [line for line in lines if line["step"] < step])
        self._rewrite(
            "events.jsonl",
            [e for e in events if e["kind"] != "evaluation" or e["version"] <= step],
        )
        _delete_from(self.folder / "rollouts", "step_", step)
        _delete_from(self.folder / "evaluations", "version_", step + 1)
        (self.folder / "summary.json").unlink(missing_ok=True)
        self._last_step = last

    def sync(self) -> None:
        """Force everything written so far to the disk. Call it before writing a checkpoint."""
        folders = {self.folder}
        with self._writing():
            for path in sorted(self._unsynced):
                if path.exists():
                    fsync_file(path)
                    folders.add(path.parent)
            for folder in folders:
                fsync_folder(folder)
        self._unsynced.clear()

    def close(self) -> None:
        """Force the record to the disk and release the folder."""
        if self._lock is not None:
            self.sync()
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        path = self.folder / name
        line = json_line(value).encode("utf-8")
        with self._writing():
            append_whole(path, line)
        self._unsynced.add(path)

    def _write_table(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        table = rows_table(rows)
        with self._writing():
            write_table(path, table)
        self._unsynced.add(path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GroupwiseError(
                f"the record in {self.folder} could not be written: {error}; what was recorded "
                "before is intact. Free some space, then resume the run with --resume"
            ) from error

    def _rewrite(self, name: str, values: Sequence[Any]) -> None:
        write_text(self.folder / name, "".join(json_line(value) for value in values))


class SilentWriter(RunWriter):
    """In the other processes of a run: it has the interface and writes nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = None
        self._last_step = -1

    def _append(self, name: str, value: Mapping[str, Any]) -> None: ...
    def _write_table(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None: ...
    def summary(self, values: Mapping[str, Any]) -> None: ...
    def truncate_after(self, step: int) -> None: ...
    def sync(self) -> None: ...


def _delete_from(folder: Path, prefix: str, first: int) -> None:
    """Delete the numbered files of a folder from a number on."""
    for path in folder.glob(f"{prefix}*.parquet"):
        if int(path.stem.removeprefix(prefix)) >= first:
            path.unlink()


def _lock_folder(folder: Path) -> int:
    """A lock file's descriptor, locked until the process ends where the system has such locks."""
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RecipeError(
            f"output = {str(folder)!r} cannot be written: {error.strerror}; name a folder that can"
        ) from error
    try:
        import fcntl
    except ImportError:
        return descriptor
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RecipeError(
            f"output = {str(folder)!r}: another process is writing this run; wait for it, end it, "
            "or name another folder"
        ) from None
    return descriptor


def refuse_in_use(folder: Path) -> None:
    """Raises RecipeError where a process is writing the run in `folder`."""
    os.close(_lock_folder(folder))
