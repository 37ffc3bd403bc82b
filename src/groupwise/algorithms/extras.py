"""Extra terms: entropy bonuses, per-token weight hooks, the comparator's value loss (slot 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs, Tokens
from groupwise.algorithms.parts import NonNegative, Number, Part, part
from groupwise.algorithms.signals import AdvantageInputs
from groupwise.algorithms.state import AlgorithmState
from groupwise.algorithms.surrogates import TokenTerms
from groupwise.imports import import_object

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


class Extra(Part):
    """A term or a factor beside the surrogate. A hook answers None where the extra does not act."""

    slot = "extras"
    coef: float = 0.0

    def factor(self, terms: TokenTerms) -> Tokens | None:
        """On the policy term of every token; what it returns is detached."""
        return None

    def entropy_coefficient(self, state: AlgorithmState | None) -> float | None:
        """Of the mean entropy that is subtracted from the loss."""
        return None

    def token_advantages(self, inputs: AdvantageInputs) -> Tokens | None:
        """What is added to the advantage of every token."""
        return None

    def divergence_coefficient(self) -> float | None:
        """Of the weighted divergence from the teacher that is added to the loss."""
        return None

    def divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Of two tables of log-probabilities [..., V], where there is a coefficient."""
        raise TypeError(f"extra {self.kind} compares no distributions")

    def end_update(self, metrics: Mapping[str, float], state: AlgorithmState) -> None:
        """One optimiser update with these metrics is done."""

    def value_loss(self, values: Tokens, old_values: Tokens, returns: Tokens) -> Tokens:
        """The critic's loss at every token, before the part's `coef`."""
        raise TypeError(f"extra {self.kind} trains no critic")


@part
class EntropyBonus(Extra):
    """loss - coef * (token mean of H over the update), with a live gradient through H.

    H is of the distribution sampled from (after temperature).
    """

    kind = "entropy_bonus"
    text = "loss - {coef}·(1/N)·Σ_i,t H_i,t"
    aliases = ("entropy_coef", "entropy_regularisation")
    coef: Number = 1e-3

    needs = Needs(entropies="live")

    def entropy_coefficient(self, state: AlgorithmState | None) -> float | None:
        return self.coef


@part
class AdaptiveEntropy(Extra):
    """An entropy bonus whose coefficient moves by `step` an update towards a target: the floor.

    Below `target` nats a token the coefficient rises, above it falls, within [low, high]. The
    coefficient lives in the algorithm's state; without a state it is `start`.
    """

    kind = "adaptive_entropy"
    text = (
        "loss - c·(1/N)·Σ_i,t H_i,t; after each update c ± {step} towards H = {target}, within "
        "[{low}, {high}]"
    )
    aliases = ("entropy_floor", "adaptive_entropy_coefficient")
    unique = True
    target: NonNegative = 0.2
    step: NonNegative = 0.001
    low: Number = 0.0
    high: Number = 0.01
    start: Number = 0.0

    needs = Needs(entropies="live", state=True)

    def entropy_coefficient(self, state: AlgorithmState | None) -> float:
        if state is None or state.entropy_coef is None:
            return self.start
        return state.entropy_coef

    def end_update(self, metrics: Mapping[str, float], state: AlgorithmState) -> None:
        entropy, step = metrics["entropy"], self.step
        change = 0.0 if entropy == self.target else step if entropy < self.target else -step
        moved = self.entropy_coefficient(state) + change
        state.entropy_coef = min(self.high, max(self.low, moved))


@part
class TokenWeight(Extra):
    """f times a function of yours, named "module:function", called with `TokenTerms`; detached."""

    kind = "token_weight"
    text = "f ← sg[{function}]·f"
    function: str = ""

    def refusal(self, algorithm: Algorithm) -> str | None:
        if callable(import_object(self.function, "extras: token_weight.function =")):
            return None
        return f"extras: token_weight.function = {self.function!r} is not a function"

    def factor(self, terms: TokenTerms) -> Tokens | None:
        weight = import_object(self.function, "extras: token_weight.function =")(terms)
        if not isinstance(weight, Tensor) or weight.shape != terms.mask.shape:
            raise ValueError(
                f"token weight {self.function} must give a tensor of the shape "
                f"{tuple(terms.mask.shape)}, got {getattr(weight, 'shape', type(weight))}"
            )
        return torch.where(terms.mask, weight.detach(), 0)


@part
class ValueLoss(Extra):
    """coef * weight * .5 max((V - R)^2, (clip(V, V_old ± clip) - R)^2): the comparator's critic."""

    kind = "value_loss"
    text = "loss + {coef}·Σ w·(V - R)²/2{clip:, V clipped to V_old ± #}"
    aliases = ("vf_coef", "critic_loss")
    trains_critic = True
    coef: NonNegative = 0.1
    clip: Annotated[float | None, Field(gt=0, allow_inf_nan=False, examples=[0.2])] = None

    needs = Needs(values=True)

    def refusal(self, algorithm: Algorithm) -> str | None:
        if algorithm.baseline.critic:
            return None
        return 'extras: value_loss trains a critic; it needs baseline = "gae"'

    def value_loss(self, values: Tokens, old_values: Tokens, returns: Tokens) -> Tokens:
        return clipped_value_loss(values, old_values, returns, self.clip)


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
