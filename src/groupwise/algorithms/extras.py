"""Extra terms: entropy bonuses, per-token weight hooks, the comparator's value loss (slot 12)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.parts import Part, number
from groupwise.algorithms.state import AlgorithmState
from groupwise.algorithms.surrogates import TokenTerms
from groupwise.errors import RecipeError


@dataclass(frozen=True)
class EntropyBonus(Part):
    """loss - coef * (token mean of H over the update), with a live gradient through H.

    H is of the distribution sampled from (after temperature).
    """

    kind: ClassVar[str] = "entropy_bonus"
    coef: float = 1e-3

    @property
    def needs(self) -> Needs:
        return Needs(entropies="live")

    def coefficient(self, state: AlgorithmState | None) -> float:
        return self.coef

    def formula(self) -> str:
        return f"loss - {number(self.coef)}·(1/N)·Σ_i,t H_i,t"


@dataclass(frozen=True)
class AdaptiveEntropy(Part):
    """An entropy bonus whose coefficient moves by `step` an update towards a target: the floor.

    Below `target` nats a token the coefficient rises, above it falls, within [low, high]. The
    coefficient lives in the algorithm's state; without a state it is `start`.
    """

    kind: ClassVar[str] = "adaptive_entropy"
    target: float = 0.2
    step: float = 0.001
    low: float = 0.0
    high: float = 0.01
    start: float = 0.0

    @property
    def needs(self) -> Needs:
        return Needs(entropies="live", state=True)

    def coefficient(self, state: AlgorithmState | None) -> float:
        if state is None or state.entropy_coef is None:
            return self.start
        return state.entropy_coef

    def move(self, entropy: float, state: AlgorithmState) -> None:
        """One update is done; its entropy was `entropy` nats a token."""
        change = self.step if entropy < self.target else -self.step
        if entropy == self.target:
            change = 0.0
        state.entropy_coef = min(self.high, max(self.low, self.coefficient(state) + change))

    def formula(self) -> str:
        return (
            f"loss - c·(1/N)·Σ_i,t H_i,t; after each update c ± {number(self.step)} towards "
            f"H = {number(self.target)}, within [{number(self.low)}, {number(self.high)}]"
        )


@dataclass(frozen=True)
class TokenWeightPart(Part):
    """A detached factor [B, T] on the policy term of every token."""

    def __call__(self, terms: TokenTerms) -> Float[Tensor, "B T"]:
        raise TypeError(f"{type(self).__name__} is only the base of the token weights")


@dataclass(frozen=True)
class RefSurpriseWeight(TokenWeightPart):
    """f times 1 - exp(ref): silences tokens that the reference is sure of.

    Often taken for Dr. GRPO, whose paper has no such term: it does not touch its two biases.
    """

    kind: ClassVar[str] = "ref_surprise_weight"

    @property
    def needs(self) -> Needs:
        return Needs(ref_logprobs=True)

    def __call__(self, terms: TokenTerms) -> Float[Tensor, "B T"]:
        if terms.ref_logprobs is None:
            raise ValueError("extra ref_surprise_weight needs ref_logprobs, which were not given")
        return 1 - terms.ref_logprobs.exp()

    def formula(self) -> str:
        return "f ← sg[1 - exp(ref)]·f"


@dataclass(frozen=True)
class TokenWeight(TokenWeightPart):
    """f times a function of yours, named "module:function", called with `TokenTerms`; detached."""

    kind: ClassVar[str] = "token_weight"
    function: str = ""

    def __call__(self, terms: TokenTerms) -> Float[Tensor, "B T"]:
        weight = load_function(self.function, "algorithm.extras")(terms)
        if not isinstance(weight, Tensor) or weight.shape != terms.mask.shape:
            raise ValueError(
                f"token weight {self.function} must give a tensor of the shape "
                f"{tuple(terms.mask.shape)}, got {getattr(weight, 'shape', type(weight))}"
            )
        return torch.where(terms.mask, weight.detach(), 0)

    def formula(self) -> str:
        return f"f ← sg[{self.function}]·f"


@dataclass(frozen=True)
class ValueLoss(Part):
    """coef * weight * .5 max((V - R)^2, (clip(V, V_old ± clip) - R)^2): the comparator's critic."""

    kind: ClassVar[str] = "value_loss"
    coef: float = 0.1
    clip: float | None = None

    @property
    def needs(self) -> Needs:
        return Needs(values=True)

    def formula(self) -> str:
        clip = "" if self.clip is None else f", V clipped to V_old ± {number(self.clip)}"
        return f"loss + {number(self.coef)}·Σ w·(V - R)²/2{clip}"


def load_function(name: str, field: str) -> Callable[..., object]:
    """The function named "module:function". Raises RecipeError naming the field."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise RecipeError(f'{field}: {name!r} is not of the form "module:function"')
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise RecipeError(f"{field}: cannot load {name!r}: {error}") from error
    if not callable(found):
        raise RecipeError(f"{field}: {name!r} is not callable")
    function: Callable[..., object] = found
    return function


EXTRAS = (EntropyBonus, AdaptiveEntropy, RefSurpriseWeight, TokenWeight, ValueLoss)
