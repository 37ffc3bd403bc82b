"""What a stage leaves in its folder: the model, whole or not at all, the lineage, the record."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.evaluation import EvaluationResult
from groupwise.instants import passed
from groupwise.policies import Policy, has_adapter, save_pretrained
from groupwise.policies.source import adapter_folder, base_of, source_of
from groupwise.records import SUMMARY_KEYS, text_hash
from groupwise.records.files import file_hash, fsync_file, fsync_folder, write_json
from groupwise.stages.stage import StageContext
from groupwise.texts import from_json
from groupwise.training.output import holds_run, open_record

MODEL, LINEAGE = "model", "lineage.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def write_model(policy: Policy, folder: Path) -> Path:
    """Write a policy as `folder/model`, an adapter merged into its weights; returns its path.

    Whole models, because a next stage may put an adapter of its own over it.
    """
    merge = has_adapter(policy.model)
    return write_whole(folder, lambda target: save_pretrained(policy, target, merge=merge))


def write_whole(folder: Path, write: Callable[[Path], object]) -> Path:
    """`folder/model` with what `write` writes into the folder that it gets, whole or not at all.

    A folder that is there is of an earlier try of the same stage, and whole: it stays.
    """
    target, temporary = folder / MODEL, folder / f".{MODEL}-writing"
    if target.is_dir():
        return target
    if temporary.exists():
        shutil.rmtree(temporary)
    write(temporary)
    for path in temporary.rglob("*"):
        if path.is_file():
            fsync_file(path)
    fsync_folder(temporary)
    passed("model")
    os.rename(temporary, target)
    fsync_folder(folder)
    return target


def weights_of(model: str) -> str | None:
    """SHA-256 over a model's weight files, its base's too under an adapter.

    None for a hub id whose files are not on this machine.
    """
    own = adapter_folder(model)
    sources = [source_of(model)] if own is None else [str(own), base_of(own)]
    lines = []
    for source in sources:
        folder = Path(source) if Path(source).is_dir() else _snapshot(source)
        if folder is None:
            return None
        files = sorted({file for pattern in _WEIGHTS for file in folder.glob(pattern)})
        lines += [f"{file.name} {file_hash(file)}\n" for file in files]
    return text_hash("".join(lines))


def _snapshot(hub_id: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def write_lineage(folder: Path, lineage: Mapping[str, Any]) -> None:
    """Write `lineage.json`; a stage with one is finished."""
    write_json(folder / LINEAGE, dict(lineage))


def read_lineage(folder: Path) -> dict[str, Any] | None:
    """A finished stage's lineage; None where the stage has not finished.

    Raises RecipeError where it is damaged, or its `output` is not the stage's own model folder.
    """
    path = folder / LINEAGE
    if not path.is_file():
        return None
    own = f"stages/{folder.name}/{MODEL}"
    try:
        found: dict[str, Any] = from_json(path.read_text(encoding="utf-8"))
        output = found["result"]["output"]
    except (ValueError, LookupError, TypeError) as error:
        raise RecipeError(f"{path} is damaged: {error!r}; start again with --overwrite") from error
    if output not in (None, own) or (folder / MODEL).is_symlink():
        raise RecipeError(
            f"{path}: output = {output!r} is not the stage's own folder {own!r}; a model from "
            "elsewhere is not read. Restore it, or start again with --overwrite"
        )
    return found


def clear_half_start(folder: Path) -> None:
    """Remove what a start that was killed left of a record; a run has a recipe and stays."""
    if not holds_run(folder):
        for name in ("environment.json", "metrics.jsonl", "events.jsonl"):
            (folder / name).unlink(missing_ok=True)


def record_at_once(
    context: StageContext, about: Mapping[str, Any], result: EvaluationResult | None = None
) -> None:
    """The whole record of a stage without steps, with its evaluation where it has one.

    What a killed try of the stage left is replaced.
    """
    values = {} if result is None else dict(result.metrics)
    names = ("accuracy", "greedy", "heldout")
    with open_record(context.folder, context.recipe_text, about, resuming=False) as writer:
        if result is not None:
            writer.evaluation(0, values, rows=result.rows)
        writer.summary(
            {
                **dict.fromkeys(SUMMARY_KEYS),
                **{f"eval/{name}_last": values.get(f"eval/{name}") for name in names},
                "eval/last": values,
                "status": "finished",
                "steps": 0,
            }
        )
