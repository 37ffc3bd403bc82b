"""The recipe's tables `[checkpoints]`, `[evaluation]` and `[record]`.

They stand below the code that acts on them (`checkpoints.py`, `evaluation/`), because the recipe
reads them and shares a floor with that code.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from groupwise.records.metrics import find_metric


class CheckpointSettings(BaseModel):
    """`[checkpoints]`: when a checkpoint is written and which ones stay."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(
        20,
        ge=0,
        description="Steps between checkpoints; 0 writes only the one after the last step.",
    )
    keep: int = Field(
        2, ge=1, description="Newest complete checkpoints that stay; older ones are deleted."
    )
    grace_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds that a step has to end and be saved after SIGTERM; a step that takes "
        "longer is left then, and the last checkpoint stands. Without it the step is waited for.",
    )
    best: str | None = Field(
        None,
        description="A metric; the checkpoints with its best values stay too, however old "
        "(for example eval/heldout).",
    )
    keep_best: int = Field(
        1, ge=1, description="With `best`: so many of the best stay, beside the newest."
    )
    best_direction: Literal["higher", "lower"] | None = Field(
        None,
        description="Which direction of `best` is better; needed only for a metric of which the "
        "metric table does not say it.",
    )

    @model_validator(mode="after")
    def _known_metric(self) -> CheckpointSettings:
        if self.best is None:
            for name, unset in (("best_direction", None), ("keep_best", 1)):
                if getattr(self, name) != unset:
                    raise ValueError(f"{name} is set and best is not; name the metric in best")
            return self
        metric = find_metric(self.best)
        if metric.better is None and self.best_direction is None:
            raise ValueError(
                f"best = {self.best!r}: neither direction of this metric is progress by itself; "
                'name one that is (eval/heldout, reward) or set best_direction to "higher" or '
                '"lower"'
            )
        return self

    @property
    def retention(self) -> dict[str, Any]:
        """Which checkpoints stay, as arguments of `checkpoints.prune`."""
        names = ("keep", "best", "direction", "keep_best")
        return {name: getattr(self, name) for name in names}

    @property
    def direction(self) -> Literal["higher", "lower"] | None:
        """The direction in force for `best`, None where `best` is None."""
        if self.best is None:
            return None
        return self.best_direction or find_metric(self.best).better


class RecordSettings(BaseModel):
    """`[record]`: what is written besides every rollout and metric. Nothing here changes a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_details_every: int = Field(
        1,
        ge=0,
        description="Steps between those whose rollouts are recorded with what the updates did "
        "to each token (learner_logprobs, entropies, loss_weights); 0 = never.",
    )
    stalled_after: float = Field(
        600.0,
        ge=0,
        description="Seconds without any progress (a completion, a score, a micro-batch, a file) "
        "after which stacks and last events are written to stalls.txt and a warning says so; "
        "nothing is interrupted. 0 = never, else at least 1.",
    )
    loggers: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = Field(
        (), description="Where each step's metrics go as well; wandb is offline without a key."
    )
    metric_names: Literal["groupwise", "trl"] = Field(
        "groupwise", description="What the loggers call the metrics: trl as GRPOTrainer does."
    )

    @field_validator("stalled_after")
    @classmethod
    def _long_enough(cls, seconds: float) -> float:
        if 0 < seconds < 1:
            raise ValueError(f"{seconds} s is too short to be a stall; use 0 (never) or at least 1")
        return seconds


class EvaluationSettings(BaseModel):
    """`[evaluation]`: what is evaluated, how often and with how many samples."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(
        20,
        ge=0,
        description="Steps between evaluations; 0 = only before the first and after the last step.",
    )
    samples: int = Field(
        4,
        ge=1,
        description="Sampled completions per prompt, at the training temperature; one greedy "
        "completion per prompt is added.",
    )
    max_prompts: int | None = Field(
        None,
        ge=1,
        description="Prompts per split at most, chosen by the run's seed and the same in every "
        "evaluation; unset = all.",
    )
    splits: tuple[str, ...] | None = Field(
        None,
        description="Splits to evaluate; unset = every split of the environment. Held-out results "
        "come from all but `train`.",
    )
    pass_at_k: tuple[int, ...] = Field(
        (), description="k values for pass@k; each must be at most `samples`."
    )
    maj_at_k: tuple[int, ...] = Field(
        (), description="k values for the majority vote; each must be at most `samples`."
    )
    guards: tuple[str, ...] = Field(
        (),
        description="Splits evaluated apart as guard sets: other tasks, which must "
        "not get worse. They count in no other evaluation metric.",
    )

    strict_gap_alarm: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Where the strict verifiers' accuracy falls behind the reward's by more than "
        "this, and again each time the gap has grown by as much, a warning is written.",
    )

    @model_validator(mode="after")
    def _k_fits(self) -> EvaluationSettings:
        for name in ("pass_at_k", "maj_at_k"):
            for k in getattr(self, name):
                if not 1 <= k <= self.samples:
                    raise ValueError(
                        f"{name} holds {k}; k must be from 1 to samples ({self.samples}): raise "
                        "samples or lower k"
                    )
        overlap = set(self.guards) & set(self.splits or ())
        if overlap:
            raise ValueError(
                f"guards and splits both name {', '.join(sorted(overlap))}; name it in one of them"
            )
        return self
