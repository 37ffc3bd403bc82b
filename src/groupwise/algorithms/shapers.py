"""Reward shapers: what is added to a row's reward before any statistics (slot 1).

Format and language rewards are verifiers; here are only the shapers that read lengths or entropies.
A reward that is NaN (not scored) stays NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.parts import NonNegative, Part, Positive, number, part


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
