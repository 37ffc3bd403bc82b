"""Pre-transforms: from the step's rewards to the signal that a baseline centres (slot 2).

Each part maps `AdvantageInputs` to a `Signal`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.groups import degenerate, ranks, tolerance, z_scores
from groupwise.algorithms.parts import Number, Part, number, part
from groupwise.algorithms.signals import AdvantageInputs, Signal

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


class Transform(Part):
    """Maps `AdvantageInputs` to a `Signal`."""

    slot = "transform"


@part
class Identity(Transform):
    """x_i = R_i: the reward as it is."""

    kind = "identity"
    text = "x_i = R_i"

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        return Signal(inputs.rewards, inputs.scored)


@part
class Rank(Transform):
    """x_i = range - 2 range (rank_i - 1)/(G - 1), rank 1 = best; GOPO, arXiv 2602.03876 [R].

    `range` 2 is the paper's. Ties (within the tolerance) get their average rank, so an all-tied
    group is exactly 0; `ties = "positional"` is the official code's arbitrary order, which gives
    an all-tied group [2, .67, -.67, -2].
    """

    kind = "rank"
    text = "x_i = {range} - 2·{range}·(rank_i - 1)/(G - 1), rank 1 = best, ties: {ties}"
    aliases = ("gopo_rank",)
    hint = "gaussian is gone: a function of AdvantageInputs can give normal scores"
    standardised = True
    range: Number = 2.0
    ties: Literal["average", "positional"] = "average"

    needs = Needs(min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        groups = inputs.groups
        values = groups.gather(inputs.rewards)
        present = groups.gather_present(inputs.scored)
        count = present.sum(1, keepdim=True)
        if self.ties == "average":
            rank = _average_rank(values, present)
        else:
            rank = (ranks(torch.where(present, values, -torch.inf)) + 1).to(values.dtype)
        x = self.range - 2 * self.range * (rank - 1) / (count - 1).clamp(min=1)
        if self.ties == "average":
            x = torch.where(degenerate(values, present).unsqueeze(1), 0, x)
        out = torch.zeros_like(inputs.rewards)
        out[groups.layout[groups.filled]] = torch.where(count > 1, x, 0)[groups.filled]
        return Signal(torch.where(inputs.scored, out, 0), inputs.scored)


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


@part
class ZScoreEach(Transform):
    """x_i = sum_n w_n (r_{n,i} - mean_n)/(std_n + eps), each reward in its group; GDPO 2601.05242.

    Group statistics with the scale slot's ddof and eps, or its own. A component that is NaN is
    outside its own statistics and adds 0. `weights` default to 1 each. The batch normalisation
    that follows is the scale slot's `batch_whiten`; with one component it is skipped there.
    """

    kind = "z_score_each"
    text = "x_i = Σ_n w_n (r_n,i - mean_group r_n)/(std_group r_n + eps){weights:, w = #}"
    aliases = ("decoupled_rewards", "gdpo_normalisation")
    standardised = True
    weights: Annotated[tuple[Number, ...], Field(strict=False, examples=[(1.0, 0.5)])] = ()
    ddof: Annotated[int | None, Field(ge=0, examples=[1])] = None  # type: ignore[assignment]
    eps: Annotated[float | None, Field(ge=0, allow_inf_nan=False, examples=[1e-4])] = None  # type: ignore[assignment]

    needs = Needs(components=True, min_group_size=2)

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
            scores = z_scores(column, scored, inputs.groups, ddof, eps)
            out = out + weight * torch.where(scored, scores, 0)
        return Signal(torch.where(inputs.scored, out, 0), inputs.scored)

    def group_ddof(self, inherited: int) -> tuple[str, int] | None:
        return ("scale", inherited) if self.ddof is None else ("transform", self.ddof)


@part
class Threshold(Transform):
    """x_i = 1[R_i >= at]; RAFT 2304.06767, STaR 2203.14465 (ids [M])."""

    kind = "threshold"
    text = "x_i = 1[R_i ≥ {at}]"
    aliases = ("rejection_sampling",)
    at: Number = 0.5

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        hit = (inputs.rewards >= self.at).to(inputs.rewards.dtype)
        return Signal(torch.where(inputs.scored, hit, 0), inputs.scored)

    def warning(self, algorithm: Algorithm) -> str | None:
        if any(each.selects_rows for each in algorithm.filters):
            return None
        return "transform threshold without filter min_reward: rows below it stay in the mean"


@part
class Steps(Transform):
    """x_{i,j} = the reward of step j of row i; DeepSeekMath process supervision, 2402.03300 [P].

    The baseline and the scale then pool every step of every row of the group.
    """

    kind = "steps"
    text = "x_i,j = reward of step j, pooled over the group"
    aliases = ("process_rewards", "process_supervision")
    scope = "step"

    needs = Needs(step_rewards=True, min_group_size=2)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        if inputs.steps is None:
            raise ValueError("transform steps needs step_rewards, which was not given")
        present = inputs.steps.present & inputs.scored.unsqueeze(1)
        return Signal(torch.where(present, inputs.steps.values, 0), present, ends=inputs.steps.ends)


@part
class PassAtK(Transform):
    """A_i = what completion i adds to the group's pass@k; arXiv 2508.10751, analytic form [I].

    Of N scored completions N_w are wrong (R < success). Rbar = 1 - C(N_w, k)/C(N, k) is the mean of
    the k-subsets' rewards and s = sqrt(Rbar (1 - Rbar)) their deviation. A right one has
    (1 - Rbar)/s, a wrong one (1 - Rbar - C(N_w - 1, k - 1)/C(N - 1, k - 1))/s; all are 0 where
    s = 0, so groups have more than k completions. veRL's `grpo_passk` is another method: only
    the best completion gets the gap to the second best.
    """

    kind = "pass_at_k"
    aliases = ("passk", "pass@k")
    standardised = True
    k: Annotated[int, Field(ge=1)] = 4
    success: Number = 0.5

    @property
    def needs(self) -> Needs:
        return Needs(min_group_size=self.k + 1)

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        groups = inputs.groups
        right = inputs.scored & (inputs.rewards >= self.success)
        total = groups.gather_present(inputs.scored).sum(1)
        wrong = total - groups.gather_present(right).sum(1)
        values = [self._of(n, w) for n, w in zip(total.tolist(), wrong.tolist(), strict=True)]
        table = torch.tensor(values, dtype=inputs.rewards.dtype, device=inputs.rewards.device)
        mine = table.reshape(-1, 2)[groups.index]
        x = torch.where(right, mine[:, 0], mine[:, 1])
        return Signal(torch.where(inputs.scored, x, 0), inputs.scored)

    def _of(self, total: int, wrong: int) -> tuple[float, float]:
        """The advantages of a right and of a wrong completion."""
        if total < self.k:
            return 0.0, 0.0
        mean = 1 - math.comb(wrong, self.k) / math.comb(total, self.k)
        deviation = math.sqrt(mean * (1 - mean))
        if deviation == 0.0:
            return 0.0, 0.0
        others = math.comb(wrong - 1, self.k - 1) / math.comb(total - 1, self.k - 1) if wrong else 0
        return (1 - mean) / deviation, (1 - mean - others) / deviation

    def formula(self) -> str:
        return (
            f"Rbar = 1 - C(wrong, {self.k})/C(G, {self.k}), s = √(Rbar·(1 - Rbar)), x_i = "
            f"(1 - Rbar)/s if R_i ≥ {number(self.success)}, else "
            f"(1 - Rbar - C(wrong - 1, {self.k - 1})/C(G - 1, {self.k - 1}))/s"
        )
