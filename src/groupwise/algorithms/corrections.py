"""Corrections for a sampler that is not quite the learner: w = exp(old - sampler), slot 10.

The weight is detached and multiplies the policy term only, never the KL term. It compares the
learner at the start of the update with the sampler, so it is not for a ratio that is anchored to
the sampler already (that would count the mismatch twice). A discarded token keeps its place in the
denominator. TIS: Yao et al. 2025 (blog); MIS: IcePop 2510.18855 and its sequence form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.kl import MAX_LOG_RATIO
from groupwise.algorithms.parts import Part, number, part
from groupwise.algorithms.ratios import row_mean
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

Level = Literal["token", "sequence_product", "sequence_geometric"]


@dataclass(frozen=True, slots=True)
class CorrectionOutput:
    """`weight` [B, T] multiplies the policy term; `raw` [B, T] is w before the operation; `kept`
    [B, T] is False where the weight is 0; `per_row`: all of a row's tokens share one raw w."""

    weight: Float[Tensor, "B T"]
    raw: Float[Tensor, "B T"]
    kept: Bool[Tensor, "B T"]
    per_row: bool


class Correction(Part):
    """Maps log w = old - sampler and the mask [B, T] to a `CorrectionOutput`."""

    slot = "correction"

    def refusal(self, algorithm: Algorithm) -> str | None:
        if not self.active or algorithm.anchor != "sampler":
            return None
        return (
            "a correction weighs learner against sampler, and a ratio anchored to the sampler "
            'does so already: the mismatch would count twice; use correction = "none" or anchor '
            '= "old"'
        )


@part
class NoCorrection(Correction):
    """w = 1."""

    kind = "none"
    text = "no correction"
    active = False


@part
class Weighing(Correction):
    """The three operations share level and bounds.

    level: token w_t; sequence_product Π_t w_t (the importance weight of the completion);
    sequence_geometric (Π_t w_t)^(1/n). Where both bounds are left out, the token level has the
    operation's defaults; the sequence levels need an explicit bound. A single bound leaves the
    other side open.
    """

    level: Level = "token"
    low: Annotated[float | None, Field(ge=0, allow_inf_nan=False, examples=[0.5])] = None
    high: Annotated[float | None, Field(ge=0, allow_inf_nan=False, examples=[2.0])] = None
    defaults: ClassVar[tuple[float | None, float | None]] = (None, None)
    needs = Needs(sampler_logprobs=True)

    def __post_init__(self) -> None:
        if self.level != "token" and self.low is None and self.high is None:
            raise RecipeError(
                f"algorithm.correction: {self.kind} at level {self.level!r} needs an explicit "
                'bound, for example high = 3.0; only level = "token" has defaults'
            )
        low, high = self.bounds
        if low > high:
            raise RecipeError(f"algorithm.correction: low = {low} is above high = {high}")

    @property
    def bounds(self) -> tuple[float, float]:
        """(lowest, highest) weight; 0 and inf where that side is open."""
        low, high = self.defaults if self.low is self.high is None else (self.low, self.high)
        return 0.0 if low is None else low, math.inf if high is None else high

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
        return (raw >= low) & (raw <= high)

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        """(weight, kept) from the raw weight."""
        raise TypeError(f"{type(self).__name__} is only a base")

    def __call__(self, log_w: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> CorrectionOutput:
        raw = self.raw(log_w.detach(), mask)
        weight, kept = self.weigh(raw)
        return CorrectionOutput(weight, raw, kept, per_row=self.level != "token")

    def formula(self) -> str:
        name = {
            "token": "w_t = exp(old - sampler)",
            "sequence_product": "w = exp(Σ_t (old - sampler))",
            "sequence_geometric": "w = exp(mean_t (old - sampler))",
        }[self.level]
        low, high = (number(bound).replace("inf", "∞") for bound in self.bounds)
        return self.text.format(w=name, low=low, high=high)


@part
class Truncate(Weighing):
    """TIS, truncated importance sampling: weight = clip(w, low, high); token default: high 2.

    Bounds how much one token can weigh and keeps every token: the choice for a sampler that differs
    by rounding. Yao et al. 2025 (blog).
    """

    kind = "truncate"
    text = "f ← sg[clip({w}, {low}, {high})]·f"
    aliases = ("tis", "truncated_importance_sampling", "vllm_importance_sampling_correction")
    defaults = (None, 2.0)

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        low, high = self.bounds
        return raw.clamp(min=low, max=high), torch.ones_like(raw, dtype=torch.bool)


@part
class Mask(Weighing):
    """MIS, masked importance sampling: weight = w where low <= w <= high, else 0; token default
    [0.5, 2].

    Drops what the learner and the sampler disagree on: the choice where some tokens are far off
    (another engine, an older policy). IcePop 2510.18855 and its sequence form.
    """

    kind = "mask"
    text = "f ← sg[w·1[{low} ≤ w ≤ {high}]]·f, {w}"
    aliases: ClassVar[tuple[str, ...]] = (
        "mis",
        "masked_importance_sampling",
        "icepop",
        "token_mask",
        "sequence_mask",
    )
    defaults = (0.5, 2.0)

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        kept = self.inside(raw)
        return torch.where(kept, raw, 0), kept


@part
class MaskOnly(Mask):
    """weight = 1 where low <= w <= high, else 0: rejection without the importance weight.

    Often taken for MIS, which keeps the weight.
    """

    kind = "mask_only"
    text = "f ← 1[{low} ≤ w ≤ {high}]·f, {w}"
    aliases: ClassVar[tuple[str, ...]] = ("rollout_rejection", "rejection_without_weight")

    def weigh(self, raw: Float[Tensor, "B T"]) -> tuple[Tensor, Tensor]:
        kept = self.inside(raw)
        return kept.to(raw.dtype), kept
