"""Surrogates: the per-token objective f(ratio, advantage), to be maximised (slot 7's shape).

Left out: the weight, the KL term, the correction. Each part maps `TokenTerms` to a
`SurrogateOutput` (a plain function may return the value alone). Everything under a False mask is
already 0 (ratio 1), so no part has to think of padding.
The weight phi of a shape is defined by d f / d lp = A phi; all shapes have phi = 1 at ratio 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs, UpdatePlan
from groupwise.algorithms.parts import Part, number


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What a surrogate reads, [B, T]: `ratio` and `logprobs` are live, the others are numbers.

    `anchor_logprobs` is what the ratio divides by (the policy's own, detached, without an anchor).
    `log_ratio` = lp - anchor, live. Top-K ones are [B, T, K].
    """

    ratio: Float[Tensor, "B T"]
    logprobs: Float[Tensor, "B T"]
    log_ratio: Float[Tensor, "B T"]
    anchor_logprobs: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    plan: UpdatePlan
    ref_logprobs: Float[Tensor, "B T"] | None = None
    entropies: Float[Tensor, "B T"] | None = None
    top_logprobs: Float[Tensor, "B T K"] | None = None
    sampler_top_logprobs: Float[Tensor, "B T K"] | None = None


@dataclass(frozen=True, slots=True)
class SurrogateOutput:
    """The objective a token, and where it was silenced or capped: A < 0 and too `low`, A > 0 and
    too `high`, A < 0 and beyond the `dual` bound."""

    value: Float[Tensor, "B T"]
    low: Bool[Tensor, "B T"] | None = None
    high: Bool[Tensor, "B T"] | None = None
    dual: Bool[Tensor, "B T"] | None = None


@dataclass(frozen=True)
class SurrogatePart(Part):
    """`reads_ratio`: no gradient without one. `clips`: at bounds, by the sign of A."""

    reads_ratio: ClassVar[bool] = True
    clips: ClassVar[bool] = False

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        raise TypeError(f"{type(self).__name__} is only the base of the surrogates")


@dataclass(frozen=True)
class LogProb(SurrogatePart):
    """f = A lp: REINFORCE, Williams 1992. phi = 1."""

    kind: ClassVar[str] = "logp"
    reads_ratio: ClassVar[bool] = False

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        return SurrogateOutput(terms.advantages * terms.logprobs)

    def formula(self) -> str:
        return "f = A·lp"


@dataclass(frozen=True)
class Unclipped(SurrogatePart):
    """f = r A: importance-weighted REINFORCE. phi = r."""

    kind: ClassVar[str] = "unclipped"

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        return SurrogateOutput(terms.ratio * terms.advantages)

    def formula(self) -> str:
        return "f = r·A"


@dataclass(frozen=True)
class Clip(SurrogatePart):
    """f = min(r A, clip(r, 1-low, 1+high) A); PPO 1707.06347, clip-higher DAPO 2503.14476 [P].

    `dual` c > 1: for A < 0, f = max(f, c A) (dual clip, 1912.09729). `delta`: r is capped at delta
    before the minimum (TRL); with delta >= 1 + high it equals dual = delta.
    phi = r where not clipped, else 0.
    """

    kind: ClassVar[str] = "clip"
    clips: ClassVar[bool] = True
    open_ended: ClassVar[tuple[str, ...]] = ("low", "high")
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    delta: float | None = None

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        return clipped_surrogate(
            terms, 1 - self.low, 1 + self.high, dual=self.dual, delta=self.delta
        )

    def formula(self) -> str:
        r = f"min(r, {number(self.delta)})" if self.delta is not None else "r"
        text = f"min({r}·A, clip(r, 1 - {number(self.low)}, 1 + {number(self.high)})·A)"
        if self.dual is not None:
            return f"f = {text} for A ≥ 0, max({text}, {number(self.dual)}·A) for A < 0"
        return f"f = {text}"


def clipped_surrogate(
    terms: TokenTerms,
    low: float | Tensor,
    high: float | Tensor,
    dual: float | None = None,
    delta: float | None = None,
) -> SurrogateOutput:
    """min(r A, clip(r, low, high) A) with bounds on the ratio itself, a number or [B, T]."""
    ratio, advantages = terms.ratio, terms.advantages
    clipped = ratio.clamp(min=low, max=high)  # type: ignore[arg-type]
    free = ratio if delta is None else ratio.clamp(max=delta)
    value = torch.minimum(free * advantages, clipped * advantages)
    beyond: Tensor | None = None
    negative = advantages < 0
    if dual is not None:
        value = torch.where(negative, torch.maximum(value, dual * advantages), value)
        beyond = negative & (ratio > dual) & terms.mask
    elif delta is not None:
        beyond = negative & (ratio > delta) & terms.mask
    return SurrogateOutput(
        value,
        low=negative & (ratio < low) & terms.mask,
        high=(advantages > 0) & (ratio > high) & terms.mask,
        dual=beyond,
    )


@dataclass(frozen=True)
class DynamicClip(SurrogatePart):
    """Clip with bounds from q = exp(old) at the token; DCPO, 2509.02333 [R]. phi as clip.

    .5 + .5 sqrt(max(1 - 4 low/q, 0)) <= r <= min(.5 + .5 sqrt(1 + 4 high/q), cap): rare tokens get
    room to rise, and no token may fall below half.
    """

    kind: ClassVar[str] = "dynamic_clip"
    clips: ClassVar[bool] = True
    open_ended: ClassVar[tuple[str, ...]] = ("cap",)
    low: float = 0.16
    high: float = 0.2
    cap: float = 10.0

    def bounds(self, probability: Tensor) -> tuple[Tensor, Tensor]:
        """(lowest, highest) ratio for tokens whose old probability is q."""
        q = probability.clamp(min=1e-30)
        low = 0.5 + 0.5 * (1 - 4 * self.low / q).clamp(min=0).sqrt()
        high = (0.5 + 0.5 * (1 + 4 * self.high / q).sqrt()).clamp(max=self.cap)
        return low, high

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        low, high = self.bounds(terms.anchor_logprobs.exp())
        return clipped_surrogate(terms, low, high)

    def formula(self) -> str:
        return (
            f"f = min(r·A, clip(r, 1/2 + √max(1 - 4·{number(self.low)}/q, 0)/2, "
            f"min(1/2 + √(1 + 4·{number(self.high)}/q)/2, {number(self.cap)}))·A), q = exp(old)"
        )


@dataclass(frozen=True)
class Cispo(SurrogatePart):
    """f = sg[clip(r, floor, cap)] A lp; MiniMax-M1, 2506.13585. phi = clip(r, floor, cap).

    `cap` is the largest weight itself (5.0), never an epsilon above 1. No token is silenced.
    """

    kind: ClassVar[str] = "cispo"
    hint: ClassVar[str] = (
        "cap is the largest weight itself, for example 5.0, not an epsilon above 1"
    )
    open_ended: ClassVar[tuple[str, ...]] = ("cap",)
    cap: float = 5.0
    floor: float | None = None

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        ratio = terms.ratio.detach()
        weight = ratio.clamp(min=self.floor, max=self.cap)
        value = weight * terms.advantages * terms.logprobs
        low = None
        if self.floor is not None:
            low = (terms.advantages < 0) & (ratio < self.floor) & terms.mask
        high = (terms.advantages > 0) & (ratio > self.cap) & terms.mask
        return SurrogateOutput(value, low=low, high=high)

    def formula(self) -> str:
        if self.floor is None:
            return f"f = sg[min(r, {number(self.cap)})]·A·lp"
        return f"f = sg[clip(r, {number(self.floor)}, {number(self.cap)})]·A·lp"


@dataclass(frozen=True)
class SoftGate(SurrogatePart):
    """f = (4/tau) sigmoid(tau (r - 1)) A; SAPO, 2511.20347. phi = 4 s (1-s) r.

    tau = `tau_positive` where A > 0, else `tau_negative`; a larger tau decays faster.
    """

    kind: ClassVar[str] = "soft_gate"
    tau_positive: float = 1.0
    tau_negative: float = 1.05

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        tau = torch.where(
            terms.advantages > 0,
            torch.full_like(terms.ratio, self.tau_positive),
            torch.full_like(terms.ratio, self.tau_negative),
        )
        gate = 4 / tau * torch.sigmoid(tau * (terms.ratio - 1))
        return SurrogateOutput(gate * terms.advantages)

    def formula(self) -> str:
        return (
            "f = (4/τ)·sigmoid(τ(r - 1))·A, "
            f"τ = {number(self.tau_positive)} for A > 0, {number(self.tau_negative)} else"
        )


@dataclass(frozen=True)
class GammaKernel(SurrogatePart):
    """f = sg[W^k exp(lam (1 - W))] A lp; VESPO, 2602.10693 [R]. phi = the kernel, 1 at W = 1.

    (k, lam) by the sign of A: `positive` for A >= 0, `negative` for A < 0. log W >= -18.42.
    """

    kind: ClassVar[str] = "gamma_kernel"
    positive: tuple[float, float] = (2.0, 3.0)
    negative: tuple[float, float] = (3.0, 2.0)

    def kernel(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """phi at a ratio, for advantages of either sign."""
        w = ratio.clamp(min=1e-8)
        out: list[Tensor] = []
        for k, lam in (self.positive, self.negative):
            out.append((k * w.log() + lam * (1 - w)).exp())
        return torch.where(advantages >= 0, out[0], out[1])

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        weight = self.kernel(terms.ratio.detach(), terms.advantages)
        return SurrogateOutput(weight * terms.advantages * terms.logprobs)

    def formula(self) -> str:
        (k, lam), (k2, lam2) = self.positive, self.negative
        return (
            "f = sg[r^k·exp(λ(1 - r))]·A·lp, (k, λ) = "
            f"({number(k)}, {number(lam)}) for A ≥ 0, ({number(k2)}, {number(lam2)}) for A < 0"
        )


@dataclass(frozen=True)
class OnlinePairLogistic(SurrogatePart):
    """f = log sigmoid(beta (margin+ - margin-)), margin = sum_t (lp - old): a pair of a group of 2.

    Often taken for 2-GRPO (2510.00977), whose loss is plain GRPO with two completions. This one has
    no length normalisation and no clip, and a factor beta sigmoid(-margin) in its gradient. The row
    with the positive advantage wins; a tie gives 0. Needs both rows in the same micro-batch.
    """

    kind: ClassVar[str] = "online_pair_logistic"
    beta: float = 0.1

    @property
    def needs(self) -> Needs:
        return Needs(group_size=2, min_group_size=2, whole_groups=True)

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        index, rows = terms.plan.group_index, terms.plan.group_rows
        if index is None or rows is None:
            raise ValueError("surrogate online_pair_logistic needs group_ids")
        _, local, sizes = torch.unique(index, return_inverse=True, return_counts=True)
        trained = terms.mask.any(1)
        present = torch.zeros_like(sizes).index_add(0, local, trained.long())
        if bool((trained & (present[local] != rows)).any()):
            raise ValueError(
                "surrogate online_pair_logistic needs whole groups in a micro-batch; one is split"
            )
        sign = torch.sign(torch.where(terms.mask, terms.advantages, 0).sum(1))
        signed = sign * terms.log_ratio.sum(1)
        margin = torch.zeros_like(signed[: len(sizes)]).index_add(0, local, signed)
        wins = torch.zeros_like(sizes).index_add(0, local, (trained & (sign > 0)).long())
        losses = torch.zeros_like(sizes).index_add(0, local, (trained & (sign < 0)).long())
        pair = (wins == 1) & (losses == 1)
        value = torch.where(pair, torch.nn.functional.logsigmoid(self.beta * margin), 0)
        return SurrogateOutput(value[local].unsqueeze(1).expand(terms.ratio.shape))

    def formula(self) -> str:
        return f"f = log sigmoid({number(self.beta)}·(Σ_t (lp - old) of winner - of loser))"


def probability_bound(step: float, clip_high: float) -> float:
    """The largest probability a token at `step` can reach in one clipped update: p (1 + high)."""
    return min(1.0, step * (1 + clip_high)) if math.isfinite(clip_high) else 1.0


SURROGATES = (
    LogProb,
    Unclipped,
    Clip,
    DynamicClip,
    Cispo,
    SoftGate,
    GammaKernel,
    OnlinePairLogistic,
)
