"""Batch -> loss -> backward -> optimiser update -> metrics.

The learner knows three things of an
algorithm: what it needs, the plan of one update (every weight and count, made from the whole
update's mask), and the terms of a micro-batch, which only add up. There is no accumulation
arithmetic here and no normaliser.
Shapes: B rows of the step, b rows of a micro-batch, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm, AlgorithmState, UpdatePlan
from groupwise.distributed import ALONE, Ranks
from groupwise.errors import NonFiniteError
from groupwise.instants import passed
from groupwise.learner.critic import CriticLearner, value_metrics
from groupwise.learner.details import TokenDetails
from groupwise.learner.faults import PassFaults
from groupwise.learner.optimizers import clipped_norm, make_optimizer, step_optimizer
from groupwise.learner.report import WORK, Accumulated, StepReport
from groupwise.learner.settings import TrainingSettings, learning_rate_at
from groupwise.learner.tables import as_table, culprit, cut, moved_by, zero_loss
from groupwise.policies import (
    LogprobOutput,
    Policy,
    Teaching,
    forward_tokens,
    sequence_logprobs,
)
from groupwise.types import Batch, Rows

Divide = Callable[[Rows, Tensor, int], list[Tensor]]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FixedLogprobs:
    """Fixed log-probabilities (and a critic's values) of a step's rows, [B, T] float32; None where
    nothing needs them. The teacher's are NaN in rows without one."""

    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    values: Tensor | None = None
    teacher_logprobs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """What every update of a step reads, and the details it fills."""

    number: int
    batch: Batch
    state: AlgorithmState | None
    teaching: Teaching | None
    details: TokenDetails | None


class Learner:
    """Owns the policy's optimiser and its count of updates.

    `divide` splits row indices into micro-batches under a token budget (`batches.split_rows`);
    it decides memory, never the gradient. `critic` is there where the algorithm needs values.
    Where there are several `ranks` they share the micro-batches, and the policy is sharded.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        settings: TrainingSettings,
        *,
        temperature: float,
        divide: Divide,
        reference: Policy | None = None,
        critic: CriticLearner | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.temperature = temperature
        self.divide = divide
        self.reference = reference
        self.critic = critic
        self.optimizer = make_optimizer(policy.model.parameters(), settings)
        self.update = 0
        self.faults = PassFaults(settings)
        self.work = dict.fromkeys(WORK, 0)

    # --- evidence -------------------------------------------------------------------------------

    def evidence(
        self, rows: Rows, updates: list[Tensor], teaching: Teaching | None = None
    ) -> FixedLogprobs:
        """The old, reference and teacher's log-probabilities that this step needs.

        With a single update on the step's own rollouts the ratio to the old policy is exactly 1, so
        no old log-probabilities are computed unless a part asks for them by name. Rows are divided
        as the first pass will divide them: its ratios are then exactly 1.
        """
        needs = self.algorithm.needs
        several = self.settings.updates_per_step > 1 and needs.ratio_anchor == "old"
        shared = self._value_head(self.policy) is not None
        old = values = ref = None
        if several or needs.old_logprobs or self.settings.kl_stop is not None or shared:
            old, values = self._fixed(self.policy, rows, updates)
        if self.critic is not None and not shared:
            critic = self.critic
            (values,) = self._tables(rows, updates, lambda part, _: (critic.values(rows, part),))
        if self.reference is not None:
            ref, _ = self._fixed(self.reference, rows, updates)
        teacher = None
        if needs.teacher == "logprobs" and teaching is not None:
            (teacher,) = self._tables(
                rows, updates, lambda part, _: (teaching.logprobs(rows, part),)
            )
        return FixedLogprobs(old, ref, values, teacher)

    def _fixed(
        self, policy: Policy, rows: Rows, updates: list[Tensor]
    ) -> tuple[Tensor | None, Tensor | None]:
        """[B, T] log-probabilities, and the values of a critic that shares this policy's trunk."""

        def see(part: Tensor, real: bool) -> tuple[Tensor | None, ...]:
            output = self._forward(policy, rows, part, counts=real)
            return output.logprobs, output.values

        old, *values = self._tables(rows, updates, see)
        return old, values[0] if values else None

    @torch.no_grad()
    def _tables(
        self,
        rows: Rows,
        updates: list[Tensor],
        see: Callable[[Tensor, bool], tuple[Tensor | None, ...]],
    ) -> list[Tensor | None]:
        """What `see` gives of every micro-batch of the updates, divided as they will be: as tables
        [B, T] float32 on the CPU, 0 outside the mask, None for what it does not give."""

        def divide(tokens: int) -> list[Tensor]:
            return [part for update in updates for part in self._divide(rows, update, tokens)]

        def attempt(parts: Sequence[Tensor]) -> list[Tensor | None]:
            def work(part: Tensor, real: bool) -> list[Tensor | None]:
                return [None if each is None else each.float().cpu() for each in see(part, real)]

            found = self.ranks.share(parts, work)
            columns = zip(*found, strict=True) if found else [()]
            return [as_table(rows, parts, column) for column in columns]

        return self._within_memory(divide, attempt, f"before update {self.update}")

    def _divide(self, rows: Rows, index: Tensor, tokens: int) -> list[Tensor]:
        """Micro-batches within a budget of tokens, as many as there are ranks where that can be."""
        parts = self.divide(rows, index, tokens)
        while len(parts) < min(self.ranks.size, len(index)) and tokens > 1:
            tokens //= 2
            parts = self.divide(rows, index, tokens)
        return parts

    def _within_memory(
        self,
        divide: Callable[[int], list[Tensor]],
        attempt: Callable[[Sequence[Tensor]], Result],
        where: str,
    ) -> Result:
        """`PassFaults.within_memory`, in one process: a rank whose memory runs out leaves the
        others inside an exchange, so with several the run ends."""
        if self.ranks.size == 1:
            return self.faults.within_memory(divide, attempt, where)
        return attempt(divide(self.faults.micro_batch_tokens))

    def _forward(
        self,
        policy: Policy,
        rows: Rows,
        index: Tensor,
        entropies: bool = False,
        compare: Callable[[Tensor, Any], Tensor] | None = None,
        counts: bool = True,
    ) -> LogprobOutput:
        chosen = index.tolist()
        prompts = [rows.prompt_ids[row] for row in chosen]
        completions = [rows.completion_ids[row] for row in chosen]
        ran = (forward_tokens(policy, prompts, completions), sum(map(len, completions)), 1)
        for name, count in zip(WORK, ran, strict=True):
            self.work[name] += count if counts else 0
        return sequence_logprobs(
            policy,
            prompts,
            completions,
            temperature=self.temperature,
            entropies=entropies,
            top_ids=None if rows.top_ids is None else rows.top_ids[index],
            value_head=self._value_head(policy),
            compare=compare,
            supports=None if rows.supports is None else [rows.supports[row] for row in chosen],
            experts=None
            if rows.experts is None or policy is not self.policy
            else [rows.experts[row] for row in chosen],
        )

    def _value_head(self, policy: Policy) -> torch.nn.Module | None:
        """The critic's head, for a pass of the policy whose trunk it shares."""
        critic = None if self.critic is None else self.critic.critic
        return (
            critic.head if critic is not None and critic.shared and policy is self.policy else None
        )

    # --- learning -------------------------------------------------------------------------------

    def learn(
        self,
        batch: Batch,
        passes: list[list[Tensor]],
        *,
        step: int,
        state: AlgorithmState | None = None,
        teaching: Teaching | None = None,
        details: TokenDetails | None = None,
    ) -> dict[str, float | None]:
        """Every optimiser update of one step; returns its metrics.

        `passes[p][u]` are the row indices of update u of pass p; `details` is filled. Raises
        NonFiniteError, before the optimiser step, naming step, update and tensor, unless
        `training.skip_nonfinite` allows the update to be skipped.
        """
        report = StepReport()
        this = _Step(step, batch, state, teaching, details)
        before = value_metrics(batch)
        updates = [index for each in passes for index in each]
        for number, index in enumerate(updates):
            if self._update(this, index, report):
                report.skipped += len(updates) - number
                break
        coefficient = getattr(state, "entropy_coef", None)
        adaptive = {} if coefficient is None else {"algorithm/entropy_coef": coefficient}
        work, self.work = self._all_work(), dict.fromkeys(WORK, 0)
        return {**before, **adaptive, **report.metrics(), **work}

    def _all_work(self) -> dict[str, int]:
        """The work of all ranks since the last step."""
        found = self.ranks.gather(self.work)
        return {name: sum(each[name] for each in found) for name in WORK}

    def _update(self, step: _Step, index: Tensor, report: StepReport) -> bool:
        """One optimiser update on whole groups. True where the KL stop forbids it and the rest."""
        batch = step.batch
        mask = batch.mask[index]
        if not bool(mask.any()):
            report.skipped += 1
            return False
        start = batch.rows.sampler_logprobs if batch.old_logprobs is None else batch.old_logprobs
        plan = self.algorithm.plan_update(
            mask,
            group_ids=batch.rows.group_ids[index],
            max_tokens=batch.max_tokens,
            entropies=None if batch.rows.entropies is None else batch.rows.entropies[index],
            logprobs=start[index],
            advantages=batch.advantages[index],
            equal_prompts=batch.equal_prompts,
        )
        where = f"step {step.number}, update {self.update}"
        try:
            made = self._within_memory(
                partial(self._divide, batch.rows, index),
                partial(self._accumulate, step, index, plan),
                where,
            )
            rows = int(mask.any(dim=1).sum())
            stops = self.settings.kl_stop is not None and made.moved / rows > self.settings.kl_stop
            norms = (0.0, 0.0) if stops else self._norms(where)
        except NonFiniteError as error:
            self._clear(step)
            self.faults.skip(error)
            report.skipped += 1
            report.nonfinite += 1
            return False
        if stops:
            self._clear(step)
            return True
        if step.details is not None:
            step.details.end_update(made=True)
        report.sums = report.sums + made.sums
        if self._apply(report, made, *norms):
            self.algorithm.end_update(made.sums.finish(), step.state)
        return False

    def _clear(self, step: _Step) -> None:
        """No gradient, and no details of an update that is not made."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)
        if step.details is not None:
            step.details.end_update(made=False)

    def _accumulate(
        self, step: _Step, index: Tensor, plan: UpdatePlan, parts: Sequence[Tensor]
    ) -> Accumulated:
        """Backward through every micro-batch of one update; gradients and sums add up from 0."""
        self._clear(step)
        position = {row: place for place, row in enumerate(index.tolist())}

        def work(part: Tensor, real: bool) -> Accumulated:
            places = torch.tensor([position[row] for row in part.tolist()], dtype=torch.int64)
            return self._backward(step, part, plan.rows(places), real)

        made = Accumulated()
        for each in self.ranks.share(parts, work):
            made = made + each
        if step.details is not None:
            step.details.exchange(self.ranks)
        return made

    def _backward(self, step: _Step, part: Tensor, plan: UpdatePlan, real: bool) -> Accumulated:
        """Forward and backward through one micro-batch; without `real` its weight is 0, for the
        ranks that wait in the same exchanges."""
        batch, details = step.batch, step.details
        output = self._forward(
            self.policy,
            batch.rows,
            part,
            entropies=True,
            compare=self._comparison(batch.rows, part, step.teaching),
            counts=real,
        )
        if not real:
            torch.autograd.backward(zero_loss(output))
            return Accumulated()
        width = output.logprobs.shape[1]
        place = (part, width, output.logprobs.device)
        mask = cut(batch.mask, *place)
        old = cut(batch.old_logprobs, *place)
        plan = plan.columns(width)
        terms = self.algorithm.loss_terms(
            output.logprobs,
            plan=plan,
            mask=mask,
            advantages=cut(batch.advantages, *place),
            old_logprobs=old,
            ref_logprobs=cut(batch.ref_logprobs, *place),
            sampler_logprobs=cut(batch.rows.sampler_logprobs, *place),
            entropies=output.entropies,
            top_logprobs=output.top_logprobs,
            sampler_top_logprobs=cut(batch.rows.sampler_top_logprobs, *place),
            divergences=output.divergences,
            state=step.state,
        )
        made = Accumulated(terms.sums, float(terms.loss.detach()))
        if details is not None:
            details.watch(output)
        if self.critic is not None:
            critic = self.critic.backward(terms.loss, output, batch, part, plan, mask)
            made.sums = critic.sums + made.sums
            made.value_loss = float(critic.loss.detach())
        elif terms.loss.requires_grad:
            torch.autograd.backward(terms.loss)
        elif self.ranks.size > 1:
            torch.autograd.backward(zero_loss(output))
        # Only now: the other ranks wait in the exchanges of this backward pass.
        self._check(made.loss, culprit(output), step.number)
        self._check(made.value_loss, "critic's loss is", step.number)
        if details is not None:
            details.see(part, output)
        made.moved = moved_by(output.logprobs, old, mask)
        passed("micro-batch")
        return made

    def _comparison(
        self, rows: Rows, part: Tensor, teaching: Teaching | None
    ) -> Callable[[Tensor, Any], Tensor] | None:
        """What compares the policy with its teacher's whole distribution, where a part asks."""
        if teaching is None or self.algorithm.needs.teacher != "distribution":
            return None
        found = next(e for e in self.algorithm.extras if e.divergence_coefficient() is not None)
        return teaching.divergence(rows, part, found.divergence, self.policy, self.temperature)

    def _check(self, value: float, culprit: str, step: int) -> None:
        if not math.isfinite(value):
            raise NonFiniteError(
                f"step {step}, update {self.update}: the {culprit} not finite "
                f"(loss {value}); nothing was updated and the last checkpoint is intact. "
                "Try a lower training.learning_rate, or model.dtype = 'float32'"
            )

    def _norms(self, where: str) -> tuple[float, float]:
        """The gradients' norms before they are clipped, the critic's as well (0 without one)."""
        named = self.policy.model.named_parameters()
        norm = clipped_norm(named, self.settings.max_grad_norm, where)
        return norm, 0.0 if self.critic is None else self.critic.clipped_norm(where)

    def _apply(self, report: StepReport, made: Accumulated, norm: float, value_norm: float) -> bool:
        """Step. False where there was nothing to learn from.

        A gradient of exactly 0 is no update: an optimiser with momentum would move all the same.
        """
        self.faults.in_a_row = 0
        if norm == 0.0 and value_norm == 0.0:
            report.skipped += 1
            return False
        rate = learning_rate_at(self.update, self.settings)
        if norm > 0.0:
            step_optimizer(self.optimizer, rate)
        if self.critic is not None:
            if value_norm > 0.0:
                self.critic.step(self.update)
            report.value_losses.append(made.value_loss)
            report.value_norms.append(value_norm)
        self.update += 1
        report.updates += 1
        report.losses.append(made.loss)
        report.grad_norms.append(norm)
        report.learning_rate = rate
        return True

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Counters beside the weights and the optimiser's own state."""
        return {"update": self.update, **self.faults.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.update = int(state["update"])
        self.faults.load_state_dict(state)
