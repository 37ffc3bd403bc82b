"""A critic's maths: generalised advantage estimation and the clipped value loss (PPO comparator).

Left out: the critic itself (policies) and whitening (scales). arXiv 1506.02438, 1707.06347.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class GaeOutput:
    """`advantages` (not whitened) and `returns` = advantages + values, [B, T], 0 off the mask."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


def generalised_advantages(
    token_rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Float[Tensor, " B"] | None = None,
) -> GaeOutput:
    """delta_t = r_t + gamma V_{t+1} - V_t; A_t = delta_t + gamma lam A_{t+1}; R_t = A_t + V_t.

    t+1 is the row's next trainable token: environment text is skipped, not stepped through. After
    the last one the value is `bootstrap` [B] (0 for a row that ended; a truncated row may give the
    critic's value of what follows).
    """
    rewards = torch.where(mask, token_rewards, 0)
    value = torch.where(mask, values, 0)
    after = torch.zeros_like(value[:, 0]) if bootstrap is None else bootstrap
    running = torch.zeros_like(after)
    columns: list[Tensor] = []
    for t in range(mask.shape[1] - 1, -1, -1):
        here = mask[:, t]
        delta = rewards[:, t] + gamma * after - value[:, t]
        running = torch.where(here, delta + gamma * lam * running, running)
        after = torch.where(here, value[:, t], after)
        columns.append(torch.where(here, running, 0))
    advantages = torch.stack(columns[::-1], dim=1)
    return GaeOutput(advantages, torch.where(mask, advantages + value, 0))


def clipped_value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    clip: float | None = 0.2,
) -> Float[Tensor, "B T"]:
    """max((V - R)^2, (clip(V, V_old +- clip) - R)^2)/2 a token; `clip` None = plain."""
    plain = (values - returns).square()
    if clip is None:
        return 0.5 * plain
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum(plain, (clipped - returns).square())
