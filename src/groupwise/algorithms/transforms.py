"""Pre-transforms: from the step's rewards to the signal that a baseline centres (slot 2).

Left out: reward shapers (they run on the rewards before), and everything after the transform.
Each part maps `AdvantageInputs` to a `Signal`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.groups import degenerate, masked_mean, masked_std, tolerance
from groupwise.algorithms.parts import Part, number
from groupwise.algorithms.signals import AdvantageInputs, Signal


@dataclass(frozen=True)
class Identity(Part):
    """x_i = R_i: the reward as it is."""

    kind: ClassVar[str] = "identity"

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        return Signal(inputs.rewards, inputs.scored)

    def formula(self) -> str:
        return "x_i = R_i"


@dataclass(frozen=True)
class Rank(Part):
    """x_i = range - 2 range (rank_i - 1)/(G - 1), rank 1 = best; GOPO, arXiv 2602.03876 [R].

    `range` 2 is the paper's. Ties (within the tolerance) get their average rank, so an all-tied
    group is exactly 0; `ties = "positional"` is the official code's arbitrary order, which gives
    an all-tied group [2, .67, -.67, -2]. `gaussian` maps the same ranks to normal scores
    range/2 * Phi^-1((G - rank + 1/2)/G) instead.
    """

    kind: ClassVar[str] = "rank"
    range: float = 2.0
    ties: Literal["average", "positional"] = "average"
    gaussian: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        groups = inputs.groups
        values = groups.gather(inputs.rewards)
        present = groups.gather_present(inputs.scored)
        count = present.sum(1, keepdim=True)
        if self.ties == "average":
            rank = _average_rank(values, present)
        else:
            rank = _positional_rank(values, present)
        if self.gaussian:
            share = (count - rank + 0.5) / count.clamp(min=1)
            x = (
                self.range
                / 2
                * math.sqrt(2)
                * torch.erfinv((2 * share - 1).clamp(-1 + 1e-12, 1 - 1e-12))
            )
        else:
            x = self.range - 2 * self.range * (rank - 1) / (count - 1).clamp(min=1)
        if self.ties == "average":
            x = torch.where(degenerate(values, present).unsqueeze(1), 0, x)
        out = torch.zeros_like(inputs.rewards)
        out[groups.layout[groups.filled]] = x[groups.filled]
        return Signal(
            torch.where(inputs.scored & (count.squeeze(1) > 1)[groups.index], out, 0), inputs.scored
        )

    def formula(self) -> str:
        r = number(self.range)
        if self.gaussian:
            return f"x_i = {r}/2 Φ⁻¹((G - rank_i + 1/2)/G), rank 1 = best, ties: {self.ties}"
        return f"x_i = {r} - 2·{r}·(rank_i - 1)/(G - 1), rank 1 = best, ties: {self.ties}"


def _average_rank(
    values: Float[Tensor, "P G"], present: Bool[Tensor, "P G"]
) -> Float[Tensor, "P G"]:
    """1 + how many are better + half of how many others are equal within the tolerance."""
    gap = values.unsqueeze(1) - values.unsqueeze(2)  # [p, i, j] = v_j - v_i
    near = tolerance(values, present).unsqueeze(2)
    other = present.unsqueeze(1)
    better = (other & (gap > near)).sum(2)
    equal = (other & (gap.abs() <= near)).sum(2) - 1
    return 1.0 + better.to(values.dtype) + equal.to(values.dtype) / 2


def _positional_rank(
    values: Float[Tensor, "P G"], present: Bool[Tensor, "P G"]
) -> Float[Tensor, "P G"]:
    """argsort(argsort(descending)) + 1; ties by row order."""
    key = torch.where(present, values, -torch.inf)
    order = torch.argsort(key, dim=1, descending=True, stable=True)
    return (torch.argsort(order, dim=1, stable=True) + 1).to(values.dtype)


@dataclass(frozen=True)
class ZScoreEach(Part):
    """x_i = sum_n w_n (r_{n,i} - mean_n)/(std_n + eps), each reward in its group; GDPO 2601.05242.

    Group statistics with the scale slot's ddof and eps, or its own. A component that is NaN is
    outside its own statistics and adds 0. `weights` default to 1 each. The batch normalisation
    that follows is the scale slot's `batch_whiten`; with one component it is skipped there.
    """

    kind: ClassVar[str] = "z_score_each"
    weights: tuple[float, ...] = ()
    ddof: int | None = None
    eps: float | None = None

    @property
    def needs(self) -> Needs:
        return Needs(components=True, min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        components = inputs.need("components", "transform z_score_each")
        num = components.shape[1]
        weights = self.weights or (1.0,) * num
        if len(weights) != num:
            raise ValueError(f"z_score_each has {len(weights)} weights for {num} components")
        ddof = inputs.ddof if self.ddof is None else self.ddof
        eps = inputs.eps if self.eps is None else self.eps
        out = torch.zeros_like(inputs.rewards)
        for n, weight in enumerate(weights):
            scored = inputs.scored & ~components[:, n].isnan()
            column = torch.where(scored, components[:, n], 0)
            out = out + weight * z_score(column, scored, inputs, ddof, eps)
        return Signal(torch.where(inputs.scored, out, 0), inputs.scored)

    def formula(self) -> str:
        weights = f", w = {list(self.weights)}" if self.weights else ""
        return f"x_i = Σ_n w_n (r_n,i - mean_group r_n)/(std_group r_n + eps){weights}"


def z_score(
    values: Float[Tensor, " B"],
    present: Bool[Tensor, " B"],
    inputs: AdvantageInputs,
    ddof: int,
    eps: float,
) -> Float[Tensor, " B"]:
    """(x - mean)/(std + eps) within each group; 0 in degenerate groups and where absent."""
    groups = inputs.groups
    packed, there = groups.gather(values), groups.gather_present(present)
    flat = degenerate(packed, there, ddof)
    mean = groups.spread_back(masked_mean(packed, there))
    std = torch.where(flat, 1, masked_std(packed, there, ddof) + eps)
    use = present & ~flat[groups.index]
    return torch.where(use, (values - mean) / groups.spread_back(std), 0)


@dataclass(frozen=True)
class Threshold(Part):
    """x_i = 1[R_i >= at]; RAFT 2304.06767, STaR 2203.14465 (ids [M])."""

    kind: ClassVar[str] = "threshold"
    at: float = 0.5

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        hit = (inputs.rewards >= self.at).to(inputs.rewards.dtype)
        return Signal(torch.where(inputs.scored, hit, 0), inputs.scored)

    def formula(self) -> str:
        return f"x_i = 1[R_i ≥ {number(self.at)}]"


@dataclass(frozen=True)
class Steps(Part):
    """x_{i,j} = the reward of step j of row i; DeepSeekMath process supervision, 2402.03300 [P].

    The baseline and the scale then pool every step of every row of the group.
    """

    kind: ClassVar[str] = "steps"

    @property
    def needs(self) -> Needs:
        return Needs(step_rewards=True, min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        if inputs.steps is None:
            raise ValueError("transform steps needs step_rewards, which was not given")
        present = inputs.steps.present & inputs.scored.unsqueeze(1)
        return Signal(torch.where(present, inputs.steps.values, 0), present, ends=inputs.steps.ends)

    def formula(self) -> str:
        return "x_i,j = reward of step j, pooled over the group"


TRANSFORMS = (Identity, Rank, ZScoreEach, Threshold, Steps)
