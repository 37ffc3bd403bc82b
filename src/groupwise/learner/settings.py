"""The `[training]` table, and the learning rate as a function of the count of updates. No torch.

`OptimizerSettings` is what every kind of training shares; `TrainingSettings` adds the rollouts.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(BaseModel):
    """How gradients become updates, and the memory and threads that computing them takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learning_rate: float = Field(1e-6, gt=0, description="Peak learning rate.")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="AdamW or plain SGD.")
    betas: tuple[Decay, Decay] = Field(
        (0.9, 0.999), description="AdamW's moment decays, each from 0 to below 1."
    )
    eps: float = Field(1e-8, gt=0, description="AdamW's denominator term.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay (AdamW).")
    warmup_updates: int = Field(0, ge=0, description="Updates of linear warm-up.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Decay after warm-up, to 0 at the last update, or none."
    )
    schedule_updates: int | None = Field(
        None,
        ge=1,
        description="Updates that warm-up and decay take together; the run's own where left out. "
        "Give more than the run has where it may be extended later: the rate of an update never "
        "changes then.",
    )
    max_grad_norm: float | None = Field(
        1.0, gt=0, description='Clip the global gradient norm to this; "none" for no clipping.'
    )
    skip_nonfinite: int = Field(
        0,
        ge=0,
        description="How many updates in a row may be skipped because loss or gradient is not "
        "finite; the next one stops the run. 0 stops at the first.",
    )
    micro_batch_tokens: int = Field(
        2048,
        ge=1,
        description="Tokens in one forward and backward pass, a prompt counted once for all of its "
        "completions there; memory only, not the result. Halved where memory runs out in a pass.",
    )
    keep_memory: bool = Field(
        True,
        description="On a CPU with glibc, keep memory that a pass has freed for the next one: "
        "passes are faster, and the process stays at its largest size.",
    )
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="Threads that one operation uses on a CPU. auto: 1 for a small model (its "
        "parameters times the step's completions below 100 million), else all that PyTorch has.",
    )

    @property
    def num_updates(self) -> int:
        """Updates of the whole run; 1 where the settings do not say."""
        return 1

    @property
    def schedule_length(self) -> int:
        """Updates until the rate of a decaying schedule is 0."""
        return self.schedule_updates or self.num_updates


class TrainingSettings(OptimizerSettings):
    """The `[training]` table: how rollouts become optimiser updates."""

    prompts_per_step: int = Field(16, ge=1, description="Prompts sampled in one step.")
    steps: int = Field(200, ge=0, description="Steps: collections of rollouts learned from.")
    passes: int = Field(1, ge=1, description="How often a step's rollouts are used.")
    minibatches: int = Field(
        1, ge=1, description="Optimiser updates that one pass is split into (whole groups)."
    )
    kl_stop: float | None = Field(
        None,
        gt=0,
        description="Drop the step's remaining updates once the policy has moved this far (mean "
        "over completions of the k3 sum to the step's first policy, nats).",
    )
    memory_budget: float | None = Field(
        None,
        gt=0,
        description="Gigabytes that learning may take by the plan's formulas (weights, moments, "
        "gradients, activations): where it is more, activations are recomputed as by "
        "model.gradient_checkpointing, then micro_batch_tokens is lowered. No limit if left out.",
    )
    measure_kl: bool = Field(
        False, description="Hold a reference to report KL even where the loss has no KL term."
    )
    critic: Literal["separate", "shared"] = Field(
        "separate",
        description="Where the algorithm has a critic (ppo). separate: a second model, a copy of "
        "the policy's decoder at the start. shared: a value head on the policy's own hidden "
        "states, whose loss also moves the policy's weights.",
    )
    critic_learning_rate: float | None = Field(
        None,
        gt=0,
        description="Peak learning rate of the critic (of its head alone where it is shared); "
        "ten times learning_rate where left out. Warm-up and schedule are the policy's.",
    )

    @model_validator(mode="after")
    def _schedule_covers_the_run(self) -> TrainingSettings:
        total = self.num_updates
        if self.schedule_updates is not None and self.schedule_updates < total:
            raise ValueError(
                f"schedule_updates = {self.schedule_updates}: the run has {total} updates (steps x "
                f"passes x minibatches), and those after the schedule's end would have the rate 0; "
                f"give {total} or more"
            )
        return self

    @property
    def updates_per_step(self) -> int:
        return self.passes * self.minibatches

    @property
    def num_updates(self) -> int:
        return self.steps * self.updates_per_step

    @property
    def critic_peak(self) -> float:
        """The critic's peak learning rate."""
        return self.critic_learning_rate or 10.0 * self.learning_rate


def learning_rate_at(update: int, settings: OptimizerSettings, peak: float | None = None) -> float:
    """The learning rate of update number `update`, counted from 0.

    Warm-up rises linearly to the peak; a decay starts at the peak and is exactly 0 at the last
    update of the schedule (a single update after warm-up has the peak). A function of the count of
    updates alone: nothing is carried, so a resumed run and any accumulation give the same curve.
    `peak` in place of the policy's own gives the critic's.
    """
    peak, warmup = peak or settings.learning_rate, settings.warmup_updates
    if update < warmup:
        return peak * (update + 1) / warmup
    if settings.schedule == "constant":
        return peak
    last = settings.schedule_length - 1
    progress = min(1.0, (update - warmup) / max(1, last - warmup))
    if settings.schedule == "linear":
        return peak * (1.0 - progress)
    return peak * 0.5 * (1.0 + math.cos(math.pi * progress))
