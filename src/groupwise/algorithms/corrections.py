"""Corrections for a sampler that is not quite the learner: w = exp(old - sampler), slot 10.

The weight is detached and multiplies the policy term only, never the KL term. It compares the
learner at the start of the update with the sampler, so it is not for a ratio that is anchored to
the sampler already (that would count the mismatch twice). A discarded token keeps its place in the
denominator. TIS: Yao et al. 2025 (blog); MIS: IcePop 2510.18855 and its sequence form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.kl import MAX_LOG_RATIO
from groupwise.algorithms.parts import Part, number
from groupwise.algorithms.ratios import row_mean
from groupwise.errors import RecipeError

Level = Literal["token", "sequence_product", "sequence_geometric"]


@dataclass(frozen=True, slots=True)
class CorrectionOutput:
    """`weight` [B, T] multiplies the policy term; `raw` [B, T] is w before the operation; `kept`
    [B, T] is False where the weight is 0; `per_row`: all of a row's tokens share one raw w."""

    weight: Float[Tensor, "B T"]
    raw: Float[Tensor, "B T"]
    kept: Bool[Tensor, "B T"]
    per_row: bool


@dataclass(frozen=True)
class NoCorrection(Part):
    """w = 1."""

    kind: ClassVar[str] = "none"

    def formula(self) -> str:
        return "no correction"


@dataclass(frozen=True)
class CorrectionPart(Part):
    """The three operations share level and bounds.

    level: token w_t; sequence_product Π_t w_t (the importance weight of the completion);
    sequence_geometric (Π_t w_t)^(1/n). Where both bounds are left out, the token level has the
    operation's defaults; the sequence levels need an explicit bound. A single bound leaves the
    other side open.
    """

    level: Level = "token"
    low: float | None = None
    high: float | None = None
    default_low: ClassVar[float | None] = None
    default_high: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        if self.level != "token" and self.low is None and self.high is None:
            raise RecipeError(
                f"algorithm.correction: {self.kind} at level {self.level!r} needs an explicit "
                'bound, for example high = 3.0; only level = "token" has defaults'
            )
        low, high = self.bounds
        if low is not None and high is not None and low > high:
            raise RecipeError(f"algorithm.correction: low = {low} is above high = {high}")

    @property
    def needs(self) -> Needs:
        return Needs(sampler_logprobs=True)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """(lowest, highest) weight; None = open."""
        if self.low is None and self.high is None:
            return self.default_low, self.default_high
        return self.low, self.high

    def raw(self, log_w: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """w at the level, [B, T]; `log_w` = old - sampler, 0 off the mask."""
        if self.level == "sequence_product":
            log_w = log_w.sum(1, keepdim=True).expand(mask.shape)
        elif self.level == "sequence_geometric":
            log_w = row_mean(log_w, mask).expand(mask.shape)
        return log_w.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()

    def inside(self, raw: Float[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """True where low <= w <= high."""
        low, high = self.bounds
        ok = torch.ones_like(raw, dtype=torch.bool)
        if low is not None:
            ok = ok & (raw >= low)
        if high is not None:
            ok = ok & (raw <= high)
        return ok

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        """(weight, kept) from the raw weight."""
        raise TypeError(f"{type(self).__name__} is only the base of the corrections")

    def __call__(self, log_w: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> CorrectionOutput:
        raw = self.raw(log_w.detach(), mask)
        weight, kept = self.weigh(raw)
        return CorrectionOutput(weight, raw, kept, per_row=self.level != "token")

    def _name(self) -> str:
        return {
            "token": "w_t = exp(old - sampler)",
            "sequence_product": "w = exp(Σ_t (old - sampler))",
            "sequence_geometric": "w = exp(mean_t (old - sampler))",
        }[self.level]

    def _range(self) -> tuple[str, str]:
        low, high = self.bounds
        return ("0" if low is None else number(low), "∞" if high is None else number(high))


@dataclass(frozen=True)
class Truncate(CorrectionPart):
    """TIS: weight = clip(w, low, high); token default: high 2."""

    kind: ClassVar[str] = "truncate"
    default_high: ClassVar[float | None] = 2.0

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        low, high = self.bounds
        return raw.clamp(min=low, max=high), torch.ones_like(raw, dtype=torch.bool)

    def formula(self) -> str:
        low, high = self._range()
        return f"f ← sg[clip({self._name()}, {low}, {high})]·f"


@dataclass(frozen=True)
class Mask(CorrectionPart):
    """MIS: weight = w where low <= w <= high, else 0; token default: [0.5, 2]."""

    kind: ClassVar[str] = "mask"
    default_low: ClassVar[float | None] = 0.5
    default_high: ClassVar[float | None] = 2.0

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        kept = self.inside(raw)
        return torch.where(kept, raw, 0), kept

    def formula(self) -> str:
        low, high = self._range()
        return f"f ← sg[w·1[{low} ≤ w ≤ {high}]]·f, {self._name()}"


@dataclass(frozen=True)
class MaskOnly(Mask):
    """weight = 1 where low <= w <= high, else 0: rejection without the importance weight.

    Often taken for MIS, which keeps the weight.
    """

    kind: ClassVar[str] = "mask_only"

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        kept = self.inside(raw)
        return kept.to(raw.dtype), kept

    def formula(self) -> str:
        low, high = self._range()
        return f"f ← 1[{low} ≤ w ≤ {high}]·f, {self._name()}"


CORRECTIONS = (NoCorrection, Truncate, Mask, MaskOnly)
