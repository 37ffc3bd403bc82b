"""Reward shapers: what is added to a row's reward before any statistics (slot 1).

Format and language rewards are verifiers; here are only the shapers that read lengths or entropies.
A reward that is NaN (not scored) stays NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.groups import masked_mean
from groupwise.algorithms.parts import NonNegative, Number, Part, Positive, number, part


@dataclass(frozen=True, slots=True)
class ShaperInputs:
    """One entry a row: `lengths` [B] in completion tokens; entropies [B, T] with their mask."""

    lengths: Float[Tensor, " B"]
    truncated: Bool[Tensor, " B"]
    max_tokens: int
    entropies: Float[Tensor, "B T"] | None = None
    mask: Bool[Tensor, "B T"] | None = None


class Shaper(Part):
    """Called with `ShaperInputs`, gives the amount added to each reward [B]."""

    slot = "shapers"


@part
class SoftOverlong(Shaper):
    """0 up to L - C tokens, then ((L - C) - n)/C, never below -1, times `penalty`; DAPO [P].

    L = max_tokens. `cache` is the width C, not a threshold: up to 1 a share of L, above 1 tokens.
    """

    kind = "soft_overlong"
    aliases = ("soft_overlong_punishment", "overlong_buffer")
    cache: Positive = 0.2
    penalty: NonNegative = 1.0

    def __call__(self, inputs: ShaperInputs) -> Float[Tensor, " B"]:
        width = self.cache * inputs.max_tokens if self.cache <= 1 else self.cache
        over = (inputs.max_tokens - width - inputs.lengths) / width
        return self.penalty * over.clamp(-1, 0)

    def formula(self) -> str:
        width = f"{number(self.cache)}·L" if self.cache <= 1 else number(self.cache)
        return f"R_i ← R_i + {number(self.penalty)}·clip(((L - C) - n_i)/C, -1, 0), C = {width}"


@part
class EntropyReward(Shaper):
    """R_i + coef * mean_t H_{i,t}: entropy added to the reward, which is not an entropy bonus.

    No gradient goes through the entropy; it shifts advantages.
    """

    kind = "entropy_reward"
    text = "R_i ← R_i + {coef}·mean_t H_i,t"
    coef: Number = 0.01

    needs = Needs(entropies="detached")

    def __call__(self, inputs: ShaperInputs) -> Float[Tensor, " B"]:
        if inputs.entropies is None or inputs.mask is None:
            raise ValueError("shaper entropy_reward needs entropies and mask, which were not given")
        entropies = torch.where(inputs.mask, inputs.entropies.detach(), 0).to(inputs.lengths.dtype)
        return self.coef * masked_mean(entropies, inputs.mask)
