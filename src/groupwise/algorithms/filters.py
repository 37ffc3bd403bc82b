"""Filters: what does not train (slot 11).

A filter takes rows out of the mask, so out of every denominator, or silences policy terms of tokens
that stay in the denominator. A row without a reward is always out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs, TokenMask, Tokens, UpdateInputs
from groupwise.algorithms.groups import Groups, ranks, uniform_rows
from groupwise.algorithms.parts import Count, Number, Part, Share, part
from groupwise.algorithms.ratios import row_mean
from groupwise.algorithms.state import AlgorithmState
from groupwise.algorithms.surrogates import covariance


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


class Filter(Part):
    """What does not train. Each hook answers None where the filter does not act there."""

    slot = "filters"
    name: ClassVar[str] = ""
    """The key of a row filter's count; empty for filters of tokens."""

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"] | None:
        """Rows that stay; the others leave the mask, so every denominator."""
        return None

    def unscored(self, truncated: Bool[Tensor, " B"]) -> Bool[Tensor, " B"] | None:
        """Rows whose reward is outside every statistic."""
        return None

    def planned(self, update: UpdateInputs) -> TokenMask | None:
        """False silences a token's policy term, by what is known before the update."""
        return None

    def live(
        self, logprobs: Tokens, behaviour: Tokens, advantages: Tokens, mask: TokenMask
    ) -> TokenMask | None:
        """False silences a token's policy term, by the live log-probabilities' values."""
        return None

    def wants(self, prompt_id: str, state: AlgorithmState | None) -> bool:
        """False where the prompt should not be sampled."""
        return True

    def saw(self, prompt_id: str, accuracies: Sequence[float], state: AlgorithmState) -> None:
        """A sampled group that does not reach `rows`, for filters with a memory."""


def _unequal(inputs: FilterInputs, by: str) -> Bool[Tensor, " B"]:
    values = inputs.accuracies if by == "accuracy" else inputs.unshaped
    return ~uniform_rows(values, inputs.groups)


@part
class ZeroVarianceDrop(Filter):
    """Groups whose rewards are all equal (or with fewer than two scored rows) are dropped.

    `by` "reward": the rewards before the shapers, on any scale, so that a solved group is uniform
    even where length shaping tells its rows apart; "accuracy": the verdicts alone. Without
    resampling the batch shrinks: this is not DAPO's dynamic sampling.
    """

    kind = "zero_variance_drop"
    text = "groups of equal {by} leave the batch"
    aliases = ("filter_groups", "drop_uniform_groups")
    drops_uniform = True
    name = "uniform_rows"
    by: Literal["accuracy", "reward"] = "reward"

    needs = Needs(min_group_size=2)

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        return _unequal(inputs, self.by)


@part
class DynamicSampling(Filter):
    """DAPO 2503.14476 [P]: sample on until the batch is full of groups that carry a signal.

    A group carries one where its values differ. `by` "reward" (the default): the reward before the
    shapers, whatever its scale, which for rewards of ±1 is the paper's 0 < right < G; "accuracy":
    the verdicts alone, whatever else the reward adds; or one verifier's label.

    A round samples `oversample` times what is missing, at most `max_batches` rounds a step; surplus
    groups are carried to the next step (one step stale) or discarded. A step
    that stays short is skipped (what was kept is carried), learns from what there is (`partial`),
    or stops the run.
    """

    kind = "dynamic_sampling"
    text = "sample until the batch has groups of unequal {by} (≤ {max_batches} rounds)"
    unique = True
    drops_uniform = True
    name = "uniform_rows"
    by: str = "reward"
    max_batches: Annotated[int, Field(ge=1)] = 10
    oversample: Annotated[float, Field(ge=1, le=4)] = 1.0
    surplus: Literal["carry", "discard"] = "carry"
    when_short: Literal["skip", "partial", "stop"] = "skip"

    @property
    def needs(self) -> Needs:
        return Needs(min_group_size=2, keep=self)

    def rule(self, values: Sequence[float]) -> bool:
        """Whether a group of these values is kept."""
        return informative(values)

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        """What no round of sampling has looked at (a loss by itself) is dropped here."""
        if self.by not in ("accuracy", "reward"):
            return torch.ones_like(inputs.truncated)
        return _unequal(inputs, self.by)


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


@part
class OverlongMask(Filter):
    """A completion that was cut at the budget does not train; DAPO 2503.14476 [P].

    Its reward stays in the group's statistics; `in_statistics = false` takes it out of them too.
    """

    kind = "overlong_mask"
    text = (
        "a truncated row leaves the batch; its reward {in_statistics:stays|does not count} in the "
        "group's statistics"
    )
    aliases = ("overlong_filtering", "mask_truncated_completions")
    name = "overlong_rows"
    in_statistics: bool = True

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        return ~inputs.truncated

    def unscored(self, truncated: Bool[Tensor, " B"]) -> Bool[Tensor, " B"] | None:
        return None if self.in_statistics else truncated


@part
class MinReward(Filter):
    """Only rows with R >= at train; RAFT, STaR. `per_prompt` keeps at most that many a prompt (the
    best first), against the bias towards easy prompts; 1 is best-of-K."""

    kind = "min_reward"
    text = "only rows with R ≥ {at} train{per_prompt:, at most # a prompt}"
    name = "low_reward_rows"
    aliases = ("best_of_k",)
    selects_rows = True
    at: Number = 0.5
    per_prompt: Annotated[int | None, Field(ge=1, examples=[1])] = None

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
        keep = inputs.rewards >= self.at
        if self.per_prompt is None:
            return keep
        groups = inputs.groups
        values = groups.gather(torch.where(keep, inputs.rewards, -torch.inf))
        values = torch.where(groups.filled, values, -torch.inf)
        out = torch.zeros_like(keep)
        out[groups.layout[groups.filled]] = (ranks(values) < self.per_prompt)[groups.filled]
        return keep & out


@part
class PassRate(Filter):
    """A prompt passed at a rate of `below` or more before is retired; ScaleRL 2510.13786.

    The rate pools the accuracies of earlier visits; this visit is added afterwards.
    """

    kind = "pass_rate"
    text = "a prompt passed at {below} or more before leaves the batch"
    name = "solved_rows"
    aliases = ("no_positive_resampling",)
    below: Share = 0.9

    needs = Needs(state=True)

    def wants(self, prompt_id: str, state: AlgorithmState | None) -> bool:
        """False where the prompt is solved by its history."""
        history = state.passes.get(prompt_id) if state is not None else None
        return history is None or not history.count or history.rate < self.below

    def saw(self, prompt_id: str, accuracies: Sequence[float], state: AlgorithmState) -> None:
        state.passes_of(prompt_id).add(accuracies)

    def rows(self, inputs: FilterInputs) -> Bool[Tensor, " B"]:
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


@part
class TopEntropy(Filter):
    """Only the `share` of tokens with the highest entropy keeps its policy term; 2506.01939 [M].

    The quantile (linear between order statistics) is over the whole optimiser update's tokens.
    """

    kind = "top_entropy"
    text = "f = 0 outside the share of {share} of the tokens that have the highest entropy"
    aliases = ("top_entropy_quantile", "forking_tokens")
    share: Share = 0.2

    needs = Needs(entropies="detached")

    def planned(self, update: UpdateInputs) -> TokenMask | None:
        mask, entropies = update.mask, update.need("entropies", "filter top_entropy")
        values = entropies[mask].sort().values
        if not len(values):
            return mask
        place = (1 - self.share) * (len(values) - 1)
        low = min(int(place), len(values) - 1)
        high = min(low + 1, len(values) - 1)
        bound = values[low] + (values[high] - values[low]) * (place - low)
        return mask & (torch.where(mask, entropies, -torch.inf) >= bound)


@part
class OffPolicySequenceMask(Filter):
    """f = 0 where A < 0 and mean_t (mu - lp) > delta; DeepSeek-V3.2, 2512.02556.

    mu = the sampler, or old where there is no sampler log-probability. Detached.
    """

    kind = "off_policy_sequence_mask"
    text = "f = 0 where A < 0 and mean_t (sampler - lp) > {delta}"
    aliases = ("opsm", "off_policy_mask")
    delta: Number = 0.1

    def live(
        self, logprobs: Tokens, behaviour: Tokens, advantages: Tokens, mask: TokenMask
    ) -> TokenMask | None:
        gap = row_mean(torch.where(mask, behaviour - logprobs.detach(), 0), mask)
        return ~((advantages < 0) & (gap > self.delta))


@part
class ClipCov(Filter):
    """f = 0 at a random `share` of the tokens whose covariance lies between `low` and `high`:
    Clip-Cov, arXiv 2505.22617 [R].

    The covariance is (lp - mean lp)(A - mean A) over the update's tokens, from the
    log-probabilities at its start; `share` is of all of the update's tokens, at least one. The draw
    is a function of `seed` and the token's own log-probability and advantage, so neither the order
    of rows nor micro-batches can change it.
    """

    kind = "clip_cov"
    text = (
        "f = 0 at a share of {share} of the tokens, drawn where (lp - mean lp)(A - mean A) is "
        "between {low} and {high}"
    )
    share: Share = 2e-4
    low: Number = 1.0
    high: Number = 5.0
    seed: Count = 0

    def planned(self, update: UpdateInputs) -> TokenMask | None:
        cov = covariance(update, "filter clip_cov")
        eligible = ((cov > self.low) & (cov < self.high)).flatten().nonzero().flatten()
        lp, advantages = update.need("logprobs", ""), update.need("advantages", "")
        draw = keyed_bits(self.seed, lp.flatten()[eligible], advantages.flatten()[eligible])
        count = max(1, int(self.share * int(update.mask.sum())))
        chosen = eligible[torch.argsort(draw, stable=True)[:count].to(eligible.device)]
        keep = torch.ones_like(update.mask).flatten()
        keep[chosen] = False
        return keep.reshape(update.mask.shape) & update.mask


def keyed_bits(seed: int, *numbers: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """63 uniform bits [N] from a seed and the bits of each entry's numbers (splitmix64 mixing)."""
    state = torch.full(numbers[0].shape, seed, dtype=torch.int64)
    for values in numbers:
        state = state ^ values.to("cpu", torch.float64).view(torch.int64)
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
            state = (state ^ ((state >> shift) & (2 ** (64 - shift) - 1))) * factor
    return state & (2**63 - 1)
