"""What a step's updates add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise.algorithms import MetricSums

WORK = ("forward/tokens", "forward/projected", "forward/micro_batches")
"""What the decoder and the head ran over in a step, all passes."""


@dataclass(slots=True)
class Accumulated:
    """What the micro-batches of one update add up to, beside the gradients."""

    sums: MetricSums = field(default_factory=MetricSums)
    loss: float = 0.0
    value_loss: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Accumulated) -> Accumulated:
        return Accumulated(
            self.sums + other.sums,
            self.loss + other.loss,
            self.value_loss + other.value_loss,
            self.moved + other.moved,
        )


@dataclass(slots=True)
class StepReport:
    """Running sums of one step's updates; `metrics()` closes them."""

    sums: MetricSums = field(default_factory=MetricSums)
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    value_losses: list[float] = field(default_factory=list)
    value_norms: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    updates: int = 0
    skipped: int = 0
    nonfinite: int = 0

    def metrics(self) -> dict[str, float | None]:
        critic = {
            "value/loss": _mean(self.value_losses),
            "value/grad_norm": _mean(self.value_norms),
        }
        return {
            **self.sums.finish(),
            **(critic if self.value_losses else {}),
            "loss": _mean(self.losses),
            "grad_norm": _mean(self.grad_norms),
            "learning_rate": self.learning_rate,
            "updates": self.updates,
            "updates/skipped": self.skipped,
            "updates/nonfinite": self.nonfinite,
        }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
