"""Checkpoints: whole or not at all, never fewer than one, the best kept.

A checkpoint is a folder `step_NNNNNN` (after N steps) of safetensors and JSON, no pickle. It is
filled under a temporary name, every file is forced to the disk, and then it is renamed: a killed
save leaves nothing that looks like a checkpoint. A manifest with sizes, hashes and the run's id
tells a damaged one and one of another run; the newest complete one is chosen, and old ones are
deleted only after a newer one is whole.

A run of several processes writes weights and moments by `torch.distributed.checkpoint` instead,
every rank its share; any number of processes resumes from either form.

Of a model that is partly frozen (an adapter over its base) it holds what trains; the frozen rest is
known by its hash, which the caller puts into the state. There is no random-number state: noise is
keyed (`randomness.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from groupwise.distributed import ALONE, Ranks
from groupwise.distributed.shards import INDEX, save_shards
from groupwise.errors import GroupwiseError
from groupwise.instants import passed
from groupwise.records.files import file_hash, fsync_file, fsync_folder
from groupwise.tensor_files import check_plain, load_tensors, pack, save_tensors, unpack
from groupwise.texts import counted, from_json

if TYPE_CHECKING:
    from torch import Tensor

_FORMAT, _SHARDED = 1, 2
_FILES = {f"{name}.safetensors" for name in ("model", "optimizer", "extra")}
_FILES |= {"optimizer.json", "state.json"}
_SHARDED_FILES = {"extra.safetensors", "optimizer.json", "state.json", INDEX}
_MISREAD = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""What reading a file of another form raises."""
_TEMPORARY, _DELETING = ".saving-", ".deleting-"


class CheckpointWarning(UserWarning):
    """A checkpoint that is damaged, or an old one that could not be deleted."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in memory, on the CPU: what `save_checkpoint` was given.

    Of a `sharded` one the weights are still in its files, and the optimiser's state is without
    its tensors.
    """

    path: Path
    step: int
    model_state: dict[str, Tensor]
    optimizer_state: Any
    extra_tensors: dict[str, Tensor]
    state: dict[str, Any]
    metrics: dict[str, float | int | None]
    sharded: bool = False


def save_checkpoint(
    folder: str | Path,
    step: int,
    *,
    model_state: Mapping[str, Tensor],
    optimizer_state: Any = None,
    state: Mapping[str, Any],
    extra_tensors: Mapping[str, Tensor] | None = None,
    metrics: Mapping[str, float | int | None] | None = None,
    ranks: Ranks = ALONE,
) -> Path:
    """Write the checkpoint after `step` steps as `folder/step_NNNNNN`; returns its path.

    `optimizer_state` is any nesting of mappings, sequences, numbers, texts and tensors. `state` is
    JSON-able with text keys: schedule, cursor, counters, algorithm state, versions. `metrics` are
    what `best` is chosen by. Where a complete checkpoint of that step exists it stays, as the same
    step of a run is the same state; a damaged one is replaced. Several `ranks` all call it.

    Raises GroupwiseError where the disk is full (nothing is left behind, older ones are intact),
    TypeError for a state that would not come back as it is.
    """
    from safetensors import SafetensorError

    folder = Path(folder)
    target = folder / _name(step)
    if ranks.first(lambda: is_complete(target)):
        return target
    extra = dict(extra_tensors or {})
    check_plain(state, "state")
    tensors: dict[str, Tensor] = {}
    packed = pack(optimizer_state, "", tensors)
    files = {"model": model_state, "optimizer": tensors, "extra": extra}
    groups = list(files.values())
    temporary = folder / f"{_TEMPORARY}{_name(step)}"
    shards: dict[str, Tensor] = {}
    if ranks.size > 1:
        for kind in ("model", "optimizer"):
            shards |= {f"{kind}.{name}": tensor for name, tensor in files.pop(kind).items()}

    def start() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        temporary.mkdir()

    def finish() -> None:
        aliases = {
            name: save_tensors(temporary / f"{name}.safetensors", values)
            for name, values in files.items()
        }
        passed("save")
        _write_plain(temporary / "optimizer.json", packed)
        about = {"format": _SHARDED if shards else _FORMAT, "step": step, "aliases": aliases}
        about |= {"metrics": dict(metrics or {}), "state": state}
        _write_plain(temporary / "state.json", about)
        _write_manifest(temporary)
        _remove(target)  # only ever a damaged one
        os.rename(temporary, target)
        fsync_folder(folder)
        passed("saved")

    try:
        ranks.first(start)
        ranks.together(lambda: _check_space(folder, groups))
        if shards:
            save_shards(temporary, shards, ranks)
        ranks.first(finish)
    except (OSError, SafetensorError) as error:
        raise GroupwiseError(
            f"the checkpoint after step {step} could not be written to {folder}: {error}; "
            "older checkpoints are intact"
        ) from error
    finally:
        if ranks.leads:
            _remove(temporary)
    return target


def load_checkpoint(path: str | Path, *, hashed: bool = False) -> Checkpoint:
    """Read a checkpoint folder back; `hashed` = its hashes were compared just before.

    Raises GroupwiseError where it is damaged or of a format that this version cannot read.
    """
    path = Path(path)
    wrong = damage(path, content=not hashed)
    if wrong is not None:
        raise GroupwiseError(f"{path} cannot be used: {wrong}; name another step")
    from safetensors import SafetensorError

    about = _about(path)
    if about["format"] not in (_FORMAT, _SHARDED):
        raise GroupwiseError(
            f"{path} has format {about['format']}; this version reads {_FORMAT} and {_SHARDED}"
        )
    sharded = about["format"] == _SHARDED
    try:
        loaded = {
            name: load_tensors(path / f"{name}.safetensors", aliases)
            for name, aliases in about["aliases"].items()
        }
        packed = from_json((path / "optimizer.json").read_text("utf-8"))
        optimizer_state = packed if sharded else unpack(packed, loaded["optimizer"])
    except (SafetensorError, *_MISREAD) as error:  # the manifest is of these bytes all the same
        raise GroupwiseError(f"{path} cannot be read: {error}; name another step") from error
    return Checkpoint(
        path=path,
        step=about["step"],
        model_state=loaded.get("model", {}),
        optimizer_state=optimizer_state,
        extra_tensors=loaded["extra"],
        state=about["state"],
        metrics=about["metrics"],
        sharded=sharded,
    )


def checkpoint_steps(folder: str | Path) -> list[int]:
    """Steps of the checkpoint folders that are there, complete or not, in rising order."""
    return sorted(
        int(path.name.removeprefix("step_"))
        for path in Path(folder).glob("step_*")
        if path.is_dir() and path.name.removeprefix("step_").isdigit()
    )


def damage(path: Path, *, content: bool = True) -> str | None:
    """What is wrong with a checkpoint: a file that is a link, is not there, or has not the size or,
    with `content`, the hash of the manifest; another step than the folder's name; another run than
    the record beside it. None = whole."""
    try:
        manifest = from_json((path / "manifest.json").read_text("utf-8"))
        files, run, here = manifest["files"], manifest.get("run"), run_of(path.parent)
        if None not in (run, here) and run != here:
            return f"it was written by the run {run}, and this one is {here}"
        needed = _SHARDED_FILES if INDEX in files else _FILES
        for name in sorted(needed | files.keys()):
            file, entry = path / Path(name).name, files[name]
            if file.is_symlink():
                return f"{name} is a symbolic link"
            size = file.stat().st_size
            if size != entry["bytes"]:
                return f"{name} is {size:,} bytes, expected {entry['bytes']:,}"
            if content and file_hash(file) != entry["sha256"]:
                return f"{name} does not match its hash"
    except OSError as error:
        return f"{Path(error.filename).name} cannot be read ({error.strerror})"
    except _MISREAD:
        return "manifest.json is damaged"
    try:
        step = _about(path)["step"]
    except (OSError, *_MISREAD):
        return "state.json is damaged"
    return None if path.name == _name(step) else f"it was written after {counted(step, 'step')}"


def run_of(folder: Path) -> str | None:
    """The id of the run whose checkpoints `folder` holds; None where no record says it."""
    try:
        about = from_json((folder.parent / "environment.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return about.get("run_id") if isinstance(about, dict) else None


def _about(path: Path) -> dict[str, Any]:
    """A checkpoint's `state.json`. Raises one of `_MISREAD` where it has not its form."""
    about = from_json((path / "state.json").read_text("utf-8"))
    for name, kind in (("format", int), ("step", int), ("state", dict)):
        if not isinstance(about[name], kind):
            raise TypeError(f"{name} = {about[name]!r:.60}")
    for name in ("extra",) if about["format"] == _SHARDED else ("model", "optimizer", "extra"):
        about["aliases"][name].items()
    for value in about["metrics"].values():
        float(0 if value is None else value)
    return cast(dict[str, Any], about)


def is_complete(path: Path, *, content: bool = True) -> bool:
    """Whether `damage` finds nothing."""
    return damage(path, content=content) is None


def newest_complete(folder: str | Path) -> Path | None:
    """The newest complete checkpoint of a folder, hashes compared; None if there is none.

    A damaged one that is newer is skipped with a `CheckpointWarning` naming it.
    """
    for step in reversed(checkpoint_steps(folder)):
        path = Path(folder) / _name(step)
        wrong = damage(path)
        if wrong is None:
            return path
        text = f"{path} skipped: {wrong}"
        warnings.warn(text, CheckpointWarning, stacklevel=2)
    return None


def best_checkpoints(
    folder: str | Path, metric: str, direction: Literal["higher", "lower"]
) -> list[Path]:
    """The complete checkpoints with a value of a metric, best first; of equals, the earliest."""
    found: list[tuple[float, Path]] = []
    for step in checkpoint_steps(folder):
        path = Path(folder) / _name(step)
        if not is_complete(path, content=False):
            continue
        value = _about(path)["metrics"].get(metric)
        if value is not None:
            found.append((-float(value) if direction == "higher" else float(value), path))
    return [path for _, path in sorted(found, key=lambda each: each[0])]


def prune(
    folder: str | Path,
    *,
    keep: int,
    best: str | None = None,
    direction: Literal["higher", "lower"] | None = None,
    keep_best: int = 1,
) -> list[Path]:
    """Delete all but the newest `keep` complete checkpoints and the `keep_best` best ones by the
    metric `best`; returns what went.

    Damaged ones older than the newest complete one go too. A deletion that fails is a
    `CheckpointWarning`, never an error; with no complete checkpoint nothing is deleted.
    """
    if keep < 1:
        raise ValueError(f"keep = {keep}; at least 1 checkpoint stays")
    folder = Path(folder)
    paths = [folder / _name(step) for step in checkpoint_steps(folder)]
    complete = [path for path in paths if is_complete(path, content=False)]
    if not complete:
        return []
    stay = set(complete[-keep:])
    if best is not None:
        stay |= set(best_checkpoints(folder, best, direction or "higher")[:keep_best])
    older = paths[: paths.index(complete[-1])]
    return [path for path in older if path not in stay and _delete(path)]


def clean_leftovers(folder: str | Path) -> None:
    """Remove what killed saves and deletions left. Only for the process that owns the run."""
    for pattern in (_TEMPORARY, _DELETING):
        for path in Path(folder).glob(f"{pattern}*"):
            _delete(path)


def _name(step: int) -> str:
    return f"step_{step:06d}"


def _delete(path: Path) -> bool:
    """Delete a checkpoint; renamed first, so a half-deleted one has no checkpoint's name."""
    aside = path.with_name(f"{_DELETING}{path.name.removeprefix(_DELETING)}")
    try:
        os.rename(path, aside)
        shutil.rmtree(aside)
    except OSError as error:
        warnings.warn(f"{path} could not be deleted: {error}", CheckpointWarning, stacklevel=3)
        return False
    return True


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _check_space(folder: Path, groups: Iterable[Mapping[str, Tensor]]) -> None:
    needed = sum(each.numel() * each.element_size() for group in groups for each in group.values())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise GroupwiseError(
            f"a checkpoint needs {_size(needed)} and {folder} has {_size(free)} free; "
            "free some, or lower checkpoints.keep"
        )


def _size(number: int) -> str:
    """Bytes in the largest unit that gives 1 or more, with three digits."""
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= power:
            return f"{number / power:.3g} {unit}"
    return f"{number} bytes"


def _write_manifest(folder: Path) -> None:
    """Force every file to the disk and write down sizes and hashes."""
    files = {}
    for path in sorted(folder.iterdir()):
        fsync_file(path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    about = {"format": _FORMAT, "run": run_of(folder.parent), "files": files}
    _write_plain(folder / "manifest.json", about)
    fsync_file(folder / "manifest.json")
    fsync_folder(folder)


def _write_plain(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
