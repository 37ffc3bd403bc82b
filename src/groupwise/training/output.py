"""Which folder a run is written to, and whether it starts, resumes, or is already done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import RecipeError
from groupwise.learner import TrainingSettings
from groupwise.recipe import Recipe, validated
from groupwise.records import Run, RunWriter, describe_machine, recipe_hash, refuse_in_use
from groupwise.records.compare import flatten
from groupwise.records.files import check_place, json_line
from groupwise.records.reader import check_layout
from groupwise.texts import from_json, from_toml

# What may differ between a run and its continuation: how far it goes, what is looked at, and where
# it computes.
_FREE_ON_RESUME = (
    "training.steps", "evaluation.", "checkpoints.", "record.",
    "compute.processes", "compute.deadline_seconds", "compute.cluster", "compute.samplers",
    "compute.verifiers", "compute.silence_seconds", "compute.restarts",
)  # fmt: skip


class Purpose(NamedTuple):
    """Why a run has to be the same: what follows the fields, and the data, that differ."""

    recipe: str
    data: str


RESUME = Purpose(
    "A resumed run equals the unbroken one only with the same recipe (free: training.steps, "
    "[evaluation], [checkpoints], [record], compute.processes); name another output, or give the "
    "recipe it was made with",
    "the rest of the run would not be the rest of that run. Restore the data, or name another "
    "output",
)
REPLAY = Purpose(
    "Its schedule is repeated by the same recipe alone (free: training.steps up to its own, "
    "[evaluation], [checkpoints], [record]); give that recipe, or name the folder of a run of "
    "this one",
    "its schedule is repeated on the same data alone. Restore the data, or name the folder of a "
    "run on these",
)


def default_output(recipe_name: str, parent: Path = Path("runs")) -> Path:
    """`runs/<recipe>-<number>`, the first number that is free."""
    folders = (parent / f"{recipe_name}-{number}" for number in count(1))
    return next(folder for folder in folders if not folder.exists())


def run_folder(
    source: Path | Mapping[str, Any], output: str | Path | None, *, resume: bool, overwrite: bool
) -> tuple[Path, bool]:
    """The folder that a recipe's run goes to, and whether the run in it is resumed.

    Raises RecipeError.
    """
    if output is None and resume:
        raise RecipeError("resume needs the folder of the run; name it: output (--output)")
    if output is None:
        output = default_output("run" if isinstance(source, Mapping) else source.stem)
    folder = Path(output)
    return folder, claim(folder, resume=resume, overwrite=overwrite)


def open_record(
    folder: Path, recipe_text: str, about: Mapping[str, Any], *, resuming: bool
) -> RunWriter:
    """The record in `folder`, reopened or begun; a run that is there then is deleted first."""
    if resuming:
        return RunWriter.reopen(folder)
    if holds_run(folder):
        clear(folder)
    machine = describe_machine(recipe_hash=recipe_hash(recipe_text), **about)
    return RunWriter.create(folder, recipe_text, machine)


def holds_run(folder: Path) -> bool:
    return (folder / "recipe.toml").is_file()


def claim(folder: Path, *, resume: bool, overwrite: bool) -> bool:
    """Decide what becomes of `folder`. True if the run in it is to be resumed.

    A folder that holds a run is refused without `resume` or `overwrite`; one that holds anything
    else is refused always, so nothing of the user's is written over. Raises RecipeError.
    """
    if resume and overwrite:
        raise RecipeError("resume and overwrite are both asked for; give one of the two")
    if not folder.exists():
        check_place(folder, "output")
        return False
    if not folder.is_dir():
        raise RecipeError(f"output = {str(folder)!r} is a file; name a folder")
    if holds_run(folder):
        if resume:
            check_layout(folder)
        refuse_in_use(folder)
        if resume or overwrite:
            return resume
        raise RecipeError(
            f"output = {str(folder)!r} already holds a run; resume it (--resume), replace it "
            f"(--overwrite), or name another folder, for example {_next_to(folder)}"
        )
    if any(not _left_by_a_start(entry) for entry in folder.iterdir()):
        raise RecipeError(
            f"output = {str(folder)!r} is not empty and holds no run; name another folder, for "
            f"example {_next_to(folder)}"
        )
    return False


def clear(folder: Path) -> None:
    """Delete the run in `folder`; it is moved aside first, so no half of it stays in its place."""
    refuse_in_use(folder)
    aside = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside)


def _left_by_a_start(entry: Path) -> bool:
    """The lock, or the empty folder, of a start that failed."""
    if entry.name == "rollouts" and entry.is_dir():
        return not any(entry.iterdir())
    return entry.name == ".lock"


def _next_to(folder: Path) -> str:
    return repr(str(default_output(folder.absolute().name or "run", folder.parent)))


def same_run(folder: Path, recipe: Recipe, purpose: Purpose = RESUME) -> dict[str, list[Any]]:
    """Refuse to resume (or to repeat) a run under a recipe that would have made another run.

    Returns the free fields that differ from the recorded recipe, each with its value there and now
    (None where it is unset). Raises RecipeError naming the other fields that differ.
    """
    before = _with_schedule(_written_today(Run(folder).recipe))
    now = _with_schedule(from_toml(recipe.to_toml()))
    changed = changed_fields(before, now, _FREE_ON_RESUME)
    if changed:
        raise RecipeError(
            f"{str(folder)!r} was made by another recipe: {', '.join(changed)}. {purpose.recipe}"
        )
    names = sorted(before.keys() | now.keys())
    return {n: [before.get(n), now.get(n)] for n in names if before.get(n) != now.get(n)}


def _written_today(recorded: dict[str, Any]) -> dict[str, Any]:
    """A recorded recipe with the fields that came since, at their defaults."""
    if "stages" in recorded:
        return recorded
    return from_toml(validated(recorded, Recipe).to_toml())


def changed_fields(
    before: Mapping[str, Any], now: Mapping[str, Any], free: tuple[str, ...]
) -> list[str]:
    """The dotted fields that differ, with both values; those that begin with `free` may."""
    return [
        f"{key} ({before.get(key, 'unset')!r} there, {now.get(key, 'unset')!r} now)"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not key.startswith(free)
    ]


def _with_schedule(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's fields by dotted name, with the length of a decaying schedule spelled out: more
    steps would change the rate of every update, so they need `training.schedule_updates`."""
    fields = flatten(recipe)
    training = TrainingSettings.model_validate(recipe.get("training", {}))
    if training.schedule != "constant":
        fields["training.schedule_updates"] = training.schedule_length
    return fields


def same_data(folder: Path, now: Mapping[str, Any], purpose: Purpose = RESUME) -> list[str]:
    """Refuse to resume (or to repeat) the run in `folder` with other data or another template.

    `now` has the entries of `environment.json` that are compared; one that either side lacks is
    passed over. Returns what else has changed, in words: verifiers, tools, facts of the data.
    Raises RecipeError.
    """
    try:
        before = from_json((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{str(folder / 'environment.json')!r} cannot be read, and says which data the run was "
            f"made with: {error}. Restore it, or name another output"
        ) from error
    there, here = before.get("environment") or {}, from_json(json_line(now["environment"]))
    data_there, data_here = _data_of(there), _data_of(here)
    data = [
        f"{key} {data_there[key]!s:.60} there, {data_here[key]!s:.60} now"
        for key in sorted(data_there.keys() & data_here.keys())
        if data_there[key] != data_here[key]
    ]
    if data:
        raise RecipeError(
            f"{str(folder)!r} was made with other data ({', '.join(data)}): {purpose.data}"
        )
    notes = [
        f"{key} differ from the run's: {there[key]!r:.200} there, {here[key]!r:.200} now"
        for key in sorted(there.keys() & here.keys())
        if there[key] != here[key]
    ]
    if before.get("template_hash", now["template_hash"]) != now["template_hash"]:
        if not now["template_reads_clock"]:
            raise RecipeError(
                f"{str(folder)!r} was made with another tokenizer or chat template: prompts would "
                "have other ids. Restore the model's folder, or name another output"
            )
        notes.append("the chat template writes the date, and it is another day: prompts differ")
    return notes


def _data_of(description: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """The entries that are an environment's data, its sources' too, as `sources.sums.data_hash`."""
    found: dict[str, Any] = {}
    for key, value in description.items():
        if key in ("data_hash", "splits"):
            found[f"{within}{key}"] = value
        elif key == "sources":
            for name, source in value.items():
                found |= _data_of(source, f"{within}sources.{name}.")
    return found
