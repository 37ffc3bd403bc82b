"""Spreads: from a row's advantage, or its steps' or tokens', to tokens (slot 5).

A row that has one number keeps it ([B]: every token of the row shares it); step and token values
become [B, T].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.algorithms.parts import Part, part
from groupwise.algorithms.signals import AdvantageInputs, Signal

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


class Spread(Part):
    """Maps values, the `Signal` and `AdvantageInputs` to [B] or [B, T]."""

    slot = "spread"


@part
class Broadcast(Spread):
    """A_{i,t} = A_i."""

    kind = "broadcast"
    text = "A_i,t = A_i"

    def refusal(self, algorithm: Algorithm) -> str | None:
        wanted = {"step": '"suffix_sum"', "token": '"per_token"'}.get(algorithm.transform.scope)
        if wanted is not None:
            kind = algorithm.transform.kind
            return f"transform {kind} gives values within a row; use spread = {wanted}"
        kl = algorithm.kl
        if kl.in_reward and kl.placement == "token_reward" and not algorithm.baseline.critic:
            return 'kl in the token reward needs spread = "suffix_sum" (or baseline = "gae")'
        return None

    def __call__(self, values: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        if values.dim() != 1:
            raise ValueError(
                "spread broadcast takes one advantage a row; step and token values need "
                'spread = "suffix_sum" or "per_token"'
            )
        return values


@part
class SuffixSum(Spread):
    """A_{i,t} = sum over entries j with end(j) >= t of A_{i,j}: steps, or token rewards to go.

    Tokens after the last step's end get 0.
    """

    kind = "suffix_sum"
    text = "A_i,t = Σ over entries j ending at or after t of A_i,j"
    aliases = ("reward_to_go",)
    scope = "step"

    def __call__(self, values: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        if values.dim() == 1:
            return values
        at_tokens = place_at_ends(values, signal, inputs)
        return at_tokens.flip(1).cumsum(1).flip(1)


@part
class PerToken(Spread):
    """A_{i,t} is already a number a token (GAE, GTPO)."""

    kind = "per_token"
    text = "A_i,t: one a token"
    scope = "token"

    def __call__(self, values: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        return values if values.dim() == 1 else place_at_ends(values, signal, inputs)


def place_at_ends(
    values: Float[Tensor, "B S"], signal: Signal, inputs: AdvantageInputs
) -> Float[Tensor, "B T"]:
    """Each entry put (added) at its token; T is the mask's width, or the last end + 1."""
    ends = signal.ends
    if ends is None:
        raise ValueError("values [B, S] need the token index that ends each entry")
    width = inputs.mask.shape[1] if inputs.mask is not None else None
    last = int(torch.where(signal.present, ends, 0).max()) + 1 if ends.numel() else 1
    if width is not None and last > width:
        raise ValueError(f"a step ends at token {last - 1}, but rows have {width} tokens")
    out = values.new_zeros(values.shape[0], width if width is not None else last)
    safe = torch.where(signal.present, ends, 0)
    return out.scatter_add(1, safe, torch.where(signal.present, values, 0))
