"""Runs a recipe: a pipeline's stages one after the other, or an ordinary run.

Every check of every stage is made before the first weights load. A stage is finished once its
`lineage.json` is there; on resume finished stages are compared and skipped, the interrupted one
resumes, and the next ones start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from groupwise.distributed import world_size
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.instants import entered_stage, passed
from groupwise.policies import describe_model, is_classifier
from groupwise.recipe import find_recipe, plain_table
from groupwise.records import (
    SUMMARY_KEYS,
    RecordSettings,
    Run,
    RunWriter,
    Value,
    open_run,
    recipe_hash,
    text_hash,
)
from groupwise.records.compare import flatten
from groupwise.records.files import file_hash
from groupwise.stages.evaluation import guard_values, heldout_only
from groupwise.stages.output import (
    MODEL,
    clear_half_start,
    read_lineage,
    weights_of,
    write_lineage,
)
from groupwise.stages.recipe import (
    BASE,
    Node,
    Pipeline,
    is_pipeline,
    load_pipeline,
    named,
    small_settings,
)
from groupwise.stages.stage import DROPPED, ROWS, CheckContext, Stage, StageContext
from groupwise.stages.stage_models import check_use
from groupwise.templates import differing_tokenizers
from groupwise.texts import counted, from_toml
from groupwise.training import start
from groupwise.training.callbacks import Callback
from groupwise.training.notebook import notebook_callbacks
from groupwise.training.output import changed_fields, open_record, run_folder
from groupwise.training.preparing import Prepared
from groupwise.training.process import Interrupted
from groupwise.training.watchdog import Watchdog
from groupwise.verifiers import Verifier


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
) -> Run:
    """Train by a recipe, of one run or of several stages, and return the run's record.

    `recipe` is a file, the name of one that ships, or a table. `overrides` maps dotted fields to
    values. `output` is the run's folder (default `runs/<recipe>-<number>`). With `resume` the run
    in `output` resumes from its newest complete checkpoint and ends equal to one that never
    stopped; on an absent or empty folder it starts afresh, on a finished run it does nothing.
    `overwrite` replaces a run that is there. `small` shrinks the recipe. `replay_schedule` is the
    folder of an asynchronous run of this recipe, which the run repeats bit for bit. In a notebook
    progress and curves show under the cell.

    Raises RecipeError (bad input, before weights load), TypeError (not a callback),
    GroupwiseError (a run that failed), Interrupted (SIGINT or SIGTERM; a checkpoint was written
    first).
    """
    start.check_callbacks(callbacks)
    callbacks = [*callbacks, *notebook_callbacks()]
    source = recipe if isinstance(recipe, Mapping) else find_recipe(str(recipe))
    if not is_pipeline(source):
        return start.train(
            recipe, overrides, output, resume,
            overwrite=overwrite, small=small, replay_schedule=replay_schedule,
            callbacks=callbacks,
        )  # fmt: skip
    if replay_schedule is not None:
        raise RecipeError(
            f"replay_schedule = {str(replay_schedule)!r}: a pipeline has a schedule for each of "
            "its stages; give the recipe of one stage, RUN/stages/NAME/recipe.toml"
        )
    if world_size() > 1:
        raise RecipeError(
            "a pipeline does not run under torchrun: set compute.processes, with which each of its "
            "rl stages starts its own processes, or run the stages' recipes one after the other"
        )
    pipeline = load_pipeline(source, overrides, small=small)
    folder, resuming = run_folder(source, output, resume=resume, overwrite=overwrite)
    if resuming:
        same_pipeline(folder, pipeline)
    prepared = check_pipeline(pipeline, folder)
    notes = _start_notes(source, folder, resume and not resuming, small)
    for note in (*notes, *pipeline.trained_alone):
        for callback in callbacks:
            callback.on_warning(note)
    with open_record(folder, pipeline.to_toml(), {}, resuming=resuming) as writer:
        if resuming:
            writer.truncate_after(0)
        _Runner(pipeline, prepared, writer, folder.absolute(), callbacks).run(resuming)
    return open_run(folder.absolute())


def _start_notes(
    source: str | Path | Mapping[str, Any], folder: Path, missing: bool, small: bool
) -> list[str]:
    """What a person should know before the first stage."""
    notes = [f"no run in {folder} to resume: starting a new one"] if missing else []
    made = small_settings(source) if small else {}
    if made:
        listed = ", ".join(f"{name} = {value!r}" for name, value in made.items())
        notes.append(f"--small sets {listed}")
    return notes


def same_pipeline(folder: Path, pipeline: Pipeline) -> None:
    """Refuse to resume under a recipe that would have made another run. Raises RecipeError."""
    there, here = Run(folder).recipe, from_toml(pipeline.to_toml())
    if is_pipeline(there):  # with the fields that came since, at their defaults
        there = from_toml(load_pipeline(there).to_toml())
    names = [[each["name"] for each in table.get("stages", [])] for table in (there, here)]
    if names[0] != names[1]:
        raise RecipeError(
            f"{str(folder)!r} was made with the stages {', '.join(names[0]) or 'of no pipeline'}, "
            f"and the recipe has {', '.join(names[1])}. A pipeline is not extended on resume: name "
            "another output, and start there from a finished stage's model folder"
        )
    changed = changed_fields(_dotted(there), _dotted(here), ())
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


def check_pipeline(pipeline: Pipeline, folder: Path | None = None) -> dict[str, Any]:
    """Every check of every stage; no weights are loaded. What each returned, by the stage's name,
    and the guard's (or None) as `base`. `folder` is the run's. Raises RecipeError naming the
    stage."""
    origins, kinds = {BASE: pipeline.model}, dict[str, type[Stage]]()
    models = models_left(pipeline, folder or Path("run"))
    prepared: dict[str, Any] = {BASE: None}
    verifiers = dict[str, Verifier]()
    before = BASE
    for node in pipeline.order:
        with named(f"stage {node.name!r}"):
            origin = node.stage.model.name if node.start is None else origins[node.start]
            if node.start is None:
                _same_tokenizer(node, origins[before], before)
            for use in node.stage.model_uses():
                kind = kinds.get(use.stage, Stage)
                check_use(use, kind.leaves_policy, kind.leaves_scorer)
            pending = frozenset(models[name] for name in kinds)
            context = CheckContext(
                node.name, origin, dict(origins), dict(kinds), pending, dict(verifiers)
            )
            context.check_policy(node.start or "", "from")
            found = prepared[node.name] = node.stage.with_models(models).check(context)
            if isinstance(found, Prepared):
                verifiers[node.name] = found.environment.verifier
        origins[node.name], kinds[node.name] = origin, type(node.stage)
        before = node.name
    if pipeline.guard is not None:
        with named("guard"):
            made = pipeline.guard.check(CheckContext("guard", pipeline.model))
            prepared[BASE] = heldout_only(made)
    return prepared


def models_left(pipeline: Pipeline, folder: Path) -> dict[str, str]:
    """The model of each stage once it has run: the folder that it leaves, or what it starts from
    where it leaves none; the top-level model as `base`."""
    found = {BASE: pipeline.model}
    for node in pipeline.order:
        stage = node.stage
        own = stage.changes_weights or stage.leaves_scorer is not None
        start = stage.model.name if node.start is None else found[node.start]
        found[node.name] = str(folder.absolute() / "stages" / node.name / MODEL) if own else start
    return found


def _same_tokenizer(node: Node, before: str, whose: str) -> None:
    remote = node.stage.model.trust_remote_code
    own, other = (
        describe_model(name, trust_remote_code=remote, classifier=True).template
        for name in (node.stage.model.name, before)
    )
    different = differing_tokenizers(own, other)
    if different is not None:
        raise RecipeError(
            f"model.name = {node.stage.model.name!r} has another tokenizer than the model of "
            f"{whose!r} before it: {different}; give a model of the same family"
        )


class _Runner:
    """One pipeline in its folder. `done` is the summary's entry of every stage."""

    def __init__(
        self,
        pipeline: Pipeline,
        prepared: Mapping[str, Any],
        writer: RunWriter,
        folder: Path,
        callbacks: Sequence[Callback],
    ) -> None:
        self.pipeline = pipeline
        self.prepared = prepared
        self.writer = writer
        self.folder = folder
        self.callbacks = callbacks
        self.places = {node.name: folder / "stages" / node.name for node in pipeline.order}
        self.models = {BASE: pipeline.model}
        self.left = models_left(pipeline, folder)
        self.guards: dict[str, dict[str, Value]] = {}
        self.done: dict[str, dict[str, Any]] = {
            node.name: {
                "name": node.name,
                "kind": node.stage.kind,
                "status": "pending",
                "first": {},
                "last": {},
                "output": None,
            }
            for node in pipeline.order
        }

    def run(self, resuming: bool) -> None:
        """The stages that are left; however they end, the record says how."""
        self.writer.event("resumed" if resuming else "started")
        if all(read_lineage(place) is not None for place in self.places.values()):
            self._say(f"{self.folder} already ran its {counted(len(self.done), 'stage')}")
        name = ""
        try:
            with Watchdog(self.writer, _patience(self.pipeline), self._say):
                for node in self.pipeline.order:
                    name = node.name
                    entered_stage(name)
                    self.stage(node)
                    passed("between stages")
        except BaseException as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            self.done[name]["status"] = status = "interrupted" if stopped else "failed"
            self.writer.ended_early(status, error, self._summary(status), stage=name)
            if isinstance(error, Interrupted):
                what = str(error).partition("; resume it")[0]
                raise Interrupted(
                    error.exit_code - 128,
                    f"stage {name!r}: {what}; resume it with --resume --output {self.folder}",
                ) from error
            if isinstance(error, GroupwiseError) and not str(error).startswith("stage "):
                raise type(error)(f"stage {name!r}: {error}") from error
            raise
        finally:
            if self.prepared[BASE] is not None:
                self.prepared[BASE].environment.close()
        self.writer.summary(self._summary("finished"))
        self.writer.event("finished")

    def _say(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_warning(message)

    def stage(self, node: Node) -> None:
        """Run, resume or skip one stage."""
        start = node.stage.model.name if node.start is None else node.start
        model = self.models.get(start, start)
        text = tomli_w.dumps(
            {"name": node.name, "kind": node.stage.kind, **plain_table(node.stage)}
        )
        origin = {
            "stage": node.name,
            "kind": node.stage.kind,
            "recipe_hash": recipe_hash(text),
            "parent": {"stage": start, "weights_hash": weights_of(model)},
            "scorers": {
                use.stage: weights_of(self.left[use.stage]) for use in node.stage.model_uses()
            },
            "sources": self._sources(node),
        }
        found = read_lineage(self.places[node.name])
        if found is None:
            found = self._run(node, model, text, origin)
        else:
            self._compare(found, origin)
        result = self.done[node.name] = found["result"]
        leaves = result["output"] is not None and node.stage.leaves_policy
        self.models[node.name] = str(self.folder / result["output"]) if leaves else model
        self.guards[self.models[node.name]] = {
            name: value for name, value in result["last"].items() if name.startswith("guard/")
        }

    def _run(self, node: Node, model: str, text: str, origin: Mapping[str, Any]) -> dict[str, Any]:
        """Run or resume a stage and measure its guard; its lineage, which is written last."""
        place = self.places[node.name]
        for callback in self.callbacks:
            callback.on_stage(node.name, node.stage.kind, place)
        self.writer.event("stage", name=node.name, status="started")
        context = StageContext(
            name=node.name,
            folder=place,
            model=model,
            models=dict(self.models),
            folders=self.places,
            prepared=self.prepared[node.name],
            recipe_text=text,
            callbacks=self.callbacks,
            guard_prompts=_prompts(self.prepared[BASE]),
        )
        first = last = self._guard(node.name, model)
        clear_half_start(place)
        made = node.stage.with_models(self.left).run(context)
        output = weights = None
        if made.output is not None:
            output, weights = made.output.relative_to(self.folder), weights_of(str(made.output))
            if node.stage.changes_weights:
                last = self._guard(node.name, str(made.output))
        result = {
            **self.done[node.name],
            "status": "finished",
            "first": {**made.first, **first},
            "last": {**made.last, **last},
            "output": None if output is None else output.as_posix(),
        }
        about = {
            "data_hash": made.data_hash,
            "weights_hash": weights,
            "rows_hash": _rows_hash(place),
            "result": result,
        }
        lineage = {**origin, **about}
        write_lineage(place, lineage)
        self.writer.event("stage", name=node.name, status="finished", lineage=lineage)
        return lineage

    def _compare(self, found: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
        """Raises RecipeError where a finished stage is not what its lineage says."""
        output = found["result"]["output"]
        weights = None if output is None else weights_of(str(self.folder / output))
        parent = found["parent"]["weights_hash"], origin["parent"]["weights_hash"]
        for what, (before, now) in {
            "recipe": (found["recipe_hash"], origin["recipe_hash"]),
            "starting weights": parent,
            "model": (found["weights_hash"], weights),
            "rows": (found["rows_hash"], _rows_hash(self.places[found["stage"]])),
            **{
                what: (before, origin["sources"].get(what))
                for what, before in found.get("sources", {}).items()
            },
        }.items():
            if before != now:
                raise RecipeError(
                    f"stage {found['stage']!r} is finished, but its {what} changed since "
                    f"({str(before)[:12]} then, {str(now)[:12]} now): the rest would not be the "
                    "rest of that pipeline. Restore it, or start again with --overwrite"
                )

    def _sources(self, node: Node) -> dict[str, str]:
        """What a stage and its guard read from outside the pipeline, as hashes."""
        found = dict(node.stage.sources(self.prepared[node.name]))
        if self.pipeline.guard is not None and node.stage.changes_weights:
            guard = self.pipeline.guard.sources(self.prepared[BASE])
            found |= {f"guard's {what}": value for what, value in guard.items()}
        return found

    def _guard(self, name: str, model: str) -> dict[str, Value]:
        """The guard's values of a model, measured once; none of a reward model."""
        if self.pipeline.guard is None:
            return {}
        if model not in self.guards:
            remote = self.pipeline.guard.model.trust_remote_code
            info = describe_model(model, trust_remote_code=remote, classifier=True)
            if is_classifier(info.config):
                return {}
            result = self.pipeline.guard.measure(self.prepared[BASE], model)
            self.guards[model] = guard_values(result)
            self.writer.event("guard", name=name, values=self.guards[model])
        return self.guards[model]

    def _summary(self, status: str) -> dict[str, Any]:
        stages = list(self.done.values())
        finished = [each for each in stages if each["status"] == "finished"]
        nodes = self.pipeline.order[::-1]
        models = (self.done[each.name]["output"] for each in nodes if each.stage.leaves_policy)
        sums = [open_run(self.places[each["name"]]).summary for each in finished]
        first = finished[0]["first"] if finished else {}
        last = finished[-1]["last"] if finished else {}
        return {
            **dict.fromkeys(SUMMARY_KEYS),
            **{
                f"eval/{name}_{when}": values.get(f"guard/{name}")
                for name in ("accuracy", "greedy", "heldout")
                for when, values in (("first", first), ("last", last))
            },
            **{
                name: sum(each[name] or 0 for each in sums)
                for name in ("steps", "seconds", "tokens")
            },
            "status": status,
            "output": next(filter(None, models), None),
            "stages": stages,
        }


def _patience(pipeline: Pipeline) -> float:
    """The longest `record.stalled_after` of the stages, the default where none has one."""
    records = [getattr(node.stage, "record", RecordSettings()) for node in pipeline.order]
    return max(each.stalled_after for each in records)


def _rows_hash(place: Path) -> str | None:
    """SHA-256 over the rows that a stage kept and dropped; None where it makes none."""
    files = [place / name for name in (ROWS, DROPPED) if (place / name).is_file()]
    return text_hash(" ".join(map(file_hash, files))) if files else None


def _prompts(guard: Prepared | None) -> frozenset[tuple[int, ...]]:
    if guard is None:
        return frozenset()
    sets, template = guard.evaluation_sets, guard.model.template
    prompts = (prompt for each in sets.splits.values() for prompt in each)
    return frozenset(tuple(guard.environment.prompt_ids(each, template)) for each in prompts)
