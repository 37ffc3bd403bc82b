"""The loop: collect, make a batch, learn, load the sampler, record.

What it leaves out: building things (session.py), starting and resuming (start.py), every formula
(algorithms/), and any branch on a backend. Run it with `groupwise train recipe.toml`, or:

    run = groupwise.train("recipes/tiny_arithmetic.toml", overrides={"training.steps": 50})
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from groupwise.batches import align, make_batch, split_groups
from groupwise.checkpoints import prune, save_checkpoint, training_state
from groupwise.errors import VerifierError
from groupwise.evaluation import evaluate, gap_alarm
from groupwise.learner import peak_memory_bytes
from groupwise.records import RunWriter, Value, group_totals, open_run, rollout_rows
from groupwise.training.callbacks import Callback, Clock
from groupwise.training.collecting import Collected
from groupwise.training.constant import ConstantWatch
from groupwise.training.freed_memory import trim_freed_memory
from groupwise.training.interruption import Interrupted, Interruption
from groupwise.training.no_signal import NoSignalWatch
from groupwise.training.session import Session
from groupwise.types import Batch, Group
from groupwise.verifiers import VerifierLogs


class Loop:
    """One run, from its first step (or the one after its checkpoint) to its last."""

    def __init__(
        self, session: Session, writer: RunWriter, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.session = session
        self.writer = writer
        self.callbacks = callbacks
        self.recipe = session.recipe
        self.clock = Clock()
        self.logs = VerifierLogs()
        self.constant = ConstantWatch()
        self.no_signal = NoSignalWatch(
            self.recipe.selection.no_signal_alarm, self.recipe.sampling.group_size
        )
        self.evaluations: dict[int, dict[str, Value]] = {}
        self.last_line: Mapping[str, Value] = {}
        self.started = time.perf_counter() - session.seconds_before

    def run(self, interruption: Interruption) -> None:
        """Every remaining step. Raises Interrupted where it was asked to end."""
        steps = self.recipe.training.steps
        self._first_evaluation()
        if interruption.number is not None and steps:
            raise Interrupted(
                interruption.number,
                f"interrupted before step {self.session.first_step + 1} of {steps}; go on with "
                f"--resume --output {self.writer.folder}",
            )
        for step in range(self.session.first_step, steps):
            self.clock = Clock()
            with self.clock("step"):
                collected = self.collect(step)
                batch = self.make_batch(collected, step)
                learned = self.learn(batch, step)
                self.load(step + 1)
                evaluated = self.evaluate(step + 1)
            self.record(step, collected, batch, {**learned, **evaluated})
            self.checkpoint(step + 1, last=interruption.number is not None)
            if interruption.number is not None and step + 1 < steps:
                raise Interrupted(
                    interruption.number,
                    f"interrupted after {step + 1} of {steps} steps; go on with --resume "
                    f"--output {self.writer.folder}",
                )

        if steps and self.session.learner.update == 0:
            rule = self.session.collector.rule
            by = "reward" if rule is None else rule.by
            self.warn(
                f"no update was made: no group that was learned from had completions of different "
                f"{by}, so nothing was learned; read groups/no_signal and the rollouts' rewards",
                about="no_update",
            )

    # --- the five verbs -------------------------------------------------------------------------

    def collect(self, step: int) -> Collected:
        """Sample and score the step's groups, and choose what is learned from."""
        self.session.environment.verifier.begin_step(step)
        update = self.session.learner.update
        collected = self.session.collector.collect(step, update=update, timer=self.clock)
        self.logs = self.session.environment.verifier.take_logs()
        _refuse_unscored(collected.sampled, step)
        for note in collected.notes:
            self.warn(note, about="selection")
        return collected

    def make_batch(self, collected: Collected, step: int) -> Batch:
        """Rows, their fixed log-probabilities, and what the algorithm makes of their rewards."""
        rows = align(collected.groups)
        with self.clock("logprobs"):
            evidence = self.session.learner.evidence(rows, self._passes(rows.group_ids, step)[0])
        return make_batch(
            collected.groups,
            rows,
            self.recipe.algorithm,
            max_tokens=collected.max_tokens,
            state=self.session.state,
            old_logprobs=evidence.old_logprobs,
            ref_logprobs=evidence.ref_logprobs,
            values=evidence.values,
            equal_prompts=self.recipe.selection.sizes is not None,
        )

    def learn(self, batch: Batch, step: int) -> dict[str, Value]:
        """Every optimiser update of the step."""
        with self.clock("learn"):
            return self.session.learner.learn(
                batch,
                self._passes(batch.rows.group_ids, step),
                step=step,
                state=self.session.state,
            )

    def load(self, version: int) -> None:
        """The sampler takes the new weights."""
        with self.clock("load"):
            self.session.policy.version = version
            self.session.refresh_reference(version)
            self.session.sampler.load(self.session.policy, version)

    def record(
        self, step: int, collected: Collected, batch: Batch, values: Mapping[str, Value]
    ) -> None:
        """The step's line of metrics and all of its rollouts."""
        tokens = collected.num_tokens
        self.session.tokens_total += tokens
        with self.clock("record"):
            rows = _rows(step, collected, batch)
            for name, column in self.logs.columns.items():
                for row in rows:
                    row.setdefault(name, column.get((row["prompt_id"], row["text"])))
            self.writer.rollouts(step, rows)
        line = self.writer.metrics(
            step,
            {
                **group_totals(collected.sampled).finish(),
                **collected.metrics(),
                **{f"custom/{name}": value for name, value in self.logs.metrics.items()},
                **batch.metrics,
                **values,
                **self.clock.metrics(),
                "version": step,
                "staleness": _staleness(collected.groups, step),
                "tokens": tokens,
                "tokens/trained": int(batch.mask.sum()),
                **_with_gradient(batch, collected),
                "tokens_total": self.session.tokens_total,
                "tokens_per_second": tokens / self.clock.seconds["step"],
                "updates_total": self.session.learner.update,
                "memory/peak_bytes": peak_memory_bytes(self.session.policy.device),
            },
        )
        self.last_line = line
        for callback in self.callbacks:
            callback.on_step(line)
        for warning in self.constant.see(collected.sampled):
            self.warn(warning, about="constant_verifier")
        no_signal = self.no_signal.see(line["groups/no_signal"])
        if no_signal is not None:
            self.warn(no_signal, about="no_signal")

    # --- beside the verbs -----------------------------------------------------------------------

    def _passes(self, group_ids: Tensor, step: int) -> list[list[Tensor]]:
        """Row indices of every planned update; one that a short step has no groups for is empty."""
        training = self.recipe.training
        filled = min(training.minibatches, len(set(group_ids.tolist())))
        empty = [group_ids.new_zeros(0)] * (training.minibatches - filled)
        if not filled:
            return [empty] * training.passes
        return [
            [
                *split_groups(
                    group_ids, filled, seed=self.recipe.seed, step=step, pass_index=number
                ),
                *empty,
            ]
            for number in range(training.passes)
        ]

    def evaluate(self, version: int) -> dict[str, Value]:
        """The evaluation due after `version` steps: on schedule, and always after the last."""
        every = self.recipe.evaluation.every
        last = version == self.recipe.training.steps
        if not last and (every == 0 or version % every):
            return {}
        with self.clock("evaluate"):
            return self._evaluate(version)

    def _first_evaluation(self) -> None:
        """What the record already holds of a resumed run; else the evaluation before any step."""
        record = open_run(self.writer.folder)
        for event in record.events("evaluation"):
            self.evaluations[event["version"]] = event["values"]
        if self.session.first_step:
            lines = record.metrics().to_pylist()
            self.last_line = lines[-1]
            for line in lines:  # what was told before the interruption is not told again
                self.no_signal.see(line["groups/no_signal"])
        if self.session.first_step == 0 and 0 not in self.evaluations:
            self._evaluate(0)

    def _evaluate(self, version: int) -> dict[str, Value]:
        result = evaluate(
            self.session.environment,
            self.session.sampler,
            self.session.template,
            settings=self.recipe.evaluation,
            sampling=self.recipe.sampling,
            seed=self.recipe.seed,
            version=version,
            sets=self.session.evaluation_sets,
        )
        self.session.environment.verifier.take_logs()  # of these completions: no step's
        values = dict(result.metrics)
        self.evaluations[version] = values
        self.writer.evaluation(version, values, rows=result.rows)
        for callback in self.callbacks:
            callback.on_evaluation(version, values)
        self._watch_gap(version)
        return values

    def _watch_gap(self, version: int) -> None:
        """A warning where the strict verifiers' accuracy falls behind the reward's."""
        gaps = [self.evaluations[each].get("eval/strict_gap") for each in sorted(self.evaluations)]
        warning = gap_alarm(gaps, self.recipe.evaluation.strict_gap_alarm, version=version)
        if warning is not None:
            self.warn(warning, about="strict_gap")

    def warn(self, message: str, *, about: str) -> None:
        """Something a person should know, on record and told to whoever watches."""
        self.writer.event("warning", about=about, message=message)
        for callback in self.callbacks:
            callback.on_warning(message)

    def checkpoint(self, version: int, *, last: bool) -> None:
        """The checkpoint due after `version` steps: scheduled, after the last, or interrupted."""
        settings = self.recipe.checkpoints
        due = settings.every > 0 and version % settings.every == 0
        if not (due or last or version == self.recipe.training.steps):
            return
        self.writer.sync()
        model_state, optimizer_state = training_state(
            self.session.policy.model, self.session.learner.optimizer
        )
        folder = self.writer.folder / "checkpoints"
        path = save_checkpoint(
            folder,
            version,
            model_state=model_state,
            optimizer_state=optimizer_state,
            state=self.session.counters(time.perf_counter() - self.started),
            extra_tensors=self.session.extra_tensors(),
            metrics=dict(self.last_line),
        )
        prune(folder, keep=settings.keep, best=settings.best, direction=settings.direction)
        self.writer.event("checkpoint", version=version, path=path.name)
        trim_freed_memory()

    def summary(self, status: str) -> dict[str, Any]:
        """What `summary.json` says. `*_last` are of the newest evaluation."""
        steps = self.session.policy.version
        first = self.evaluations.get(0, {})
        last = self.evaluations.get(max(self.evaluations, default=0), {})
        return {
            "status": status,
            "steps": steps,
            "seconds": round(time.perf_counter() - self.started, 3),
            "tokens": self.session.tokens_total,
            "eval/accuracy_first": first.get("eval/accuracy"),
            "eval/accuracy_last": last.get("eval/accuracy"),
            "eval/greedy_first": first.get("eval/greedy"),
            "eval/greedy_last": last.get("eval/greedy"),
            "eval/heldout_first": first.get("eval/heldout"),
            "eval/heldout_last": last.get("eval/heldout"),
            "eval/first": first,
            "eval/last": last,
            "kl_last": self.last_line.get("kl"),
            "reward_last": self.last_line.get("reward"),
        }


def _refuse_unscored(groups: Sequence[Group], step: int) -> None:
    """A step without a single score teaches nothing and says that the verifier is broken."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not rollouts or any(rollout.score.scored for rollout in rollouts):
        return
    first = rollouts[0].score
    raise VerifierError(
        f"step {step}: none of its {len(rollouts)} rollouts could be scored; the first is "
        f"{first.outcome} ({first.reason or 'no reason given'})"
    )


def _rows(step: int, collected: Collected, batch: Batch) -> list[dict[str, Any]]:
    """The record's rows: what was learned from with its advantages, then what else was sampled."""
    advantages = batch.advantages.tolist()
    count = sum(len(group.rollouts) for group in collected.fresh)
    return [
        *rollout_rows(step, collected.fresh, advantages[:count]),
        *rollout_rows(step, collected.again, advantages[count:], kind="replayed"),
        *rollout_rows(step, collected.waiting, kind="waiting"),
        *rollout_rows(step, collected.discarded, kind="discarded"),
    ]


def _with_gradient(batch: Batch, collected: Collected) -> dict[str, Value]:
    """How many of the batch's tokens have an advantage, and their share of what the step settled.

    Surplus groups are settled by the step that learns from them or discards them, so no token is
    in two steps' shares, and none is above 1.
    """
    advantages = batch.advantages
    per_token = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    useful = int((batch.mask & (per_token != 0)).sum())
    settled = [*collected.groups, *collected.discarded]
    tokens = sum(each.num_tokens for group in settled for each in group.rollouts)
    return {
        "tokens/with_gradient": useful,
        "tokens/gradient_share": useful / tokens if tokens else None,
    }


def _staleness(groups: Sequence[Group], step: int) -> float | None:
    ages = [step - rollout.version for group in groups for rollout in group.rollouts]
    return sum(ages) / len(ages) if ages else None
