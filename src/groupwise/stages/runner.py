"""Runs a recipe: a pipeline's stages one after the other, or an ordinary run.

Every check of every stage is made before the first weights load. A stage is finished once its
`lineage.json` is there; on resume finished stages are compared and skipped, the interrupted one
resumes, and the next ones start.
"""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from groupwise.errors import RecipeError
from groupwise.policies import describe_model
from groupwise.recipe import find_recipe, plain_table
from groupwise.records import (
    SUMMARY_KEYS,
    Run,
    RunWriter,
    Value,
    describe_machine,
    open_run,
    text_hash,
)
from groupwise.records.compare import flatten
from groupwise.stages.evaluation import guard_values, heldout_only
from groupwise.stages.output import read_lineage, weights_of, write_lineage
from groupwise.stages.recipe import BASE, Node, Pipeline, is_pipeline, load_pipeline
from groupwise.stages.stage import (
    CheckContext,
    StageContext,
    StageResult,
    differing_tokenizers,
)
from groupwise.training import start
from groupwise.training.callbacks import Callback
from groupwise.training.output import changed_fields, claim, clear, default_output, holds_run
from groupwise.training.preparing import Prepared
from groupwise.training.process import Interrupted


def train(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    *,
    overwrite: bool = False,
    small: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train by a recipe, of one run or of several stages, and return the run's record.

    `recipe` is a file, the name of one that ships, or a table. `overrides` maps dotted fields to
    values. `output` is the run's folder (default `runs/<recipe>-<number>`). With `resume` the run
    in `output` resumes from its newest complete checkpoint and ends equal to one that never
    stopped; on an absent or empty folder it starts afresh, on a finished run it does nothing.
    `overwrite` replaces a run that is there. `small` shrinks the recipe.

    Raises RecipeError (bad input, before weights load), TypeError (not a callback),
    GroupwiseError (a run that failed), Interrupted (SIGINT or SIGTERM; a checkpoint was written
    first).
    """
    source = recipe if isinstance(recipe, Mapping) else find_recipe(str(recipe))
    if not is_pipeline(source):
        return start.train(
            recipe, overrides, output, resume,
            overwrite=overwrite, small=small, callbacks=callbacks,
        )  # fmt: skip
    start.check_callbacks(callbacks)
    pipeline = load_pipeline(source, overrides, small=small)
    name = "run" if isinstance(source, Mapping) else source.stem
    if resume and output is None:
        raise RecipeError("resume needs the folder of the run; name it: output (--output)")
    folder = Path(output) if output is not None else default_output(name)
    resuming = claim(folder, resume=resume, overwrite=overwrite)
    if resuming:
        same_pipeline(folder, pipeline)
    checked = check_pipeline(pipeline)
    text = pipeline.to_toml()
    if resuming:
        writer = RunWriter.reopen(folder)
    else:
        if holds_run(folder):
            clear(folder)
        writer = RunWriter.create(folder, text, describe_machine(recipe_hash=text_hash(text)))
    with writer:
        _Runner(pipeline, checked, writer, folder.absolute(), callbacks).run(resuming)
    return open_run(folder.absolute())


def same_pipeline(folder: Path, pipeline: Pipeline) -> None:
    """Refuse to resume under a recipe that would have made another run. Raises RecipeError."""
    before, now = (
        _dotted(tomllib.loads(text))
        for text in ((folder / "recipe.toml").read_text("utf-8"), pipeline.to_toml())
    )
    changed = changed_fields(before, now, ())
    if changed:
        raise RecipeError(
            f"{str(folder)!r} was made by another recipe: {', '.join(changed[:5])}. A resumed run "
            "equals the unbroken one only with the same recipe; name another output, or give the "
            "recipe it was made with"
        )


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    stages = table.get("stages")
    if not isinstance(stages, list):
        return flatten(table)
    return flatten({**table, "stages": {str(place): each for place, each in enumerate(stages)}})


@dataclass(frozen=True, slots=True)
class Checked:
    """What every stage's check returned, by name, and the guard's."""

    prepared: Mapping[str, Any]
    guard: Prepared | None


def check_pipeline(pipeline: Pipeline) -> Checked:
    """Every check of every stage. No weights are loaded. Raises RecipeError naming the stage."""
    origins, kinds = {BASE: pipeline.model}, dict[str, Any]()
    prepared: dict[str, Any] = {}
    before = BASE
    for node in pipeline.order:
        stage = node.stage
        try:
            origin = stage.model.name if node.start is None else origins[node.start]
            if node.start is None:
                _same_tokenizer(node, origins[before], before)
            context = CheckContext(node.name, origin, dict(origins), dict(kinds))
            prepared[node.name] = stage.check(context)
        except RecipeError as error:
            raise RecipeError(f"stage {node.name!r}: {error}") from error
        origins[node.name], kinds[node.name] = origin, type(stage)
        before = node.name
    if pipeline.guard is None:
        return Checked(prepared, None)
    try:
        guard = heldout_only(pipeline.guard.check(CheckContext("guard", pipeline.model)))
    except RecipeError as error:
        raise RecipeError(f"guard: {error}") from error
    return Checked(prepared, guard)


def _same_tokenizer(node: Node, before: str, whose: str) -> None:
    remote = node.stage.model.trust_remote_code
    own, other = (
        describe_model(name, trust_remote_code=remote).template
        for name in (node.stage.model.name, before)
    )
    different = differing_tokenizers(own, other)
    if different is not None:
        raise RecipeError(
            f"model.name = {node.stage.model.name!r} has another tokenizer than the model of "
            f"{whose!r} before it: {different}; give a model of the same family"
        )


@dataclass
class _Runner:
    """One pipeline in its folder."""

    pipeline: Pipeline
    checked: Checked
    writer: RunWriter
    folder: Path
    callbacks: Sequence[Callback]
    models: dict[str, str] = field(default_factory=dict[str, str])
    hashes: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    guards: dict[str, dict[str, Value]] = field(default_factory=dict[str, "dict[str, Value]"])
    done: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def run(self, resuming: bool) -> None:
        """The stages that are left; however they end, the record says how."""
        self.models[BASE] = self.pipeline.model
        self.writer.event("resumed" if resuming else "started")
        current = ""
        order = self.pipeline.order
        if all(read_lineage(self._place(node.name)) is not None for node in order):
            self._warn(f"{self.folder} already ran its {len(order)} stages: nothing to do")
        try:
            for node in order:
                current = node.name
                self.stage(node)
            current = ""
        except BaseException as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            status = "interrupted" if stopped else "failed"
            self.writer.event(
                status, stage=current, error=str(error), traceback=traceback.format_exc()
            )
            self._summary(status, current)
            if isinstance(error, Interrupted):
                raise Interrupted(
                    error.exit_code - 128,
                    f"stage {current!r}: {str(error).partition('; resume it')[0]}; resume it with "
                    f"--resume --output {self.folder}",
                ) from error
            raise
        finally:
            if self.checked.guard is not None:
                self.checked.guard.environment.close()
        self._summary("finished", "")
        self.writer.event("finished")

    def stage(self, node: Node) -> None:
        """Run, resume or skip one stage."""
        folder = self._place(node.name)
        start = node.stage.model.name if node.start is None else node.start
        model = self.models.get(start, start)
        text = _recipe_text(node)
        parent = {"stage": start, "weights_hash": self._weights(model)}
        found = read_lineage(folder)
        if found is None:
            for callback in self.callbacks:
                callback.on_stage(node.name, node.stage.kind, folder)
            self.writer.event("stage", name=node.name, status="started")
            context = StageContext(
                name=node.name,
                folder=folder,
                model=model,
                models=dict(self.models),
                folders={name: self._place(name) for name in self.done},
                prepared=self.checked.prepared[node.name],
                recipe_text=text,
                callbacks=self.callbacks,
            )
            first = self._guard(start, model)
            result = node.stage.run(context)
            found = self._finish(node, result, first, text, parent)
        else:
            self._compare(node, found, text, parent)
        output = found["result"]["output"]
        self.models[node.name] = model if output is None else str(self.folder / output)
        self.guards[self.models[node.name]] = {
            name: value for name, value in found["result"]["last"].items() if "guard/" in name
        }
        self.done[node.name] = found["result"]
        summary = open_run(folder).summary
        self.steps += int(summary["steps"])
        self.tokens += int(summary["tokens"] or 0)
        self.seconds += float(summary["seconds"] or 0.0)

    def _finish(
        self,
        node: Node,
        result: StageResult,
        first: Mapping[str, Value],
        text: str,
        parent: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Measures the guard, writes the lineage and records the stage; returns the lineage."""
        output = None
        last = first
        if result.output is not None:
            output = result.output.relative_to(self.folder).as_posix()
            if node.stage.changes_weights:
                last = self._guard(node.name, str(result.output))
        lineage: dict[str, Any] = {
            "stage": node.name,
            "kind": node.stage.kind,
            "recipe_hash": text_hash(text),
            "data_hash": result.data_hash,
            "parent": dict(parent),
            "weights_hash": None if output is None else weights_of(str(result.output)),
            "result": {
                "name": node.name,
                "kind": node.stage.kind,
                "status": "finished",
                "first": {**result.first, **first},
                "last": {**result.last, **last},
                "output": output,
            },
        }
        write_lineage(self._place(node.name), lineage)
        self.writer.event("stage", name=node.name, status="finished", lineage=lineage)
        return lineage

    def _compare(
        self, node: Node, found: Mapping[str, Any], text: str, parent: Mapping[str, Any]
    ) -> None:
        """Raises RecipeError where a finished stage is not what its lineage says."""
        output = found["result"]["output"]
        weights = None if output is None else weights_of(str(self.folder / output))
        for what, before, now in (
            ("recipe", found["recipe_hash"], text_hash(text)),
            ("starting weights", found["parent"]["weights_hash"], parent["weights_hash"]),
            ("model", found["weights_hash"], weights),
        ):
            if before != now:
                raise RecipeError(
                    f"stage {node.name!r} is finished, but its {what} changed since "
                    f"({str(before)[:12]} then, {str(now)[:12]} now): the rest would not be the "
                    "rest of that pipeline. Restore it, or start again with --overwrite"
                )

    def _guard(self, name: str, model: str) -> dict[str, Value]:
        """The guard's values of a model, measured once."""
        if self.checked.guard is None or self.pipeline.guard is None:
            return {}
        if model not in self.guards:
            result = self.pipeline.guard.measure(self.checked.guard, model)
            self.guards[model] = guard_values(result)
            self.writer.event("guard", name=name, values=self.guards[model])
        return self.guards[model]

    def _weights(self, model: str) -> str | None:
        if model not in self.hashes:
            self.hashes[model] = weights_of(model)
        return self.hashes[model]

    def _warn(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_warning(message)

    def _place(self, name: str) -> Path:
        return self.folder / "stages" / name

    def _summary(self, status: str, current: str) -> None:
        empty: dict[str, Any] = {"first": {}, "last": {}, "output": None}
        stages = [
            self.done.get(
                node.name,
                {
                    "name": node.name,
                    "kind": node.stage.kind,
                    "status": status if node.name == current else "pending",
                    **empty,
                },
            )
            for node in self.pipeline.order
        ]
        finished = [each for each in stages if each["status"] == "finished"]
        first = finished[0]["first"] if finished else {}
        last = finished[-1]["last"] if finished else {}
        self.writer.summary(
            {
                **dict.fromkeys(SUMMARY_KEYS),
                "status": status,
                "steps": self.steps,
                "seconds": round(self.seconds, 3),
                "tokens": self.tokens,
                **{
                    f"eval/{name}_{when}": values.get(f"guard/{name}")
                    for name in ("accuracy", "greedy", "heldout")
                    for when, values in (("first", first), ("last", last))
                },
                "stages": stages,
            }
        )


def _recipe_text(node: Node) -> str:
    """A stage's own `recipe.toml`."""
    return tomli_w.dumps({"name": node.name, "kind": node.stage.kind, **plain_table(node.stage)})
