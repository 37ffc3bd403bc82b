"""The loop of every stage that fits fixed examples: supervised, distillation from traces, and more.

A stage gives examples and an `Objective`, a loss that is a sum over examples divided by one count
made from the whole update. So micro-batches only add up. Which examples a step has is a function of
the seed, the stage and the step; a resumed stage equals the unbroken one bit for bit.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from groupwise.checkpoints import (
    best_checkpoints,
    load_checkpoint,
    prune,
    restore_model,
    restore_training_state,
    save_checkpoint,
    training_state,
)
from groupwise.errors import NonFiniteError, RecipeError
from groupwise.instants import entered_step, passed
from groupwise.learner import (
    PassFaults,
    clipped_norm,
    learning_rate_at,
    make_optimizer,
    peak_memory_bytes,
    step_optimizer,
)
from groupwise.policies import Policy, base_identity, has_adapter, runs_packed
from groupwise.randomness import generator
from groupwise.records import (
    SUMMARY_KEYS,
    CheckpointSettings,
    RunWriter,
    Value,
    open_run,
)
from groupwise.stages.objective import FittingSettings, Objective, micro_batches
from groupwise.stages.progress import Fitted, Progress
from groupwise.stages.stage import StageContext
from groupwise.texts import counted
from groupwise.training.output import holds_run, open_record
from groupwise.training.process import (
    Interrupted,
    Interruption,
    give_back_freed_memory,
    keep_freed_memory,
)
from groupwise.training.session import num_threads, same_base
from groupwise.training.start import checkpoint_to_resume

E = TypeVar("E")
_LOSS = "fit/eval_loss"


@lru_cache(maxsize=2)
def epoch_order(count: int, seed: int, stage: str, epoch: int) -> tuple[int, ...]:
    """The order of `count` examples in one epoch, a keyed shuffle."""
    order = list(range(count))
    generator(seed, "order", "fit", stage, epoch).shuffle(order)
    return tuple(order)


@dataclass
class _Fit(Generic[E]):
    """One fit of a policy in a stage's folder."""

    policy: Policy
    objective: Objective[E]
    examples: Sequence[E]
    heldout: Sequence[E]
    settings: FittingSettings
    checkpoints: CheckpointSettings
    seed: int
    context: StageContext
    padded: bool
    progress: Progress = field(default_factory=Progress)
    last_line: dict[str, Value] = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        self.total = self.settings.total_steps(len(self.examples))
        if self.settings.schedule_updates is None:
            update = {"schedule_updates": max(self.total, 1)}
            self.settings = self.settings.model_copy(update=update)
        self.optimizer = make_optimizer(self.policy.model.parameters(), self.settings)
        self.faults = PassFaults(self.settings)
        self.base = base_identity(self.policy.model) if has_adapter(self.policy.model) else None
        self.evaluations: dict[int, dict[str, float]] = {}

    # --- which examples ---------------------------------------------------------------------------

    def batch(self, step: int) -> list[E]:
        """The examples of one step. Epochs follow each other; the last step may be short."""
        count, size = len(self.examples), self.settings.examples_per_step
        end = (step + 1) * size
        if self.settings.steps is None:
            end = min(end, max(step * size + 1, round(self.settings.num_passes * count)))
        places = [divmod(place, count) for place in range(step * size, end)]
        if any(each and not at for each, at in places):
            passed("epoch")
        name, seed = self.context.name, self.seed
        return [self.examples[epoch_order(count, seed, name, each)[at]] for each, at in places]

    def parts(self, examples: Sequence[E], tokens: int) -> list[list[E]]:
        sizes = [self.objective.size(each) for each in examples]
        parts = micro_batches(sizes, tokens, padded=self.padded)
        return [[examples[index] for index in part] for part in parts]

    # --- one step ---------------------------------------------------------------------------------

    def learn(self, step: int) -> dict[str, Value]:
        """One optimiser update. Raises NonFiniteError before anything is updated, unless
        `training.skip_nonfinite` allows the update to be skipped."""
        examples, where = self.batch(step), f"step {step}"
        loss, norm, nonfinite = math.nan, math.nan, 0
        sums, parts = dict[str, float](), 0
        rate = learning_rate_at(step, self.settings)
        try:
            loss, sums, parts = self.faults.within_memory(
                partial(self.parts, examples), partial(self._accumulate, step), where
            )
            named = self.policy.model.named_parameters()
            norm = clipped_norm(named, self.settings.max_grad_norm, where)
        except NonFiniteError as error:
            self.optimizer.zero_grad(set_to_none=True)
            self.faults.skip(error)
            nonfinite = 1
        else:
            self.faults.in_a_row = 0
            if norm > 0.0:  # else momentum would move the weights all the same
                step_optimizer(self.optimizer, rate)
        trained = sum(self.objective.trained(each) for each in examples)
        self.progress.tokens += trained
        return {
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": rate,
            "updates": 1 - nonfinite,
            "updates/nonfinite": nonfinite,
            "updates_total": step + 1,
            "version": step,
            "tokens/trained": trained,
            "tokens_total": self.progress.tokens,
            "forward/micro_batches": parts,
            "fit/examples": len(examples),
            "fit/epoch": (step * self.settings.examples_per_step + len(examples))
            / len(self.examples),
            **{f"fit/{name}": value for name, value in sums.items()},
        }

    def _accumulate(
        self, step: int, parts: Sequence[Sequence[E]]
    ) -> tuple[float, dict[str, float], int]:
        """The loss, what the objective records, and how many parts; gradients add up from 0."""
        self.optimizer.zero_grad(set_to_none=True)
        total = sum(self.objective.count(each) for part in parts for each in part)
        loss, sums = 0.0, dict[str, float]()
        for part in parts:
            summed, more = self.objective.sum_loss(self.policy, part)
            value = summed / total
            self._check(float(value.detach()), step)
            torch.autograd.backward(value)
            loss += float(value.detach())
            for name, number in more.items():
                sums[name] = sums.get(name, 0.0) + number / total
            passed("micro-batch")
        return loss, sums, len(parts)

    def _check(self, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise NonFiniteError(
                f"stage {self.context.name!r}, step {step}: the loss is not finite ({value}); "
                "nothing was updated and the last checkpoint is intact. Try a lower "
                "training.learning_rate, or model.dtype = 'float32'"
            )

    @torch.no_grad()
    def measure(self, examples: Sequence[E]) -> dict[str, float]:
        """The loss over examples, and what the objective records of them."""
        total = sum(self.objective.count(each) for each in examples)
        values = {"loss": 0.0}
        for part in self.parts(examples, self.faults.micro_batch_tokens):
            loss, sums = self.objective.sum_loss(self.policy, part)
            for name, number in {"loss": float(loss), **sums}.items():
                values[name] = values.get(name, 0.0) + number / total
        return values

    def evaluate(self) -> dict[str, float]:
        """What `measure` finds on the held-out examples, as it is recorded."""
        return {f"fit/eval_{name}": v for name, v in self.measure(self.heldout).items()}

    # --- the loop ---------------------------------------------------------------------------------

    def run(self, writer: RunWriter, interruption: Interruption) -> None:
        started = time.perf_counter() - self.progress.seconds
        interruption.resume_at = self.progress.step
        if self.heldout and 0 not in self.evaluations:
            self._record_evaluation(writer, 0, self.evaluate())
        while not self.done:
            if interruption.number is not None:
                done = f"interrupted after {self.progress.step} of {counted(self.total, 'step')}"
                raise Interrupted(interruption.number, done)
            step, before = self.progress.step, time.perf_counter()
            entered_step(step)
            values = self.learn(step)
            learned = time.perf_counter()
            self.progress.step += 1
            is_best = False
            if self.heldout and self._evaluation_due(step + 1):
                evaluated = self.evaluate()
                values |= evaluated
                is_best = self._watch(evaluated[_LOSS])
                self._record_evaluation(writer, step + 1, evaluated)
            now = time.perf_counter()
            values |= {"seconds/learn": learned - before, "seconds/step": now - before}
            values["memory/peak_bytes"] = peak_memory_bytes(self.policy.device)
            values["tokens_per_second"] = int(values["tokens/trained"] or 0) / (now - before)
            for about, note in self.faults.take_notes():
                writer.event("warning", about=about, message=note)
                self.context.warn(note)
            self.last_line = writer.metrics(step, values)
            self.progress.seconds = now - started
            for callback in self.context.callbacks:
                callback.on_step(self.last_line)
            every = self.checkpoints.every
            due = (every > 0 and (step + 1) % every == 0) or is_best or self.done
            if due or interruption.number is not None:
                self.checkpoint(writer)
                interruption.resume_at = self.progress.step

    @property
    def done(self) -> bool:
        return self.progress.stopped or self.progress.step >= self.total

    def _evaluation_due(self, version: int) -> bool:
        every = self.settings.evaluate_every
        return version >= self.total or (every > 0 and version % every == 0)

    def _watch(self, loss: float) -> bool:
        """Notes a new loss for the early stop. True where it is the lowest, with a patience."""
        progress, patience = self.progress, self.settings.patience
        if patience is None:
            return False
        least = self.settings.min_improvement
        if progress.best is None or loss < progress.best - least:
            progress.best, progress.stalled = loss, 0
            return True
        progress.stalled += 1
        progress.stopped = progress.stalled >= patience
        return False

    def _record_evaluation(self, writer: RunWriter, version: int, values: dict[str, float]) -> None:
        passed("evaluation")
        self.evaluations[version] = values
        writer.evaluation(version, values)
        for callback in self.context.callbacks:
            callback.on_evaluation(version, values)

    def checkpoint(self, writer: RunWriter) -> None:
        writer.sync()
        model, moments = training_state(self.policy.model, self.optimizer)
        path = save_checkpoint(
            writer.folder / "checkpoints",
            self.progress.step,
            model_state=model,
            optimizer_state=moments,
            state={
                "base": self.base,
                "progress": asdict(self.progress),
                "faults": self.faults.state_dict(),
            },
            metrics=self.last_line,
        )
        self.prune(path.parent)
        writer.event("checkpoint", version=self.progress.step, path=path.name)

    def prune(self, folder: Path) -> None:
        rules = self.checkpoints.retention
        if self.settings.patience is not None:
            rules |= {"best": _LOSS, "direction": "lower"}
        prune(folder, **rules)

    # --- start, resume and end --------------------------------------------------------------------

    def restore(self, writer: RunWriter) -> None:
        """Weights, moments and progress of the newest checkpoint; the record is cut to it."""
        path, notes = checkpoint_to_resume(writer)
        if path is not None:
            found = load_checkpoint(path, hashed=True)
            same_base(found.state, self.base)
            restore_training_state(self.policy.model, self.optimizer, found)
            self.progress = Progress(**found.state["progress"])
            self.faults.load_state_dict(found.state.get("faults", {}))
            self.last_line = dict(found.metrics)
            if not notes:  # killed between a save and its pruning
                self.prune(path.parent)
        writer.truncate_after(self.progress.step)
        for event in open_run(writer.folder).events("evaluation"):
            self.evaluations[event["version"]] = event["values"]
        for note in [*notes, f"resumed at step {self.progress.step}"]:
            self.context.warn(note)

    def keep_best(self, writer: RunWriter) -> int:
        """Put back the weights with the lowest held-out loss; returns their step."""
        step = self.progress.step
        if self.settings.patience is not None:
            paths = best_checkpoints(writer.folder / "checkpoints", _LOSS, "lower")
            if paths:
                best = load_checkpoint(paths[0])
                restore_model(self.policy.model, best)
                step = best.step
        self.policy.version = step
        return step

    def data_hash(self) -> str:
        digest = hashlib.sha256()
        for examples in (self.examples, self.heldout):
            digest.update(len(examples).to_bytes(8, "little"))
            for each in examples:
                digest.update(hashlib.sha256(self.objective.digest(each)).digest())
        return digest.hexdigest()

    def _loss_at(self, step: int) -> float | None:
        return self.evaluations.get(step, {}).get(_LOSS)

    def summary(self, status: str) -> dict[str, Any]:
        return {
            **dict.fromkeys(SUMMARY_KEYS),
            "status": status,
            "steps": self.progress.step,
            "seconds": round(self.progress.seconds, 3),
            "tokens": self.progress.tokens,
            "loss_last": self.last_line.get("loss"),
            "fit/eval_loss_first": self._loss_at(0),
            "fit/eval_loss_last": self._loss_at(self.progress.step),
            "stopped_early": self.progress.stopped,
        }


def fit(
    policy: Policy,
    objective: Objective[E],
    examples: Sequence[E],
    heldout: Sequence[E] = (),
    *,
    settings: FittingSettings,
    checkpoints: CheckpointSettings,
    seed: int,
    context: StageContext,
    identity: Mapping[str, Any] | None = None,
    padded: bool | None = None,
) -> Fitted:
    """Fit a policy to examples in the stage's folder, from its start or its newest checkpoint.

    `identity` is recorded in `environment.json`; `padded` says whether the objective's passes pad
    rows to the longest (unset: as `sequence_logprobs` does). With a patience the policy ends with
    the weights of the lowest held-out loss. Raises RecipeError for other data on resume,
    NonFiniteError, Interrupted (a checkpoint was written first).
    """
    if padded is None:
        padded = not runs_packed(policy)
    made = _Fit(policy, objective, examples, heldout, settings, checkpoints, seed, context, padded)
    data_hash = made.data_hash()
    threads = torch.get_num_threads()
    torch.set_num_threads(num_threads(settings.threads, policy, settings.examples_per_step))
    if settings.keep_memory and policy.device.type == "cpu":
        keep_freed_memory()
    try:
        with _record(context, data_hash, identity or {}) as (writer, resuming):
            if resuming:
                made.restore(writer)
            _watched(made, writer, resuming)
            step = made.keep_best(writer)
        after = made.measure(made.batch(0))["loss"] if made.total else None
    finally:
        torch.set_num_threads(threads)
        give_back_freed_memory()
    lines = open_run(context.folder).metrics().to_pylist()
    first = {"loss": lines[0]["loss"]} if lines else {}
    last = {"loss": after} if lines else {}
    if made.evaluations:
        first |= made.evaluations.get(0, {})
        last |= made.evaluations.get(step, {})
    return Fitted(first, {**last, "steps": step}, step, data_hash)


def _watched(made: _Fit[Any], writer: RunWriter, resuming: bool) -> None:
    """The remaining steps; however they end, the record says how."""
    try:
        with Interruption(made.checkpoints.grace_seconds) as interruption:
            writer.event("resumed" if resuming else "started", step=made.progress.step)
            made.run(writer, interruption)
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        writer.ended_early(status, error, made.summary(status))
        raise
    writer.summary(made.summary("finished"))
    writer.event("finished", steps=made.progress.step, stopped_early=made.progress.stopped)


@contextmanager
def _record(
    context: StageContext, data_hash: str, identity: Mapping[str, Any]
) -> Iterator[tuple[RunWriter, bool]]:
    """The stage's record, and whether it is resumed. RecipeError where its data was another."""
    folder, resuming = context.folder, holds_run(context.folder)
    before = open_run(folder).environment.get("data_hash") if resuming else data_hash
    if before != data_hash:
        raise RecipeError(
            f"{str(folder)!r} was made with other data (hash {str(before)[:12]} there, "
            f"{data_hash[:12]} now): the rest of the stage would not be the rest of that one. "
            "Restore the data, or start again with --overwrite"
        )
    about = {"data_hash": data_hash, **identity}
    with open_record(folder, context.recipe_text, about, resuming=resuming) as writer:
        yield writer, resuming
