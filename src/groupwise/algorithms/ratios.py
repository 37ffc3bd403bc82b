"""Ratio levels: from the masked log-ratio lp - anchor to the ratio at every token (slot 6).

The log-ratio arrives as 0 under a False mask, before any exp; logs are clamped to +-20 (no gradient
beyond).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.algorithms.contracts import TokenMask, Tokens
from groupwise.algorithms.kl import MAX_LOG_RATIO
from groupwise.algorithms.parts import Part, part

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


def bounded_exp(log: Tensor) -> Tensor:
    """exp of a log-ratio clamped to +-20."""
    return log.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def row_mean(values: Tokens, mask: TokenMask) -> Float[Tensor, "B 1"]:
    """Mean over a row's trainable tokens, 0 for an empty row; `values` are 0 off the mask."""
    return values.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


class Ratio(Part):
    """Maps a log-ratio and a mask [B, T] to the ratio [B, T]."""

    slot = "ratio"

    def refusal(self, algorithm: Algorithm) -> str | None:
        if (algorithm.anchor == "none") != self.active:
            return None
        return (
            f"anchor {algorithm.anchor!r} and ratio {self.kind!r} do not go together; a ratio "
            'needs the anchor "old" or "sampler", and ratio "none" the anchor "none"'
        )


@part
class NoRatio(Ratio):
    """No ratio: the surrogate reads the log-probability itself."""

    kind = "none"
    text = "no ratio"
    active = False

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        return torch.ones_like(log_ratio)


@part
class TokenRatio(Ratio):
    """r_{i,t} = exp(lp_{i,t} - anchor_{i,t})."""

    kind = "token"
    text = "r_i,t = exp(lp_i,t - {{anchor}}_i,t)"
    aliases = ("importance_ratio", "coef_1")

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        return bounded_exp(log_ratio)


@part
class SequenceGeometric(Ratio):
    """r_i = exp((1/n_i) sum_t (lp - anchor)); GSPO, 2507.18071."""

    kind = "sequence_geometric"
    text = "r_i = exp((1/n_i)·Σ_t (lp_i,t - {{anchor}}_i,t))"
    aliases = ("sequence", "importance_sampling_level=sequence")
    per_row = True

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        return bounded_exp(row_mean(log_ratio, mask)).expand(log_ratio.shape)


@part
class SequenceToken(Ratio):
    """r_{i,t} = sg[s_i] exp(lp - sg[lp]), s_i the geometric mean; GSPO-token, 2507.18071.

    The value is the sequence's, the gradient the token's own.
    """

    kind = "sequence_token"
    text = "r_i,t = sg[exp((1/n_i)·Σ_t (lp - {{anchor}}))]·exp(lp_i,t - sg[lp_i,t])"

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        value = bounded_exp(row_mean(log_ratio, mask)).detach()
        return value * (log_ratio - log_ratio.detach()).nan_to_num(0.0).exp()


@part
class SequenceProduct(Ratio):
    """r_i = exp(sum_t (lp - anchor)): the importance weight of the whole completion."""

    kind = "sequence_product"
    text = "r_i = exp(Σ_t (lp_i,t - {{anchor}}_i,t))"
    per_row = True

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        return bounded_exp(log_ratio.sum(1, keepdim=True)).expand(log_ratio.shape)


@part
class SequenceArithmetic(Ratio):
    """r_i = (1/n_i) sum_t exp(lp - anchor); GRPO-S, 2508.04349 [M]."""

    kind = "sequence_arithmetic"
    text = "r_i = (1/n_i)·Σ_t exp(lp_i,t - {{anchor}}_i,t)"
    per_row = True

    def __call__(self, log_ratio: Tokens, mask: TokenMask) -> Tokens:
        ratio = torch.where(mask, bounded_exp(log_ratio), 0)
        mean = row_mean(ratio, mask)
        return torch.where(mask.any(1, keepdim=True), mean, 1).expand(log_ratio.shape)
