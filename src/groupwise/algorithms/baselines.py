"""Baselines: what a signal is compared with (slot 3). Each maps a `Signal` to centred values.

Degenerate groups come out as exactly 0 wherever the baseline is the group's
own mean (see `groups.degenerate`), and so does a row that is the only scored one of its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.groups import degenerate, masked_mean, z_scores
from groupwise.algorithms.parts import Count, NonNegative, Part, Share, part
from groupwise.algorithms.signals import AdvantageInputs, Signal
from groupwise.algorithms.state import RewardHistory

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


class Baseline(Part):
    """Maps a `Signal` and `AdvantageInputs` to centred values."""

    slot = "baseline"


@part
class NoBaseline(Baseline):
    """b = 0."""

    kind = "none"
    text = "b_i = 0"
    active = False

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        return signal.values


@part
class GroupMean(Baseline):
    """b = mean of the group's scored entries (every step pooled, for step rewards).

    The expected gradient is (1 - 1/G) times the true one: a rescaling, not a bias. `group_size`
    asks for exactly that many completions a prompt (2-GRPO: 2).
    """

    kind = "group_mean"
    text = "b_i = mean of x over the group{group_size:, G = #}"
    group_size: Annotated[int | None, Field(ge=2, examples=[2])] = None

    @property
    def needs(self) -> Needs:
        return Needs(min_group_size=2, group_size=self.group_size)

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        groups = inputs.groups
        packed, there = groups.gather(signal.values), groups.gather_present(signal.present)
        mean = groups.spread_back(masked_mean(packed, there))
        flat = degenerate(packed, there)[groups.index]
        return torch.where(signal.per_row(flat), 0, signal.values - signal.per_row(mean))


@part
class LeaveOneOut(Baseline):
    """b_i = mean of the group's other scored entries: x - b = n/(n-1) (x - mean); 2402.14740."""

    kind = "leave_one_out"
    text = "b_i = mean of x over the group without i"
    aliases = ("loo",)

    needs = Needs(min_group_size=2)

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        count = inputs.groups.gather_present(signal.present).sum(1).to(signal.values.dtype)
        factor = inputs.groups.spread_back(count / (count - 1).clamp(min=1))
        return signal.per_row(factor) * GroupMean()(signal, inputs)


@part
class LengthWeightedMean(Baseline):
    """b = Σ n_i R_i / Σ n_i over the group, n_i = trainable tokens; OPO, arXiv 2505.23585 [I].

    The baseline with the least variance if a completion's squared gradient norm grows with its
    length. A group without a trainable token has b = 0.
    """

    kind = "length_weighted_mean"
    text = "b_i = Σ n_j x_j / Σ n_j over the group"
    aliases = ("opo_baseline", "optimal_baseline")
    needs = Needs(min_group_size=2)

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        if signal.values.dim() != 1:
            raise ValueError(
                "baseline length_weighted_mean takes one number a row, not step values"
            )
        groups, lengths = inputs.groups, inputs.need("mask", "baseline length_weighted_mean").sum(1)
        packed, there = groups.gather(signal.values), groups.gather_present(signal.present)
        weights = torch.where(there, groups.gather(lengths), 0).to(packed.dtype)
        mean = (weights * packed).sum(1) / weights.sum(1).clamp(min=1)
        flat = degenerate(packed, there)[groups.index]
        return torch.where(flat, 0, signal.values - groups.spread_back(mean))


@part
class BatchMean(Baseline):
    """b = mean over every scored row of the step."""

    kind = "batch_mean"
    text = "b = mean of x over the step's scored rows"

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        packed = signal.values.reshape(1, -1)
        there = batch_population(signal.present, inputs).reshape(1, -1)
        flat = bool(degenerate(packed, there)) and int(there.sum()) > 0
        centred = signal.values - masked_mean(packed, there)
        return torch.zeros_like(centred) if flat else centred


@part
class Greedy(Baseline):
    """b = reward of the prompt's greedy completion, which is not trained on; ReMax, 2310.10505 [M].

    Where the greedy completion was not scored the group's advantages are 0.
    """

    kind = "greedy"
    text = "b_i = reward of the prompt's greedy completion"
    aliases = ("remax_baseline",)

    needs = Needs(greedy=True)

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        greedy = inputs.need("greedy_rewards", "baseline greedy")
        known = signal.per_row(~greedy.isnan())
        return torch.where(known, signal.values - signal.per_row(greedy.nan_to_num(0.0)), 0)


@part
class Smoothed(Baseline):
    """DCPO's smooth advantage standardisation, arXiv 2509.02333 [R]: centred and scaled at once.

    At the i-th visit of a prompt, A_new = z-score in the group, A_tot = z-score against every
    reward of the prompt so far (this visit included, pooled from stored sums):
    SA_new = ((i-1) A_new + A_tot)/i, SA_tot = (A_new + (i-1) A_tot)/i; A = the smaller in size.
    Without a state every visit is the first, and A = A_new.
    """

    kind = "smoothed"
    text = (
        "A_i = the smaller in size of ((v-1)·A_new + A_all)/v and (A_new + (v-1)·A_all)/v at "
        "visit v; A_new = z-score in the group, A_all = against all the prompt's rewards"
    )
    aliases = ("sas", "smooth_advantage_standardisation")
    final = True
    ddof: Count = 0
    eps: NonNegative = 0.0

    needs = Needs(min_group_size=2, state=True)

    def refusal(self, algorithm: Algorithm) -> str | None:
        if algorithm.scale.active:
            return 'baseline smoothed is scaled already; use scale = "none"'
        return None

    def group_ddof(self, inherited: int) -> tuple[str, int] | None:
        return "baseline", self.ddof

    def __call__(self, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        if signal.values.dim() != 1:
            raise ValueError("baseline smoothed takes one number a row, not step or token values")
        first = z_scores(signal.values, signal.present, inputs.groups, self.ddof, self.eps)
        out = torch.where(signal.present, first, 0)
        if inputs.state is None:
            return out
        if inputs.prompt_ids is None:
            raise ValueError("baseline smoothed needs prompt_ids to find a prompt's history")
        for group, prompt_id in enumerate(inputs.prompt_ids):
            rows = inputs.groups.layout[group][inputs.groups.filled[group]]
            rows = rows[signal.present[rows]]
            values, new = signal.values[rows], out[rows]
            history = inputs.state.rewards_of(prompt_id)
            history.add(values.tolist())
            visit, total = history.visits, self._against(history, values)
            smooth_new = ((visit - 1) * new + total) / visit
            smooth_total = (new + (visit - 1) * total) / visit
            out[rows] = torch.where(
                smooth_new.abs() <= smooth_total.abs(), smooth_new, smooth_total
            )
        return out

    def _against(self, history: RewardHistory, values: Tensor) -> Tensor:
        """(x - mean)/(std + eps) against all the prompt's rewards; 0 if those are flat."""
        span, std = values.new_tensor([[history.low, history.high]]), history.std(self.ddof)
        if not len(values) or std == 0 or degenerate(span, torch.ones_like(span).bool()):
            return torch.zeros_like(values)
        return (values - history.mean) / (std + self.eps)


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


@part
class Gae(Baseline):
    """A critic: generalised advantage estimation over token rewards; arXiv 1506.02438.

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lam A_{t+1}, with the value after
    the last token 0, over the row's trainable tokens only (others are skipped).
    The comparator.
    """

    kind = "gae"
    text = "A_i,t = δ_i,t + {gamma}·{lam}·A_i,t+1, δ_i,t = R_i,t + {gamma}·V_i,t+1 - V_i,t"
    aliases = ("critic", "generalised_advantage_estimation", "generalized_advantage_estimation")
    critic = True
    gamma: Share = 1.0
    lam: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.95

    needs = Needs(values=True)

    def refusal(self, algorithm: Algorithm) -> str | None:
        if algorithm.spread.scope != "token":
            return 'baseline gae gives an advantage a token; use spread = "per_token"'
        if algorithm.scale.divides and algorithm.scale.active:
            return 'baseline gae takes scale = "batch_whiten" or "none"'
        return None

    def estimate(self, token_rewards: Signal, inputs: AdvantageInputs) -> GaeOutput:
        """Advantages and returns of the token rewards."""
        values, mask = inputs.need("values", "baseline gae"), inputs.need("mask", "baseline gae")
        return generalised_advantages(token_rewards.values, values, mask, self.gamma, self.lam)


def batch_population(
    present: Bool[Tensor, "B ..."], inputs: AdvantageInputs
) -> Bool[Tensor, "B ..."]:
    """Entries of the rows that batch-wide statistics use."""
    rows = inputs.in_batch.view(-1, *([1] * (present.dim() - 1)))
    return present & rows
