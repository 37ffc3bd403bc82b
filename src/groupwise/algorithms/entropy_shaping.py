"""Entropy-shaped rewards: GTPO (a number a token) and GRPO-S (a number a row), arXiv 2508.04349.

Not settled: the paper's equation 6 was not read. Its population is `pool`. "all" (the default)
normalises each set over every entry of the group, the zeros that the paper's equation 3 gives the
other set included, and keeps the sign of the outcome. "set" normalises within O+ and within O-
(a third party's reading): each set's advantages then sum to 0 and the outcome is erased.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs, Scope
from groupwise.algorithms.groups import masked_mean, z_scores
from groupwise.algorithms.parts import Number, Positive, number, part
from groupwise.algorithms.signals import AdvantageInputs, Signal
from groupwise.algorithms.transforms import Transform


@part
class EntropyShaped(Transform):
    """Shaped rewards of O+ (R >= success) and O- (the others), then z-scores, per group.

    level "token" (GTPO), d_t, h_t = rows of the set that still have a token at t:
        x+_{i,t} = a1 + a2 d_t H_{i,t} / sum_{k in O+} H_{k,t}
        x-_{i,t} = -a1 - a2 h_t (1/H_{i,t}) / sum_{k in O-} 1/H_{k,t}
    level "sequence" (GRPO-S): the same with a row's mean entropy and the number of rows.
    Entropies are detached numbers of the full distribution, floored at `floor` (1/H explodes).
    A group without both sets carries no outcome: its advantages are 0.
    """

    kind = "entropy_shaped"
    standardised = True
    level: Literal["token", "sequence"] = "token"
    a1: Number = 1.0
    a2: Number = 0.1
    success: Number = 0.5
    pool: Literal["all", "set"] = "all"
    floor: Positive = 1e-6

    @property
    def scope(self) -> Scope:  # type: ignore[override]
        return "token" if self.level == "token" else "row"

    def group_ddof(self, inherited: int) -> tuple[str, int] | None:
        return "scale", inherited

    needs = Needs(entropies="detached", min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        part = "transform entropy_shaped"
        mask = inputs.need("mask", part)
        entropy = torch.where(mask, inputs.need("entropies", part), 0)
        if self.level == "sequence":
            entropy = masked_mean(entropy, mask).unsqueeze(1)
            mask = mask.any(1, keepdim=True)
        present = mask & inputs.scored.unsqueeze(1)
        won = present & (inputs.rewards >= self.success).unsqueeze(1)
        both = _any_of_group(won, inputs) & _any_of_group(present & ~won, inputs)
        present, won = present & both, won & both
        lost = present & ~won
        advantage = torch.zeros_like(entropy)
        for members, sign in ((won, 1.0), (lost, -1.0)):
            shaped = self.shaped(entropy, members, sign, inputs)
            population = members if self.pool == "set" else present
            scores = z_scores(shaped, population, inputs.groups, inputs.ddof, inputs.eps)
            advantage = torch.where(members, scores, advantage)
        scored = mask & inputs.scored.unsqueeze(1)
        if self.level == "sequence":
            return Signal(advantage.squeeze(1), scored.squeeze(1))
        ends = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
        return Signal(advantage, scored, ends=ends)

    def shaped(
        self,
        entropy: Float[Tensor, "B S"],
        members: Bool[Tensor, "B S"],
        sign: float,
        inputs: AdvantageInputs,
    ) -> Float[Tensor, "B S"]:
        """The shaped reward of one set, 0 outside it. Shares are within the set at the same t."""
        floored = entropy.clamp(min=self.floor)
        amount = torch.where(members, floored if sign > 0 else 1 / floored, 0)
        index = inputs.groups.index
        total = _per_group_sum(amount, inputs)[index]
        alive = _per_group_sum(members.to(entropy.dtype), inputs)[index]
        share = alive * amount / torch.where(total > 0, total, 1)
        return torch.where(members, sign * (self.a1 + self.a2 * share), 0)

    def formula(self) -> str:
        a1, a2 = number(self.a1), number(self.a2)
        pool = "all of the group's entries" if self.pool == "all" else "its own set"
        h = "H_i,t" if self.level == "token" else "mean_t H_i,t"
        return (
            f"x⁺ = {a1} + {a2}·n⁺·{h}/Σ_O⁺ {h};  x⁻ = -{a1} - {a2}·n⁻·(1/{h})/Σ_O⁻ (1/{h});  "
            f"each z-scored over {pool}"
        )


def _any_of_group(members: Bool[Tensor, "B S"], inputs: AdvantageInputs) -> Bool[Tensor, "B 1"]:
    """True at rows whose group has a member anywhere."""
    return inputs.groups.gather_present(members).any(1)[inputs.groups.index].unsqueeze(1)


def _per_group_sum(values: Float[Tensor, "B S"], inputs: AdvantageInputs) -> Float[Tensor, "P S"]:
    """Sum over the rows of each group, column by column."""
    groups = inputs.groups
    return torch.where(groups.filled.unsqueeze(2), values[groups.layout], 0).sum(1)
