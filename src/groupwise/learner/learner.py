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
from typing import Any, overload

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm, AlgorithmState, UpdatePlan
from groupwise.errors import NonFiniteError
from groupwise.instants import passed
from groupwise.learner.critic import CriticLearner, value_metrics
from groupwise.learner.details import TokenDetails
from groupwise.learner.faults import PassFaults
from groupwise.learner.optimizers import clipped_norm, make_optimizer, step_optimizer
from groupwise.learner.report import WORK, Accumulated, StepReport
from groupwise.learner.settings import TrainingSettings, learning_rate_at
from groupwise.policies import (
    LogprobOutput,
    Policy,
    Teaching,
    forward_tokens,
    sequence_logprobs,
)
from groupwise.types import Batch, Rows

Divide = Callable[[Rows, Tensor, int], list[Tensor]]


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
    ) -> None:
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
            values = self._fixed_values(self.critic, rows, updates)
        if self.reference is not None:
            ref, _ = self._fixed(self.reference, rows, updates)
        teacher = None
        if needs.teacher == "logprobs" and teaching is not None:
            table = _Table(rows)
            self._each_part(
                rows, updates, lambda index: table.put(index, teaching.logprobs(rows, index))
            )
            teacher = table.masked()
        return FixedLogprobs(old, ref, values, teacher)

    @torch.no_grad()
    def _fixed(
        self, policy: Policy, rows: Rows, updates: list[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """[B, T] log-probabilities, and the values of a critic that shares this policy's trunk."""
        table, values = _Table(rows), _Table(rows)

        def see(index: Tensor) -> None:
            output = self._forward(policy, rows, index)
            table.put(index, output.logprobs)
            if output.values is not None:
                values.put(index, output.values)

        self._each_part(rows, updates, see)
        return table.masked(), values.masked() if values.filled else None

    @torch.no_grad()
    def _fixed_values(self, critic: CriticLearner, rows: Rows, updates: list[Tensor]) -> Tensor:
        table = _Table(rows)
        self._each_part(rows, updates, lambda index: table.put(index, critic.values(rows, index)))
        return table.masked()

    def _each_part(self, rows: Rows, updates: list[Tensor], see: Callable[[Tensor], None]) -> None:
        """`see` of every micro-batch of the updates, divided as they will be."""

        def divide(tokens: int) -> list[Tensor]:
            return [part for update in updates for part in self.divide(rows, update, tokens)]

        def attempt(parts: Sequence[Tensor]) -> None:
            for part in parts:
                see(part)

        self.faults.within_memory(divide, attempt, f"before update {self.update}")

    def _forward(
        self,
        policy: Policy,
        rows: Rows,
        index: Tensor,
        entropies: bool = False,
        compare: Callable[[Tensor, Any], Tensor] | None = None,
    ) -> LogprobOutput:
        chosen = index.tolist()
        prompts = [rows.prompt_ids[row] for row in chosen]
        completions = [rows.completion_ids[row] for row in chosen]
        ran = (forward_tokens(policy, prompts, completions), sum(map(len, completions)), 1)
        for name, count in zip(WORK, ran, strict=True):
            self.work[name] += count
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
        work, self.work = self.work, dict.fromkeys(WORK, 0)
        return {**before, **adaptive, **report.metrics(), **work}

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
            made = self.faults.within_memory(
                partial(self.divide, batch.rows, index),
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
        batch, details = step.batch, step.details
        position = {row: place for place, row in enumerate(index.tolist())}
        made = Accumulated()
        for part in parts:
            output = self._forward(
                self.policy,
                batch.rows,
                part,
                entropies=True,
                compare=self._comparison(batch.rows, part, step.teaching),
            )
            local = torch.tensor([position[row] for row in part.tolist()], dtype=torch.int64)
            width = output.logprobs.shape[1]
            place = (part, width, output.logprobs.device)
            mask = _cut(batch.mask, *place)
            old = _cut(batch.old_logprobs, *place)
            rows_plan = plan.rows(local).columns(width)
            terms = self.algorithm.loss_terms(
                output.logprobs,
                plan=rows_plan,
                mask=mask,
                advantages=_cut(batch.advantages, *place),
                old_logprobs=old,
                ref_logprobs=_cut(batch.ref_logprobs, *place),
                sampler_logprobs=_cut(batch.rows.sampler_logprobs, *place),
                entropies=output.entropies,
                top_logprobs=output.top_logprobs,
                sampler_top_logprobs=_cut(batch.rows.sampler_top_logprobs, *place),
                divergences=output.divergences,
                state=step.state,
            )
            self._check(float(terms.loss.detach()), _culprit(output), step.number)
            if details is not None:
                details.watch(output)
            if self.critic is not None:
                critic = self.critic.backward(terms.loss, output, batch, part, rows_plan, mask)
                self._check(float(critic.loss.detach()), "critic's loss is", step.number)
                made.sums = made.sums + critic.sums
                made.value_loss += float(critic.loss.detach())
            elif terms.loss.requires_grad:
                torch.autograd.backward(terms.loss)
            if details is not None:
                details.see(part, output)
            made.sums = made.sums + terms.sums
            made.loss += float(terms.loss.detach())
            made.moved += _moved(output.logprobs, old, mask)
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


class _Table:
    """[B, T] float32 on the CPU, filled a micro-batch at a time."""

    def __init__(self, rows: Rows) -> None:
        self.mask = rows.mask
        self.values = torch.zeros(rows.mask.shape, dtype=torch.float32)
        self.filled = False

    def put(self, index: Tensor, part: Tensor) -> None:
        self.values[index, : part.shape[1]] = part.float().cpu()
        self.filled = True

    def masked(self) -> Tensor:
        return torch.where(self.mask, self.values, 0.0)


@overload
def _cut(tensor: Tensor, index: Tensor, width: int, device: torch.device) -> Tensor: ...
@overload
def _cut(tensor: None, index: Tensor, width: int, device: torch.device) -> None: ...
def _cut(tensor: Tensor | None, index: Tensor, width: int, device: torch.device) -> Tensor | None:
    """Some rows of a batch's tensor ([B], [B, T] or [B, T, K]), cut to a micro-batch's width."""
    if tensor is None:
        return None
    chosen = tensor[index]
    return (chosen[:, :width] if chosen.dim() > 1 else chosen).to(device)


def _culprit(output: LogprobOutput) -> str:
    finite = bool(torch.isfinite(output.logprobs.detach()).all())
    return "loss is" if finite else "policy's log-probabilities are"


def _moved(logprobs: Tensor, old: Tensor | None, mask: Tensor) -> float:
    """Sum over trained tokens of k3 from the step's first policy to this one; 0 without `old`."""
    if old is None:
        return 0.0
    distance = torch.where(mask, old - logprobs.detach().float(), 0.0)
    return float((distance.exp() - 1.0 - distance).sum())
