"""Scales: what centred values are divided by (slot 4), and the batch whitening that comes last.

A scale is called with the centred values; `finish` acts on the spread-out advantages.
Defaults are ddof 0 and eps 0: the group is the whole population, and what is degenerate is found
by its spread, so no eps has to hide a division by zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.baselines import batch_population
from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.groups import degenerate, masked_mean, masked_std
from groupwise.algorithms.parts import Count, NonNegative, Part, part
from groupwise.algorithms.signals import AdvantageInputs, Signal

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


class Scale(Part):
    """Maps centred values, the `Signal` and `AdvantageInputs` to values of the same shape."""

    slot = "scale"


@part
class NoScale(Scale):
    """A = x - b."""

    kind = "none"
    text = "A_i = x_i - b_i"
    active = False
    divides = False

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        return centred


@part
class GroupStd(Scale):
    """A = (x - b)/(std_group(x) + eps); a degenerate group is 0. TRL: ddof 1, eps 1e-4."""

    kind = "group_std"
    text = "A_i = (x_i - b_i)/(std over the group (ddof {ddof}){eps: + #})"
    ddof: Count = 0
    eps: NonNegative = 0.0

    needs = Needs(min_group_size=2)

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        groups = inputs.groups
        packed, there = groups.gather(signal.values), groups.gather_present(signal.present)
        flat = degenerate(packed, there, self.ddof)
        std = torch.where(flat, 1, masked_std(packed, there, self.ddof) + self.eps)
        scaled = centred / signal.per_row(groups.spread_back(std))
        return torch.where(signal.per_row(flat[groups.index]), 0, scaled)

    def group_ddof(self, inherited: int) -> tuple[str, int] | None:
        return "scale", self.ddof

    def warning(self, algorithm: Algorithm) -> str | None:
        transform = algorithm.transform
        if not transform.standardised:
            return None
        return f"transform {transform.kind} is scaled already; group_std scales it twice"


@part
class BatchStd(Scale):
    """A = (x - b)/(std of a batch-wide population + eps).

    `of` "advantages": every centred value of the step (ScaleRL, REINFORCE++ baseline); `of`
    "rewards": every x of the step (Lite-PPO 2508.08221, TRL's scale_rewards = "batch").
    """

    kind = "batch_std"
    text = "A_i = (x_i - b_i)/(std of all {of} of the step (ddof {ddof}){eps: + #})"
    of: Literal["advantages", "rewards"] = "advantages"
    ddof: Count = 0
    eps: NonNegative = 0.0

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        source = centred if self.of == "advantages" else signal.values
        packed = source.reshape(1, -1)
        there = batch_population(signal.present, inputs).reshape(1, -1)
        if bool(degenerate(packed, there, self.ddof)):
            return torch.zeros_like(centred)
        return centred / (masked_std(packed, there, self.ddof) + self.eps)

    def formula(self) -> str:
        return super().formula().replace("advantages", "x_i - b_i").replace("rewards", "x_i")


@part
class GroupMeanScale(Scale):
    """A = (x - b)/mean_group(x); a group whose mean is 0 has advantage 0. MaxRL."""

    kind = "group_mean"
    text = "A_i = (x_i - b_i)/mean of x over the group (0 where that mean is 0)"

    needs = Needs(min_group_size=2)

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        groups = inputs.groups
        packed, there = groups.gather(signal.values), groups.gather_present(signal.present)
        mean = masked_mean(packed, there)
        spread = torch.where(there, packed.abs(), 0).amax(1) if packed.shape[1] else mean
        zero = mean.abs() <= 1e-6 * spread + 1e-7
        divisor = signal.per_row(groups.spread_back(torch.where(zero, 1, mean)))
        return torch.where(signal.per_row(zero[groups.index]), 0, centred / divisor)


@part
class InformativeShare(Scale):
    """A = (x - b)·B/(B - M)/F: B groups, M of them without a signal; GPG, arXiv 2504.02546 [I].

    `divide_by_std`: F is the group's standard deviation, else 1.
    """

    kind = "informative_share"
    text = (
        "A_i = (x_i - b_i){divide_by_std:/std over the group|}·B/(B - M), B groups, M of them with "
        "equal rewards"
    )
    aliases = ("gpg_scale",)
    divide_by_std: bool = False
    needs = Needs(min_group_size=2)

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        groups = inputs.groups
        packed, there = groups.gather(signal.values), groups.gather_present(signal.present)
        alive = int((~degenerate(packed, there)).sum())
        scaled = GroupStd()(centred, signal, inputs) if self.divide_by_std else centred
        return scaled * (groups.num_groups / max(alive, 1))


@part
class BatchWhiten(Scale):
    """Last of all, A = (A - mean)/(std + eps) over the step's advantages.

    Where advantages are per token (PPO, REINFORCE++) the population is tokens. Where a row has one,
    `over` says whether a row counts once ("rows": GDPO, skipped there with one reward component) or
    once for each of its trainable tokens ("tokens": REINFORCE++-baseline). `variance_eps` is added
    to the variance (veRL: 1e-8).
    """

    kind = "batch_whiten"
    text = (
        "A ← (A - mean over the step)/(std over the step (ddof {ddof}){eps: + #})"
        "{variance_eps:, variance + #}"
    )
    aliases = ("whiten", "masked_whiten")
    divides = False
    over: Literal["rows", "tokens"] = "rows"
    ddof: Count = 0
    eps: NonNegative = 0.0
    variance_eps: NonNegative = 0.0

    def __call__(self, centred: Tensor, signal: Signal, inputs: AdvantageInputs) -> Tensor:
        return centred

    def finish(
        self,
        advantages: Float[Tensor, "B ..."],
        present: Bool[Tensor, "B ..."],
        inputs: AdvantageInputs,
    ) -> Float[Tensor, "B ..."]:
        """Whiten over the present entries of the batch's rows; 0 elsewhere and if all are equal."""
        if inputs.components is not None and inputs.components.shape[1] == 1:
            return advantages
        there = batch_population(present, inputs)
        source = advantages
        if self.over == "tokens" and advantages.dim() == 1:
            mask = inputs.need("mask", "scale batch_whiten over tokens")
            source, there = advantages.unsqueeze(1).expand(mask.shape), there.unsqueeze(1) & mask
        packed, there = source.reshape(1, -1), there.reshape(1, -1)
        if bool(degenerate(packed, there, self.ddof)):
            return torch.zeros_like(advantages)
        std = (masked_std(packed, there, self.ddof).square() + self.variance_eps).sqrt() + self.eps
        white = (advantages - masked_mean(packed, there)) / std
        return torch.where(present, white, 0)

    def formula(self) -> str:
        over = "the step's tokens" if self.over == "tokens" else "the step"
        return super().formula().replace("the step", over)
