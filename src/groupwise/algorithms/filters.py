"""Filters: what does not train (slot 11).

Row filters take rows out of the mask, so out of every denominator. Plan filters and loss filters
silence policy terms of tokens that stay in the denominator. A row without a reward is always out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import KeepRule, Needs
from groupwise.algorithms.groups import Groups, uniform_rows
from groupwise.algorithms.parts import Part, number
from groupwise.algorithms.ratios import row_mean
from groupwise.algorithms.state import AlgorithmState
from groupwise.errors import RecipeError


@dataclass(frozen=True, slots=True)
class FilterInputs:
    """What row filters read, one entry a row; `rewards` are after the shapers, `unshaped` before
    them, NaN = not scored. `accuracies` are the verdicts'. `prompt_ids` has one id a group."""

    rewards: Float[Tensor, " B"]
    unshaped: Float[Tensor, " B"]
    accuracies: Float[Tensor, " B"]
    truncated: Bool[Tensor, " B"]
    groups: Groups
    prompt_ids: tuple[str, ...] | None = None
    state: AlgorithmState | None = None


@dataclass(frozen=True)
class RowFilter(Part):
    """Called with `FilterInputs`, says which rows stay [B]. `name` is its count's key."""

    name: ClassVar[str] = ""

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        raise TypeError(f"{type(self).__name__} is only the base of the row filters")


@dataclass(frozen=True)
class ZeroVarianceDrop(RowFilter):
    """Groups whose rewards are all equal (or with fewer than two scored rows) are dropped.

    `by` "reward": the rewards before the shapers, on any scale, so that a solved group is uniform
    even where length shaping tells its rows apart; "accuracy": the verdicts alone. Without
    resampling the batch shrinks: this is not DAPO's dynamic sampling.
    """

    kind: ClassVar[str] = "zero_variance_drop"
    name: ClassVar[str] = "uniform_rows"
    by: Literal["accuracy", "reward"] = "reward"

    @property
    def needs(self) -> Needs:
        return Needs(accuracies=self.by == "accuracy", min_group_size=2)

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        values = inputs.accuracies if self.by == "accuracy" else inputs.unshaped
        return ~uniform_rows(values, inputs.groups)

    def formula(self) -> str:
        return f"groups of equal {self.by} leave the batch"


@dataclass(frozen=True)
class DynamicSampling(RowFilter):
    """DAPO 2503.14476 [P]: sample on until the batch is full of groups that carry a signal.

    A group carries one where its values differ. `by` "reward" (the default): the reward before the
    shapers, whatever its scale, which for rewards of ±1 is the paper's 0 < right < G; "accuracy":
    the verdicts alone, whatever else the reward adds; or one verifier's label.

    A round samples `oversample` times what is missing, at most `max_batches` rounds a step; surplus
    groups are carried to the next step (one step stale) or discarded. A step
    that stays short is skipped (what was kept is carried), learns from what there is (`partial`),
    or stops the run.
    """

    kind: ClassVar[str] = "dynamic_sampling"
    name: ClassVar[str] = "uniform_rows"
    by: str = "reward"
    max_batches: int = 10
    oversample: float = 1.0
    surplus: Literal["carry", "discard"] = "carry"
    when_short: Literal["skip", "partial", "stop"] = "skip"

    def __post_init__(self) -> None:
        for name, legal in (
            ("surplus", ("carry", "discard")),
            ("when_short", ("skip", "partial", "stop")),
        ):
            if getattr(self, name) not in legal:
                raise RecipeError(
                    f"dynamic_sampling.{name} = {getattr(self, name)!r}; one of {', '.join(legal)}"
                )
        if self.max_batches < 1 or not 1 <= self.oversample <= 4:
            raise RecipeError(
                f"dynamic_sampling: max_batches = {self.max_batches}, oversample = "
                f"{self.oversample}; give 1 round or more and a factor from 1 to 4"
            )

    @property
    def needs(self) -> Needs:
        return Needs(
            accuracies=self.by == "accuracy",
            min_group_size=2,
            keep=KeepRule(
                informative,
                self.max_batches,
                self.surplus,
                self.by,
                self.oversample,
                self.when_short,
            ),
        )

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        """What no round of sampling has looked at (a loss by itself) is dropped here."""
        if self.by not in ("accuracy", "reward"):
            return torch.ones_like(inputs.truncated)
        values = inputs.accuracies if self.by == "accuracy" else inputs.unshaped
        return ~uniform_rows(values, inputs.groups)

    def formula(self) -> str:
        return (
            f"sample until the batch has groups of unequal {self.by} (≤ {self.max_batches} rounds)"
        )


def informative(values: Sequence[float]) -> bool:
    """True where a group's scored values are not all equal.

    >>> informative([1.0, 0.0]), informative([1.0, 1.0]), informative([math.nan, 1.0])
    (True, False, False)
    """
    scored = [value for value in values if not math.isnan(value)]
    if len(scored) < 2:
        return False
    size = max(abs(value) for value in scored)
    return max(scored) - min(scored) > 1e-6 * size + 1e-7


@dataclass(frozen=True)
class OverlongMask(RowFilter):
    """A completion that was cut at the budget does not train; DAPO 2503.14476 [P].

    Its reward stays in the group's statistics; `in_statistics = false` takes it out of them too.
    """

    kind: ClassVar[str] = "overlong_mask"
    name: ClassVar[str] = "overlong_rows"
    in_statistics: bool = True

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        return ~inputs.truncated

    def formula(self) -> str:
        kept = "stays" if self.in_statistics else "does not count"
        return f"a truncated row leaves the batch; its reward {kept} in the group's statistics"


@dataclass(frozen=True)
class MinReward(RowFilter):
    """Only rows with R >= at train; RAFT, STaR. `per_prompt` keeps at most that many a prompt (the
    best first), against the bias towards easy prompts; 1 is best-of-K."""

    kind: ClassVar[str] = "min_reward"
    name: ClassVar[str] = "low_reward_rows"
    at: float = 0.5
    per_prompt: int | None = None

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        keep = inputs.rewards >= self.at
        if self.per_prompt is None:
            return keep
        groups = inputs.groups
        values = groups.gather(torch.where(keep, inputs.rewards, -torch.inf))
        values = torch.where(groups.filled, values, -torch.inf)
        order = torch.argsort(values, dim=1, descending=True, stable=True)
        rank = torch.argsort(order, dim=1, stable=True)
        out = torch.zeros_like(keep)
        out[groups.layout[groups.filled]] = (rank < self.per_prompt)[groups.filled]
        return keep & out

    def formula(self) -> str:
        most = f", at most {self.per_prompt} a prompt" if self.per_prompt else ""
        return f"only rows with R ≥ {number(self.at)} train{most}"


@dataclass(frozen=True)
class PassRate(RowFilter):
    """A prompt passed at a rate of `below` or more before is retired; ScaleRL 2510.13786.

    The rate pools the accuracies of earlier visits; this visit is added afterwards.
    """

    kind: ClassVar[str] = "pass_rate"
    name: ClassVar[str] = "solved_rows"
    below: float = 0.9

    @property
    def needs(self) -> Needs:
        return Needs(accuracies=True, state=True)

    def wants(self, prompt_id: str, state: AlgorithmState | None) -> bool:
        """False where the prompt is solved by its history."""
        history = state.passes.get(prompt_id) if state is not None else None
        return history is None or not history.count or history.rate < self.below

    def __call__(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        if inputs.state is None:
            return torch.ones_like(inputs.truncated)
        if inputs.prompt_ids is None:
            raise ValueError("filter pass_rate needs prompt_ids to find a prompt's history")
        wanted = [self.wants(prompt_id, inputs.state) for prompt_id in inputs.prompt_ids]
        for group, prompt_id in enumerate(inputs.prompt_ids):
            rows = inputs.groups.layout[group][inputs.groups.filled[group]]
            scored = [a for a in inputs.accuracies[rows].tolist() if not math.isnan(a)]
            inputs.state.passes_of(prompt_id).add(scored)
        flags = torch.tensor(wanted, dtype=torch.bool, device=inputs.truncated.device)
        return flags[inputs.groups.index]

    def formula(self) -> str:
        return f"a prompt passed at {number(self.below)} or more before leaves the batch"


@dataclass(frozen=True)
class PlanFilter(Part):
    """Silences policy terms by something known before the update: [B, T], False = silent."""

    def __call__(
        self, mask: Bool[Tensor, "B T"], entropies: Float[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B T"]:
        raise TypeError(f"{type(self).__name__} is only the base of the plan filters")


@dataclass(frozen=True)
class TopEntropy(PlanFilter):
    """Only the `share` of tokens with the highest entropy keeps its policy term; 2506.01939 [M].

    The quantile (linear between order statistics) is over the whole optimiser update's tokens.
    """

    kind: ClassVar[str] = "top_entropy"
    share: float = 0.2

    @property
    def needs(self) -> Needs:
        return Needs(entropies="detached")

    def __call__(
        self, mask: Bool[Tensor, "B T"], entropies: Float[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B T"]:
        if entropies is None:
            raise ValueError("filter top_entropy needs entropies, which were not given")
        values = entropies.detach()[mask].sort().values
        if not len(values):
            return mask
        place = (1 - self.share) * (len(values) - 1)
        low = min(int(place), len(values) - 1)
        high = min(low + 1, len(values) - 1)
        bound = values[low] + (values[high] - values[low]) * (place - low)
        return mask & (torch.where(mask, entropies.detach(), -torch.inf) >= bound)

    def formula(self) -> str:
        return f"f = 0 outside the {number(100 * self.share)} % of tokens with the highest entropy"


@dataclass(frozen=True)
class LossFilter(Part):
    """Silences policy terms by the live log-probabilities' values: [B, T], False = silent."""

    def __call__(
        self,
        logprobs: Float[Tensor, "B T"],
        behaviour: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"]:
        raise TypeError(f"{type(self).__name__} is only the base of the loss filters")


@dataclass(frozen=True)
class OffPolicySequenceMask(LossFilter):
    """f = 0 where A < 0 and mean_t (mu - lp) > delta; DeepSeek-V3.2, 2512.02556.

    mu = the sampler, or old where there is no sampler log-probability. Detached.
    """

    kind: ClassVar[str] = "off_policy_sequence_mask"
    delta: float = 0.1

    def __call__(
        self,
        logprobs: Float[Tensor, "B T"],
        behaviour: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Bool[Tensor, "B T"]:
        gap = row_mean(torch.where(mask, behaviour - logprobs.detach(), 0), mask)
        return ~((advantages < 0) & (gap > self.delta))

    def formula(self) -> str:
        return f"f = 0 where A < 0 and mean_t (sampler - lp) > {number(self.delta)}"


FILTERS = (
    ZeroVarianceDrop,
    DynamicSampling,
    OverlongMask,
    MinReward,
    PassRate,
    TopEntropy,
    OffPolicySequenceMask,
)
