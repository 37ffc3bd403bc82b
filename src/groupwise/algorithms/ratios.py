"""Ratio levels: from the masked log-ratio lp - anchor to the ratio at every token (slot 6).

Left out: which log-probabilities the anchor is, and what is done with the ratio. The log-ratio
arrives as 0 under a False mask, before any exp; logs are clamped to +-20 (no gradient beyond).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.kl import MAX_LOG_RATIO
from groupwise.algorithms.parts import Part


def bounded_exp(log: Tensor) -> Tensor:
    """exp of a log-ratio clamped to +-20."""
    return log.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def row_mean(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Mean over a row's trainable tokens, 0 for an empty row; `values` are 0 off the mask."""
    return values.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class RatioPart(Part):
    """A ratio level; `per_row` where all tokens of a row share one ratio."""

    per_row: ClassVar[bool] = False

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        raise TypeError(f"{type(self).__name__} is only the base of the ratio levels")


@dataclass(frozen=True)
class NoRatio(RatioPart):
    """No ratio: the surrogate reads the log-probability itself."""

    kind: ClassVar[str] = "none"

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return torch.ones_like(log_ratio)

    def formula(self) -> str:
        return "no ratio"


@dataclass(frozen=True)
class TokenRatio(RatioPart):
    """r_{i,t} = exp(lp_{i,t} - anchor_{i,t})."""

    kind: ClassVar[str] = "token"

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return bounded_exp(log_ratio)

    def formula(self) -> str:
        return "r_i,t = exp(lp_i,t - {anchor}_i,t)"


@dataclass(frozen=True)
class SequenceGeometric(RatioPart):
    """r_i = exp((1/n_i) sum_t (lp - anchor)); GSPO, 2507.18071."""

    kind: ClassVar[str] = "sequence_geometric"
    per_row: ClassVar[bool] = True

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return bounded_exp(row_mean(log_ratio, mask)).expand(log_ratio.shape)

    def formula(self) -> str:
        return "r_i = exp((1/n_i)·Σ_t (lp_i,t - {anchor}_i,t))"


@dataclass(frozen=True)
class SequenceToken(RatioPart):
    """r_{i,t} = sg[s_i] exp(lp - sg[lp]), s_i the geometric mean; GSPO-token, 2507.18071.

    The value is the sequence's, the gradient the token's own.
    """

    kind: ClassVar[str] = "sequence_token"

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        value = bounded_exp(row_mean(log_ratio, mask)).detach()
        return value * (log_ratio - log_ratio.detach()).nan_to_num(0.0).exp()

    def formula(self) -> str:
        return "r_i,t = sg[exp((1/n_i)·Σ_t (lp - {anchor}))]·exp(lp_i,t - sg[lp_i,t])"


@dataclass(frozen=True)
class SequenceProduct(RatioPart):
    """r_i = exp(sum_t (lp - anchor)): the importance weight of the whole completion."""

    kind: ClassVar[str] = "sequence_product"
    per_row: ClassVar[bool] = True

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return bounded_exp(log_ratio.sum(1, keepdim=True)).expand(log_ratio.shape)

    def formula(self) -> str:
        return "r_i = exp(Σ_t (lp_i,t - {anchor}_i,t))"


@dataclass(frozen=True)
class SequenceArithmetic(RatioPart):
    """r_i = (1/n_i) sum_t exp(lp - anchor); GRPO-S, 2508.04349 [M]."""

    kind: ClassVar[str] = "sequence_arithmetic"
    per_row: ClassVar[bool] = True

    def __call__(
        self, log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        ratio = torch.where(mask, bounded_exp(log_ratio), 0)
        mean = row_mean(ratio, mask)
        return torch.where(mask.any(1, keepdim=True), mean, 1).expand(log_ratio.shape)

    def formula(self) -> str:
        return "r_i = (1/n_i)·Σ_t exp(lp_i,t - {anchor}_i,t)"


RATIOS = (
    NoRatio,
    TokenRatio,
    SequenceGeometric,
    SequenceToken,
    SequenceProduct,
    SequenceArithmetic,
)
