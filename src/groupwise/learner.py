"""Batch -> loss -> backward -> optimiser update -> metrics.

Left out: where rows come from and what an algorithm is. The learner knows three things of an
algorithm: what it needs, the plan of one update (every weight and count, made from the whole
update's mask), and the terms of a micro-batch, which only add up. There is no accumulation
arithmetic here and no normaliser.
Shapes: B rows of the step, b rows of a micro-batch, T completion tokens.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from groupwise.algorithms import Algorithm, AlgorithmState, MetricSums, UpdatePlan
from groupwise.errors import NonFiniteError
from groupwise.policies import LogprobOutput, Policy, sequence_logprobs
from groupwise.types import Batch, Rows

Divide = Callable[[Rows, Tensor, int], list[Tensor]]


class TrainingSettings(BaseModel):
    """The `[training]` table: how rollouts become optimiser updates."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompts_per_step: int = Field(16, ge=1, description="Prompts sampled in one step.")
    steps: int = Field(200, ge=0, description="Steps: collections of rollouts learned from.")
    passes: int = Field(1, ge=1, description="How often a step's rollouts are used.")
    minibatches: int = Field(
        1, ge=1, description="Optimiser updates that one pass is split into (whole groups)."
    )
    learning_rate: float = Field(1e-6, gt=0, description="Peak learning rate.")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="AdamW or plain SGD.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW's moment decays.")
    eps: float = Field(1e-8, gt=0, description="AdamW's denominator term.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay (AdamW).")
    warmup_updates: int = Field(0, ge=0, description="Updates of linear warm-up.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Decay after warm-up, to 0 at the last update, or none."
    )
    max_grad_norm: float | None = Field(
        1.0, gt=0, description="Clip the global gradient norm to this; leave out for no clipping."
    )
    kl_stop: float | None = Field(
        None,
        gt=0,
        description="Drop the step's remaining updates once the policy has moved this far (mean "
        "over completions of the k3 sum to the step's first policy, nats).",
    )
    micro_batch_tokens: int = Field(
        8192,
        ge=1,
        description="Padded tokens in one forward and backward pass; memory only, not the result.",
    )
    measure_kl: bool = Field(
        False, description="Hold a reference to report KL even where the loss has no KL term."
    )

    @property
    def updates_per_step(self) -> int:
        return self.passes * self.minibatches


def learning_rate_at(update: int, total: int, settings: TrainingSettings) -> float:
    """The learning rate of update number `update` (from 0) of `total`.

    A function of the count of optimiser updates alone: nothing is carried, so a resumed run and
    any accumulation give the same curve.
    """
    peak, warmup = settings.learning_rate, settings.warmup_updates
    if update < warmup:
        return peak * (update + 1) / warmup
    if settings.schedule == "constant":
        return peak
    progress = min(1.0, (update - warmup) / max(1, total - warmup))
    if settings.schedule == "linear":
        return peak * (1.0 - progress)
    return peak * 0.5 * (1.0 + math.cos(math.pi * progress))


def make_optimizer(
    parameters: Iterator[torch.nn.Parameter], settings: TrainingSettings
) -> torch.optim.Optimizer:
    """The optimiser over the parameters that require a gradient."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            trained, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
    return torch.optim.AdamW(
        trained,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Fixed log-probabilities of a step's rows, [B, T] float32; None where nothing needs them."""

    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None


@dataclass(slots=True)
class StepReport:
    """Running sums of one step's updates; `metrics()` closes them."""

    sums: MetricSums = field(default_factory=MetricSums)
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    updates: int = 0
    skipped: int = 0

    def metrics(self) -> dict[str, float | None]:
        return {
            **self.sums.finish(),
            "loss": _mean(self.losses),
            "grad_norm": _mean(self.grad_norms),
            "learning_rate": self.learning_rate,
            "updates": self.updates,
            "updates/skipped": self.skipped,
        }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(slots=True)
class _Accumulated:
    """What the micro-batches of one update add up to, beside the gradients."""

    sums: MetricSums = field(default_factory=MetricSums)
    loss: float = 0.0
    moved: float = 0.0


class Learner:
    """Owns the policy's optimiser and its count of updates.

    `divide` splits row indices into micro-batches under a token budget (`batches.split_rows`);
    it decides memory, never the gradient.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        settings: TrainingSettings,
        *,
        temperature: float,
        total_updates: int,
        divide: Divide,
        reference: Policy | None = None,
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.temperature = temperature
        self.total_updates = total_updates
        self.divide = divide
        self.reference = reference
        self.optimizer = make_optimizer(policy.model.parameters(), settings)
        self.update = 0

    # --- evidence -------------------------------------------------------------------------------

    def evidence(self, rows: Rows, updates: list[Tensor]) -> Evidence:
        """The old and reference log-probabilities that this step needs.

        With a single update on the step's own rollouts the ratio to the old policy is exactly 1, so
        no old log-probabilities are computed unless a part asks for them by name. Rows are divided
        as the first pass will divide them: its ratios are then exactly 1.
        """
        needs = self.algorithm.needs
        several = self.settings.updates_per_step > 1 and needs.ratio_anchor == "old"
        old = None
        if several or needs.old_logprobs or self.settings.kl_stop is not None:
            old = self._fixed_logprobs(self.policy, rows, updates)
        ref = None
        if self.reference is not None:
            ref = self._fixed_logprobs(self.reference, rows, updates)
        return Evidence(old, ref)

    @torch.no_grad()
    def _fixed_logprobs(self, policy: Policy, rows: Rows, updates: list[Tensor]) -> Tensor:
        table = torch.zeros(rows.mask.shape, dtype=torch.float32)
        for update in updates:
            for index in self.divide(rows, update, self.settings.micro_batch_tokens):
                output = self._forward(policy, rows, index)
                width = output.logprobs.shape[1]
                table[index, :width] = output.logprobs.float().cpu()
        return torch.where(rows.mask, table, 0.0)

    def _forward(
        self, policy: Policy, rows: Rows, index: Tensor, entropies: bool = False
    ) -> LogprobOutput:
        chosen = index.tolist()
        return sequence_logprobs(
            policy,
            [rows.prompt_ids[row] for row in chosen],
            [rows.completion_ids[row] for row in chosen],
            temperature=self.temperature,
            entropies=entropies,
            top_ids=None if rows.top_ids is None else rows.top_ids[index],
        )

    # --- learning -------------------------------------------------------------------------------

    def learn(
        self,
        batch: Batch,
        passes: list[list[Tensor]],
        *,
        step: int,
        state: AlgorithmState | None = None,
    ) -> dict[str, float | None]:
        """Every optimiser update of one step; returns its metrics.

        `passes[p][u]` are the row indices of update u of pass p. Raises NonFiniteError, before the
        optimiser step, naming step, update and tensor.
        """
        report = StepReport()
        updates = [index for each in passes for index in each]
        for number, index in enumerate(updates):
            if self._update(batch, index, report, step=step, state=state):
                report.skipped += len(updates) - number
                break
        return report.metrics()

    def _update(
        self,
        batch: Batch,
        index: Tensor,
        report: StepReport,
        *,
        step: int,
        state: AlgorithmState | None,
    ) -> bool:
        """One optimiser update on whole groups. True where the KL stop forbids it and the rest."""
        mask = batch.mask[index]
        if not bool(mask.any()):
            report.skipped += 1
            return False
        plan = self.algorithm.plan_update(
            mask,
            group_ids=batch.rows.group_ids[index],
            max_tokens=batch.max_tokens,
            entropies=None if batch.rows.entropies is None else batch.rows.entropies[index],
        )
        self.optimizer.zero_grad(set_to_none=True)
        made = self._accumulate(batch, index, plan, step=step, state=state)
        rows = int(mask.any(dim=1).sum())
        if self.settings.kl_stop is not None and made.moved / rows > self.settings.kl_stop:
            self.optimizer.zero_grad(set_to_none=True)
            return True
        report.sums = report.sums + made.sums
        self._apply(report, made.loss, step)
        return False

    def _accumulate(
        self,
        batch: Batch,
        index: Tensor,
        plan: UpdatePlan,
        *,
        step: int,
        state: AlgorithmState | None,
    ) -> _Accumulated:
        """Backward through every micro-batch of one update; gradients and sums add up."""
        position = {row: place for place, row in enumerate(index.tolist())}
        made = _Accumulated()
        for part in self.divide(batch.rows, index, self.settings.micro_batch_tokens):
            output = self._forward(self.policy, batch.rows, part, entropies=True)
            local = torch.tensor([position[row] for row in part.tolist()], dtype=torch.int64)
            width = output.logprobs.shape[1]
            place = (part, width, output.logprobs.device)
            mask = _cut(batch.mask, *place)
            old = _cut(batch.old_logprobs, *place)
            terms = self.algorithm.loss_terms(
                output.logprobs,
                plan=plan.rows(local).columns(width),
                mask=mask,
                advantages=_cut(batch.advantages, *place),
                old_logprobs=old,
                ref_logprobs=_cut(batch.ref_logprobs, *place),
                sampler_logprobs=_cut(batch.rows.sampler_logprobs, *place),
                entropies=output.entropies,
                top_logprobs=output.top_logprobs,
                sampler_top_logprobs=_cut(batch.rows.sampler_top_logprobs, *place),
                state=state,
            )
            value = float(terms.loss.detach())
            if not math.isfinite(value):
                raise NonFiniteError(
                    f"step {step}, update {self.update}: the {_culprit(output)} not finite "
                    f"(loss {value}); nothing was updated and the last checkpoint is intact. "
                    "Try a lower training.learning_rate, or model.dtype = 'float32'"
                )
            if terms.loss.requires_grad:
                torch.autograd.backward(terms.loss)
            made.sums, made.loss = made.sums + terms.sums, made.loss + value
            made.moved += _moved(output.logprobs, old, mask)
        return made

    def _apply(self, report: StepReport, loss: float, step: int) -> None:
        rate = learning_rate_at(self.update, self.total_updates, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        parameters = [p for p in self.policy.model.parameters() if p.grad is not None]
        limit = self.settings.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit or math.inf))
        if norm == 0.0:
            # Nothing to learn from: an optimiser with momentum would move all the same.
            report.skipped += 1
            return
        if not math.isfinite(norm):
            name = next(
                name
                for name, p in self.policy.model.named_parameters()
                if p.grad is not None and not bool(torch.isfinite(p.grad).all())
            )
            raise NonFiniteError(
                f"step {step}, update {self.update}: the gradient of {name!r} is not finite; "
                "nothing was updated and the last checkpoint is intact"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update += 1
        report.updates += 1
        report.losses.append(loss)
        report.grad_norms.append(norm)
        report.learning_rate = rate

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Counters beside the weights and the optimiser's own state."""
        return {"update": self.update}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.update = int(state["update"])


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


def peak_memory_bytes(device: torch.device) -> int:
    """The largest memory so far: allocated on a CUDA device, else resident in this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
