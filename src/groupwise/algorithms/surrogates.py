"""Surrogates: the per-token objective f(ratio, advantage), to be maximised (slot 7's shape).

Each part maps `TokenTerms` to a
`SurrogateOutput` (a plain function may return the value alone). Everything under a False mask is
already 0 (ratio 1), so no part has to think of padding.
The weight phi of a shape is defined by d f / d lp = A phi; all shapes have phi = 1 at ratio 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import UpdateInputs, UpdatePlan
from groupwise.algorithms.parts import (
    Bound,
    NonNegative,
    Number,
    Part,
    Positive,
    Share,
    number,
    part,
)
from groupwise.algorithms.ratios import bounded_exp, row_mean
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

Pair = Annotated[tuple[Number, Number], Field(strict=False)]


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


class Surrogate(Part):
    """Maps `TokenTerms` to a `SurrogateOutput`, or to the objective [B, T] alone.

    `against_sampler`: its reference is the policy that sampled.
    """

    slot = "surrogate"
    reads_ratio = True
    against_sampler: ClassVar[bool] = False

    def refusal(self, algorithm: Algorithm) -> str | None:
        if self.reads_ratio and algorithm.anchor == "none":
            return (
                f'surrogate {self.kind!r} needs a ratio; give anchor = "old" and '
                'ratio = "token", or surrogate = "logp"'
            )
        shared = self.shares_term or (self.clips and algorithm.ratio.per_row)
        if shared and algorithm.weight.by_length:
            return (
                f"a clipped ratio that the whole row shares ({algorithm.ratio.kind}) under the "
                f"weight {algorithm.weight.kind!r} counts a row's one term once a token, so by its "
                'length; use weight = "per_sequence", or "length_weighted" (preset '
                "gspo_length_weighted) to mean it"
            )
        return None

    def warning(self, algorithm: Algorithm) -> str | None:
        if self.against_sampler and algorithm.anchor != "sampler":
            return (
                f"surrogate {self.kind} measures the divergence from the sampler, the behaviour "
                'policy, but the anchor is the old policy; use anchor = "sampler"'
            )
        return None


@part
class LogProb(Surrogate):
    """f = A lp: REINFORCE, Williams 1992. phi = 1."""

    kind = "logp"
    text = "f = A·lp"
    aliases = ("reinforce_loss", "policy_gradient")
    reads_ratio = False

    def warning(self, algorithm: Algorithm) -> str | None:
        if algorithm.anchor == "none":
            return None
        return "surrogate logp does not read the ratio; a second update is not corrected"

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        return SurrogateOutput(terms.advantages * terms.logprobs)


@part
class Unclipped(Surrogate):
    """f = r A: importance-weighted REINFORCE. phi = r."""

    kind = "unclipped"
    text = "f = r·A"

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        return SurrogateOutput(terms.ratio * terms.advantages)


@part
class Clip(Surrogate):
    """f = min(r A, clip(r, 1-low, 1+high) A); PPO 1707.06347, clip-higher DAPO 2503.14476 [P].

    `dual` c > 1: for A < 0, f = max(f, c A) (dual clip, 1912.09729). `delta`: r is capped at delta
    before the minimum (TRL); with delta >= 1 + high it equals dual = delta.
    phi = r where not clipped, else 0.
    """

    kind = "clip"
    aliases = ("ppo_clip", "clip_higher", "dual_clip", "epsilon", "epsilon_high")
    clips = True
    low: Bound = 0.2
    high: Bound = 0.2
    dual: Annotated[float | None, Field(gt=1, allow_inf_nan=False, examples=[3.0])] = None
    delta: Annotated[float | None, Field(gt=1, allow_inf_nan=False, examples=[4.0])] = None

    def __post_init__(self) -> None:
        if self.dual is not None and self.delta is not None:
            raise RecipeError(
                "algorithm.surrogate: dual and delta are two forms of one bound; give one"
            )

    def warning(self, algorithm: Algorithm) -> str | None:
        if self.delta is None or self.delta >= 1 + self.high:
            return None
        return "surrogate.delta is below 1 + high, so it cuts positive advantages too"

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


@part
class DynamicClip(Surrogate):
    """Clip with bounds from q = exp(old) at the token; DCPO, 2509.02333 [R]. phi as clip.

    .5 + .5 sqrt(max(1 - 4 low/q, 0)) <= r <= min(.5 + .5 sqrt(1 + 4 high/q), cap): rare tokens get
    room to rise, and no token may fall below half.
    """

    kind = "dynamic_clip"
    text = (
        "f = min(r·A, clip(r, 1/2 + √max(1 - 4·{low}/q, 0)/2, min(1/2 + √(1 + 4·{high}/q)/2, "
        "{cap}))·A), q = exp(old)"
    )
    aliases = ("dac", "dynamic_adaptive_clipping")
    clips = True
    low: NonNegative = 0.16
    high: NonNegative = 0.2
    cap: Bound = 10.0

    def bounds(self, probability: Tensor) -> tuple[Tensor, Tensor]:
        """(lowest, highest) ratio for tokens whose old probability is q."""
        q = probability.clamp(min=1e-30)
        low = 0.5 + 0.5 * (1 - 4 * self.low / q).clamp(min=0).sqrt()
        high = (0.5 + 0.5 * (1 + 4 * self.high / q).sqrt()).clamp(max=self.cap)
        return low, high

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        low, high = self.bounds(terms.anchor_logprobs.exp())
        return clipped_surrogate(terms, low, high)


@part
class Cispo(Surrogate):
    """f = sg[clip(r, floor, cap)] A lp; MiniMax-M1, 2506.13585. phi = clip(r, floor, cap).

    `cap` is the largest weight itself (5.0), never an epsilon above 1. No token is silenced.
    """

    kind = "cispo"
    text = "f = sg[min(r, {cap})]·A·lp{floor:, r at least #}"
    hint = "cap is the largest weight itself, for example 5.0, not an epsilon above 1"
    aliases = ("truncated_importance_weight",)
    detached = True
    wide = True
    cap: Bound = 5.0
    floor: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False, examples=[0.8])] = None

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise RecipeError(
                f"algorithm.surrogate.cap = {self.cap} reads like an epsilon; cap is the largest "
                f"weight itself, for example 5.0 (an epsilon of {self.cap} is cap = "
                f"{1 + self.cap:g})"
            )

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        ratio = terms.ratio.detach()
        weight = ratio.clamp(min=self.floor, max=self.cap)
        value = weight * terms.advantages * terms.logprobs
        low = None
        if self.floor is not None:
            low = (terms.advantages < 0) & (ratio < self.floor) & terms.mask
        high = (terms.advantages > 0) & (ratio > self.cap) & terms.mask
        return SurrogateOutput(value, low=low, high=high)


@part
class SoftGate(Surrogate):
    """f = (4/tau) sigmoid(tau (r - 1)) A; SAPO, 2511.20347. phi = 4 s (1-s) r.

    tau = `tau_positive` where A > 0, else `tau_negative`; a larger tau decays faster.
    """

    kind = "soft_gate"
    text = "f = (4/τ)·sigmoid(τ(r - 1))·A, τ = {tau_positive} for A > 0, {tau_negative} else"
    aliases = ("sapo_gate",)
    wide = True
    tau_positive: Positive = 1.0
    tau_negative: Positive = 1.05

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        tau = torch.where(
            terms.advantages > 0,
            torch.full_like(terms.ratio, self.tau_positive),
            torch.full_like(terms.ratio, self.tau_negative),
        )
        gate = 4 / tau * torch.sigmoid(tau * (terms.ratio - 1))
        return SurrogateOutput(gate * terms.advantages)


@part
class GammaKernel(Surrogate):
    """f = sg[W^k exp(lam (1 - W))] A lp; VESPO, 2602.10693 [R]. phi = the kernel, 1 at W = 1.

    (k, lam) by the sign of A: `positive` for A >= 0, `negative` for A < 0. log W >= -18.42.
    """

    kind = "gamma_kernel"
    text = "f = sg[r^k·exp(λ(1 - r))]·A·lp, (k, λ) = {positive} for A ≥ 0, {negative} for A < 0"
    aliases = ("vespo_kernel",)
    detached = True
    against_sampler = True
    positive: Pair = (2.0, 3.0)
    negative: Pair = (3.0, 2.0)

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


@part
class GeometricClip(Surrogate):
    """f = A_i exp(mean_t l_t), each log-ratio x_t clipped on the side that A makes harmful: GMPO,
    arXiv 2507.20673 [I].

    l_t = sgn(A) min(sgn(A) x_t, sgn(A) clip(x_t, -low, high)): the geometric mean of clipped token
    ratios. The published range is (e^-0.4, e^0.4). The row shares one term; phi = its ratio/n_i at
    tokens that are not clipped.
    """

    kind = "geometric_clip"
    text = (
        "f = A·exp(mean_t l_t), l_t = min(x, {high}) for A > 0, max(x, -{low}) for A < 0, x = log r"
    )
    aliases = ("gmpo_clip", "geo_mean")
    shares_term = True
    clips = True
    low: Bound = 0.4
    high: Bound = 0.4

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        x, sign = terms.log_ratio, torch.sign(terms.advantages)
        bounded = sign * torch.minimum(sign * x, sign * x.clamp(-self.low, self.high))
        ratio = bounded_exp(row_mean(torch.where(terms.mask, bounded, 0), terms.mask))
        value = ratio * terms.advantages
        low = (sign < 0) & (x < -self.low) & terms.mask
        return SurrogateOutput(value, low=low, high=(sign > 0) & (x > self.high) & terms.mask)


def covariance(update: UpdateInputs, part: str) -> Float[Tensor, "B T"]:
    """(lp - mean lp)(A - mean A) over the update's tokens, at its start; -inf off the mask.

    From the log-probabilities at the start of the update, not the live ones, so that micro-batches
    cannot change who is chosen; the first update of a step has no others.
    """
    lp, advantages = update.need("logprobs", part), update.need("advantages", part)
    count = update.mask.sum().clamp(min=1)
    centred = [x.double() - x.double().sum() / count for x in (lp, advantages)]
    return torch.where(update.mask, centred[0] * centred[1], -torch.inf)


@part
class KlCov(Surrogate):
    """f = r A - coef |log r| at the `share` of tokens with the largest covariance, r A at the
    others: KL-Cov, arXiv 2505.22617 [R].

    The covariance is (lp - mean lp)(A - mean A) over the update's tokens, from the
    log-probabilities at its start. At least one token is held. No clip.
    """

    kind = "kl_cov"
    text = (
        "f = r·A - {coef}·|log r| at a share of {share} of the tokens, those with the largest "
        "(lp - mean lp)(A - mean A), r·A at the others"
    )
    share: Share = 2e-4
    coef: NonNegative = 1.0

    def mark(self, update: UpdateInputs) -> Tensor:
        cov = covariance(update, "surrogate kl_cov")
        number_held = min(max(1, int(self.share * int(update.mask.sum()))), cov.numel())
        held = torch.zeros_like(update.mask).flatten()
        held[cov.flatten().sort(descending=True, stable=True).indices[:number_held]] = True
        return held.reshape(update.mask.shape) & update.mask

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        held = terms.plan.marked
        assert held is not None
        value = terms.ratio * terms.advantages
        return SurrogateOutput(torch.where(held, value - self.coef * terms.log_ratio.abs(), value))
