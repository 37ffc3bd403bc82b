"""The loop: collect, make a batch, learn, load the sampler, record.

Run it with `groupwise train recipe.toml`, or:

    run = groupwise.train("recipes/tiny_arithmetic.toml", overrides={"training.steps": 50})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from groupwise.batches import align, make_batch, split_groups
from groupwise.checkpoints import prune, save_checkpoint, training_state
from groupwise.evaluation import evaluate
from groupwise.instants import entered_step
from groupwise.learner import TokenDetails
from groupwise.policies import Teaching
from groupwise.records import RunWriter, Value
from groupwise.training.callbacks import Callback, Clock
from groupwise.training.collecting import Collected
from groupwise.training.process import Interrupted, Interruption, trim_freed_memory
from groupwise.training.reporting import Reporter
from groupwise.training.session import Session
from groupwise.types import Batch


class Loop:
    """One run, from its first step (or the one after its checkpoint) to its last."""

    def __init__(
        self, session: Session, writer: RunWriter, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.session = session
        self.recipe = session.recipe
        self.report = Reporter(session, writer, callbacks)
        self.folder = writer.folder
        self.clock = Clock()

    def run(self, interruption: Interruption) -> None:
        """Every remaining step. Raises Interrupted where it was asked to stop."""
        first, steps = self.session.first_step, self.recipe.training.steps
        interruption.resume_at = first
        self.report.restore()
        if first == 0 and 0 not in self.report.evaluations:
            self.evaluate(0)
        asked = self._asked(interruption)
        self._stop_if_asked(asked, steps > first, f"before step {first + 1}")
        for step in range(first, steps):
            self.clock = Clock()
            entered_step(step)
            with self.clock("step"):
                collected = self.collect(step)
                teaching = self.teach(collected)
                batch = self.make_batch(collected, step, teaching)
                details = self.details(batch, step)
                learned = self.learn(batch, step, teaching, details)
                self.load(step + 1)
                evaluated = self.evaluate_if_due(step + 1)
            self.record(step, collected, batch, {**learned, **evaluated}, details)
            asked = self._asked(interruption)
            if self.checkpoint(step + 1, last=asked is not None):
                interruption.resume_at = step + 1
            self._stop_if_asked(asked, step + 1 < steps, f"after {step + 1}")

        if steps and self.session.learner.update == 0:
            rule = self.session.collector.rule
            self.report.warn(
                "no update was made: no group that was learned from had completions of different "
                f"{'reward' if rule is None else rule.by}; read groups/no_signal and the "
                "rollouts' rewards",
                about="no_update",
            )

    # --- the five verbs -------------------------------------------------------------------------

    def collect(self, step: int) -> Collected:
        """Sample and score the step's groups, and choose what is learned from."""
        update = self.session.learner.update
        collected = self.session.collector.collect(step, update=update, timer=self.clock)
        self.report.collected(collected, step)
        return collected

    def teach(self, collected: Collected) -> Teaching | None:
        """Who teaches each row, where the recipe has a teacher."""
        teachers = self.session.teachers
        if teachers is None or not collected.groups:
            return None
        teachers.refresh(self.session.sampled)
        return teachers.teach(collected.groups)

    def make_batch(
        self, collected: Collected, step: int, teaching: Teaching | None = None
    ) -> Batch:
        """Rows, their fixed log-probabilities, and what the algorithm makes of their rewards."""
        rows = align(collected.groups)
        with self.clock("logprobs"):
            first = self._passes(rows.group_ids, step)[0]
            fixed = self.session.learner.evidence(rows, first, teaching)
        return make_batch(
            collected.groups,
            rows,
            self.recipe.algorithm,
            max_tokens=collected.max_tokens,
            state=self.session.state,
            old_logprobs=fixed.old_logprobs,
            ref_logprobs=fixed.ref_logprobs,
            values=fixed.values,
            teacher_logprobs=fixed.teacher_logprobs,
            taught=None if teaching is None else teaching.taught,
            equal_prompts=self.recipe.selection.sizes is not None,
        )

    def learn(
        self,
        batch: Batch,
        step: int,
        teaching: Teaching | None = None,
        details: TokenDetails | None = None,
    ) -> dict[str, Value]:
        passes = self._passes(batch.rows.group_ids, step)
        with self.clock("learn"):
            return self.session.learner.learn(
                batch,
                passes,
                step=step,
                state=self.session.state,
                teaching=teaching,
                details=details,
            )

    def details(self, batch: Batch, step: int) -> TokenDetails | None:
        """What the updates do with each token, in the steps that record it."""
        every = self.recipe.record.token_details_every
        return TokenDetails(batch.rows) if every and step % every == 0 else None

    def load(self, version: int) -> None:
        """The samplers take the new weights."""
        with self.clock("load"):
            self.session.policy.version = version
            self.session.refresh_reference(version)
            line = self.session.collector.load(self.session.policy, version)
            self.session.load_sampler(version)
        if line is not None:
            self.report.writer.schedule(line)

    def record(
        self,
        step: int,
        collected: Collected,
        batch: Batch,
        values: Mapping[str, Value],
        details: TokenDetails | None = None,
    ) -> None:
        self.report.step(step, collected, batch, values, self.clock, details)

    # --- between steps --------------------------------------------------------------------------

    def _passes(self, group_ids: Tensor, step: int) -> list[list[Tensor]]:
        """Row indices of every planned update; one that a short step has no groups for is empty."""
        training, seed = self.recipe.training, self.recipe.seed
        filled = min(training.minibatches, len(set(group_ids.tolist())))
        empty = [group_ids.new_zeros(0)] * (training.minibatches - filled)
        if not filled:
            return [empty] * training.passes
        return [
            [*split_groups(group_ids, filled, seed=seed, step=step, pass_index=number), *empty]
            for number in range(training.passes)
        ]

    def evaluate_if_due(self, version: int) -> dict[str, Value]:
        """The evaluation after `version` steps: on schedule, and always after the last."""
        every = self.recipe.evaluation.every
        last = version == self.recipe.training.steps
        if not last and (every == 0 or version % every):
            return {}
        with self.clock("evaluate"):
            return self.evaluate(version)

    def evaluate(self, version: int) -> dict[str, Value]:
        with self.session.collector.quiet(version):
            result = evaluate(
                self.session.environment,
                self.session.sampler,
                self.session.template,
                settings=self.recipe.evaluation,
                sampling=self.recipe.sampling,
                seed=self.recipe.seed,
                version=version,
                sets=self.session.evaluation_sets,
                ranks=self.session.ranks,
            )
            self.session.environment.verifier.take_logs()  # of these completions: no step's
        return self.report.evaluation(version, result)

    def checkpoint(self, version: int, *, last: bool) -> bool:
        """Writes the checkpoint due after `version` steps: scheduled, after the last, or
        interrupted. False where none is due."""
        settings = self.recipe.checkpoints
        due = settings.every > 0 and version % settings.every == 0
        if not (due or last or version == self.recipe.training.steps):
            return False
        self.report.writer.sync()
        model_state, optimizer_state = training_state(
            self.session.policy.model, self.session.learner.optimizer
        )
        folder = self.folder / "checkpoints"
        path = save_checkpoint(
            folder,
            version,
            model_state=model_state,
            optimizer_state=optimizer_state,
            state=self.session.counters(self.report.seconds),
            extra_tensors=self.session.extra_tensors(),
            metrics=dict(self.report.last_line),
            ranks=self.session.ranks,
        )
        if self.session.ranks.leads:
            prune(folder, **settings.retention)
        self.report.writer.event("checkpoint", version=version, path=path.name)
        trim_freed_memory()
        return True

    def _asked(self, interruption: Interruption) -> int | None:
        """The signal that any of the processes has got by now. One value decides about checkpoint
        and stop: a signal that comes between the two counts after the next step."""
        numbers = self.session.ranks.gather(interruption.number)
        return next((each for each in numbers if each is not None), None)

    def _stop_if_asked(self, asked: int | None, steps_left: bool, when: str) -> None:
        if asked is not None and steps_left:
            raise Interrupted(
                asked,
                f"interrupted {when} of {self.recipe.training.steps} steps; resume it with "
                f"--resume --output {self.folder}",
            )
