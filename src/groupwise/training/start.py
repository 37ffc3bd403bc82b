"""A run from a recipe: it starts, resumes from a checkpoint, or is already done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from groupwise.checkpoints import (
    checkpoint_steps,
    clean_leftovers,
    damage,
    load_checkpoint,
    prune,
    restore_training_state,
)
from groupwise.distributed import Ranks, joined, world_size
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.recipe import Recipe, find_recipe, load_recipe
from groupwise.records import (
    Run,
    RunWriter,
    SilentWriter,
    open_run,
    recipe_hash,
    text_hash,
)
from groupwise.records.files import json_line
from groupwise.texts import counted
from groupwise.training.auditing import audit_before, audit_warnings
from groupwise.training.callbacks import Callback
from groupwise.training.loggers import loggers_of
from groupwise.training.output import REPLAY, open_record, run_folder, same_data, same_run
from groupwise.training.planned import record_plan
from groupwise.training.preparing import Prepared, check_several, prepare
from groupwise.training.process import Interrupted, Interruption, kept_directory
from groupwise.training.schedules import read_schedule
from groupwise.training.session import Session, check_agreement, open_session
from groupwise.training.train import Loop
from groupwise.training.watchdog import Watchdog


def train(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    *,
    overwrite: bool = False,
    small: bool = False,
    replay_schedule: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    attach: Callable[[Session, RunWriter], None] | None = None,
) -> Run:
    """Train by a recipe of one run and return its record.

    Arguments and errors are those of `groupwise.train`, which takes pipelines as well. `attach` may
    replace a new session's sampler and what scores its rollouts.
    """
    check_callbacks(callbacks)
    source = recipe if isinstance(recipe, Mapping) else find_recipe(str(recipe))
    resolved = load_recipe(source, overrides, small=small)
    if attach is None:
        refuse_cluster(resolved)
    check_several(resolved, world_size(resolved.compute.processes))
    callbacks = [*callbacks, *loggers_of(resolved.record)]
    replayed = None if replay_schedule is None else Path(replay_schedule)
    with joined(resolved.compute, resolved.model.device, resolved.to_toml()) as ranks:
        ranks.same("a recipe with the hash", recipe_hash(resolved.to_toml()))
        folder, resuming = ranks.first(
            lambda: run_folder(source, output, resume=resume, overwrite=overwrite)
        )
        return _train(
            resolved,
            folder,
            resuming,
            resume and not resuming,
            replayed,
            callbacks if ranks.leads else (),
            attach,
            ranks,
        )


def _train(
    resolved: Recipe,
    folder: Path,
    resuming: bool,
    nothing_to_resume: bool,
    replayed: Path | None,
    callbacks: Sequence[Callback],
    attach: Callable[[Session, RunWriter], None] | None,
    ranks: Ranks,
) -> Run:
    """The run in its folder, on every rank. `replayed` is the run whose schedule it follows."""
    schedule = None if replayed is None else read_schedule(replayed, resolved)
    # A reward function or a tool may change the working directory.
    place = ranks.first(folder.absolute)

    def warn(message: str) -> None:
        for callback in callbacks:
            callback.on_warning(message)

    changed = None
    if resuming:
        changed = ranks.first(lambda: same_run(folder, resolved))
        run = open_run(place)
        if _finished(run, resolved.training.steps):
            ran, asked = run.summary["steps"], resolved.training.steps
            more = f", more than training.steps = {asked}" if ran > asked else ""
            warn(f"{folder} already ran its {counted(ran, 'step')}{more}: nothing to do")
            return run
    prepared = ranks.together(lambda: prepare(resolved))
    ranks.same("data with the hash", text_hash(json_line(_identity(prepared))))
    changes = ranks.first(lambda: same_data(place, _identity(prepared))) if resuming else []
    if schedule is not None and replayed is not None and replayed != folder:
        changes += same_data(replayed, _identity(prepared), REPLAY)
    for callback in callbacks:
        callback.on_start(prepared, place)
    if nothing_to_resume:
        warn(f"no run in {folder} to resume: starting a new one")
    audited = None
    if resolved.environment.audit and not resuming and ranks.leads:
        with kept_directory():
            audited = audit_before(prepared.environment, prepared.model.template, warn)
    warnings = [
        *(("audit", warning) for warning in audit_warnings(audited)),
        *(("resume", change) for change in changes),
    ]
    about = {
        **_identity(prepared),
        "audit": audited,
        "model": prepared.model.name,
        "algorithm": resolved.algorithm.to_table(),
    }
    with _record(place, resolved.to_toml(), about, resuming, ranks) as writer:
        found = ranks.first(lambda: checkpoint_to_resume(writer)) if resuming else None
        record_plan(prepared, writer)
        session = ranks.together(lambda: open_session(prepared, schedule, ranks))
        try:
            if attach is not None:
                attach(session, writer)
            notes = _restore(session, writer, found)
            summary = _run(session, writer, changed, callbacks, notes, warnings)
        finally:
            session.close()
        for callback in callbacks:
            callback.on_end(summary, place)
    return open_run(place)


def _record(
    place: Path, text: str, about: Mapping[str, Any], resuming: bool, ranks: Ranks
) -> RunWriter:
    """Rank 0's record; the others write nothing."""
    made: list[RunWriter] = []
    ranks.first(lambda: made.append(open_record(place, text, about, resuming=resuming)))
    return made[0] if made else SilentWriter(place)


def refuse_cluster(recipe: Recipe) -> None:
    """Raises RecipeError where a run is to be placed on a cluster, which is not done here."""
    if recipe.compute.cluster is not None:
        raise RecipeError(
            f"compute.cluster = {recipe.compute.cluster!r}: `groupwise train` and "
            "groupwise.cluster.train place a recipe of one run (no pipeline) on a cluster; use one "
            "of them, or leave the field out"
        )


def check_callbacks(callbacks: Any) -> None:
    """Raises TypeError for anything but a list of callbacks."""
    if not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks = {callbacks!r}; give a list of them")
    for place, callback in enumerate(callbacks):
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks[{place}] = {callback!r}; give an object of a class made from "
                "groupwise.Callback"
            )


def _finished(run: Run, steps: int) -> bool:
    if not (run.folder / "summary.json").is_file():
        return False
    return run.summary["status"] == "finished" and int(run.summary["steps"]) >= steps


def _identity(prepared: Prepared) -> dict[str, Any]:
    """What of the data, the verifiers and the template is recorded, and is compared on resume."""
    template = prepared.model.template
    return {
        "environment": prepared.environment.describe(),
        "template_hash": template.hash,
        "template_reads_clock": template.reads_clock,
    }


def _run(
    session: Session,
    writer: RunWriter,
    changed: Mapping[str, Any] | None,
    callbacks: Sequence[Callback],
    notes: Sequence[str],
    warnings: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """The remaining steps; however they end, the record says how. Returns the summary.

    `changed` are the fields that a resume changed, None where the run starts.
    """
    loop, recipe = Loop(session, writer, callbacks), session.recipe

    def say(message: str) -> None:
        for callback in callbacks:
            callback.on_warning(message)

    try:
        with (
            Interruption(recipe.checkpoints.grace_seconds) as interruption,
            Watchdog(writer, recipe.record.stalled_after if session.ranks.leads else 0.0, say),
            session.ranks.named(),
        ):
            writer.event(
                "started" if changed is None else "resumed",
                step=session.first_step,
                threads=torch.get_num_threads(),
                **({"processes": session.ranks.size} if session.ranks.size > 1 else {}),
                **({"changed": changed} if changed else {}),
                **getattr(session.sampler, "facts", dict)(),
            )
            check_agreement(session)
            for callback in callbacks:
                callback.on_ready(session)
                for note in (*notes, *session.notes()):
                    callback.on_warning(note)
            for about, warning in warnings:
                loop.report.warn(warning, about=about)
            loop.run(interruption)
        summary = loop.report.summary("finished")
        writer.summary(summary)
        writer.event("finished", steps=summary["steps"])
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        writer.ended_early(status, error, loop.report.summary(status))
        raise
    return summary


def _restore(
    session: Session, writer: RunWriter, found: tuple[Path | None, list[str]] | None
) -> list[str]:
    """Weights, optimiser and counters of the checkpoint that was found (see `checkpoint_to_resume`;
    None for a new run), and the record cut to it. Returns what a person should know."""
    notes: list[str] = []
    if found is not None:
        path, notes = found
        step = 0
        if path is not None:
            checkpoint = load_checkpoint(path, hashed=True)
            step = checkpoint.step
            session.load_counters(checkpoint.state, step)
            restore_training_state(session.policy.model, session.learner.optimizer, checkpoint)
            session.load_extra_tensors(checkpoint.extra_tensors)
            if not notes and session.ranks.leads:  # killed between a save and its pruning
                kept = session.recipe.checkpoints
                prune(path.parent, **kept.retention)
        session.ranks.first(lambda: writer.truncate_after(step))
        notes += missing_rollouts(writer.folder)
        notes.append(f"resumed at step {step}")
    session.load_sampler(session.policy.version)
    session.collector.load(session.policy, session.policy.version)
    return notes


def checkpoint_to_resume(writer: RunWriter) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint that the record reaches, and what a person should know.

    Without a checkpoint the run starts again. Raises GroupwiseError where one was written and none
    can be used.
    """
    folder = writer.folder / "checkpoints"
    clean_leftovers(folder)
    recorded, notes = writer.steps_recorded, list[str]()
    steps = checkpoint_steps(folder)
    for step in reversed(steps):
        path = folder / f"step_{step:06d}"
        if step > recorded:
            notes.append(f"{path.name} skipped: metrics.jsonl holds {recorded} whole steps")
            continue
        wrong = damage(path)
        if wrong is None:
            return path, notes
        notes.append(f"{path.name} skipped: {wrong}")
    saved = [event.get("path") for event in open_run(writer.folder).events("checkpoint")]
    if saved and not steps:
        notes.append(f"{folder} holds no checkpoint, and the record names {saved[-1]}")
    if steps or saved:
        raise GroupwiseError(
            f"{writer.folder} cannot be resumed: {'; '.join(notes)}. Nothing in it was changed; "
            "start it again with --overwrite, or name another output"
        )
    if recorded:
        notes.append(
            f"the {recorded} recorded steps are dropped: the run ended before its first checkpoint"
        )
    return None, notes


def missing_rollouts(folder: Path) -> list[str]:
    """What is said where files of rollouts are not there."""
    missing = Run(folder).steps_without_rollouts()
    if not missing:
        return []
    shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
    return [f"the record has no rollouts of {len(missing)} of its steps: {shown}"]
