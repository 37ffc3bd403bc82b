"""Rows as tasks: a prompt with the place of its row, its gold answer accepted by its verifier.

What is checked of each row by itself; a file in memory and a stream share it. Left out: what is
checked over all rows (dataset.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.environments.checks import (
    check_columns,
    check_values,
    first_of,
    rejected_answers,
    rejected_message,
)
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.prompt_rows import prompt_of
from groupwise.environments.readers import Row, Source, is_file, read_rows
from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Verifier


@dataclass(slots=True)
class Task:
    """A prompt and the row it came from."""

    where: str
    prompt: Prompt


def tasks_of(
    rows: Sequence[Row], settings: DatasetSettings, verifier: Verifier, seed: int
) -> list[Task]:
    """The tasks of rows; `RecipeError` naming the first row that cannot be one."""
    for row in rows:
        check_values(row.values, row.where)
    prepared = (settings.prepared(row, seed) for row in rows)
    return [Task(row.where, prompt_of(row, settings, verifier)) for row in prepared]


def check_tasks(tasks: Sequence[Task], settings: DatasetSettings, verifier: Verifier) -> None:
    """`RecipeError` naming the first row without a column that the verifier needs."""
    prompts = [task.prompt for task in tasks]
    check_columns(verifier, prompts, settings.where, [task.where for task in tasks])


def check_splits(settings: DatasetSettings) -> None:
    """`RecipeError` where a split or a configuration is named of a file, which has none."""
    given = settings.model_fields_set
    if settings.config is not None and is_file(settings.path):
        raise RecipeError(
            f"environment.config = {settings.config!r}: {settings.path!r} is one file and has no "
            "configurations; leave config out"
        )
    for field, path in (
        ("split", settings.path),
        ("heldout_split", settings.heldout_path or settings.path),
    ):
        value = getattr(settings, field)
        if field in given and value not in (None, "train") and is_file(path):
            raise RecipeError(
                f"environment.{field} = {value!r}: {path!r} is one file and has no splits; name "
                "another file in heldout_path, or set heldout_share"
            )


def accepted(tasks: list[Task], settings: DatasetSettings, verifier: Verifier) -> list[Task]:
    """The tasks whose gold answer the verifier accepts; refused or dropped otherwise."""
    rejected = rejected_answers(verifier, [task.prompt for task in tasks])
    if rejected and settings.on_bad_answer == "refuse":
        rows = [
            f"{tasks[position].where} (answer {_raw(tasks[position], settings)!r:.60}): {reason}"
            for position, reason in rejected
        ]
        raise RecipeError(
            f"{settings.where}: {rejected_message(rows)}. Correct them, or set "
            'on_bad_answer = "drop"'
        )
    bad = {position for position, _ in rejected}
    return [task for position, task in enumerate(tasks) if position not in bad]


def heldout_rows(settings: DatasetSettings, seed: int) -> list[Row]:
    """The rows of `heldout_path` or `heldout_split`; none where neither is set."""
    if settings.heldout_path is None and settings.heldout_split is None:
        return []
    path = settings.heldout_path or settings.path
    field = "environment.heldout_path" if settings.heldout_path else "environment.path"
    split = settings.heldout_split or settings.split
    if (path, split) == (settings.path, settings.split):
        given = "heldout_path" if settings.heldout_path else "heldout_split"
        raise RecipeError(
            f"environment.{given} = {getattr(settings, given)!r} is the training data itself; "
            "held-out rows differ"
        )
    return read_rows(Source(path, settings.config, split, seed, field))


def refuse_overlap(
    settings: DatasetSettings, exact: Sequence[tuple[str, str]], near: Sequence[tuple[str, str]]
) -> None:
    """`RecipeError` naming rows that are in both; pairs are (place in training, in held-out)."""
    parts = []
    for pairs, how in ((exact, "also"), (near, "nearly")):
        held = dict[str, str]()
        for place, other in pairs:
            held.setdefault(other, place)
        if held:
            shown = first_of([f"{other} = {place}" for other, place in held.items()])
            parts.append(f"{len(held)} held-out prompts are {how} in the training data ({shown})")
    if parts:
        raise RecipeError(
            f'{settings.where}: {" and ".join(parts)}; set on_overlap = "drop" to take them out '
            'of training, or "allow"'
        )


def _raw(task: Task, settings: DatasetSettings) -> Any:
    """The answer as its column has it, before `answer_pattern`."""
    return task.prompt.columns.get(settings.answer, task.prompt.answer)
