"""One micro-batch's part of the loss, through the slots, with its metrics.

loss = sum_{b,t} weight (-f * correction * token weights + coef * kl) - entropy bonus + divergence
from the teacher, with the
`weight` of the update's plan. Everything under a False mask is replaced by 0 before any arithmetic,
so junk there changes no bit. Log-probabilities below float32 are computed with in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.contracts import LossTerms, MetricSums, UpdatePlan
from groupwise.algorithms.corrections import CorrectionOutput
from groupwise.algorithms.kl import k3
from groupwise.algorithms.ratios import bounded_exp
from groupwise.algorithms.state import AlgorithmState
from groupwise.algorithms.surrogates import SurrogateOutput, TokenTerms

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


@dataclass(frozen=True, slots=True)
class LossInputs:
    """A micro-batch after `clean_inputs`: one dtype, 0 under a False mask. `logprobs`, `entropies`
    and `divergences` (from the teacher) are live; `old_logprobs` are the learner's own at the start
    of the update."""

    mask: Bool[Tensor, "B T"]
    logprobs: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logprobs: Float[Tensor, "B T"]
    ref_logprobs: Float[Tensor, "B T"] | None = None
    sampler_logprobs: Float[Tensor, "B T"] | None = None
    entropies: Float[Tensor, "B T"] | None = None
    top_logprobs: Float[Tensor, "B T K"] | None = None
    sampler_top_logprobs: Float[Tensor, "B T K"] | None = None
    divergences: Float[Tensor, "B T"] | None = None


def clean_inputs(
    logprobs: Tensor, mask: Tensor, advantages: Tensor, **others: Tensor | None
) -> LossInputs:
    """Check every shape and zero what the mask hides. Raises ValueError naming the input."""
    if logprobs.dim() != 2:
        raise ValueError(f"logprobs must be [B, T], got the shape {tuple(logprobs.shape)}")
    shape, keep = logprobs.shape, mask.bool()
    if keep.shape != shape:
        raise ValueError(f"mask has the shape {tuple(keep.shape)}, logprobs {tuple(shape)}")
    if advantages.dim() == 1 and advantages.shape[0] == shape[0]:
        advantages = advantages.unsqueeze(1).expand(shape)
    elif advantages.shape != shape:
        raise ValueError(
            f"advantages must be [B] or [B, T] of logprobs {tuple(shape)}, "
            f"got the shape {tuple(advantages.shape)}"
        )
    work = logprobs.dtype if logprobs.dtype in (torch.float32, torch.float64) else torch.float32
    live = torch.where(keep, logprobs.to(work), 0)
    found: dict[str, Any] = {"old_logprobs": live.detach()}
    for name, value in others.items():
        if value is not None:
            given = value if name in ("entropies", "divergences") else value.detach()
            found[name] = _cleaned(name, given, keep, work)
    cleaned_advantages = torch.where(keep, advantages.detach().to(work), 0)
    return LossInputs(keep, live, cleaned_advantages, **found)


def _cleaned(name: str, value: Tensor, keep: Tensor, work: torch.dtype) -> Tensor:
    if "top" not in name and value.shape != keep.shape:
        raise ValueError(
            f"{name} must be [B, T] of the shape {tuple(keep.shape)}, got {tuple(value.shape)}"
        )
    if "top" in name:
        if value.dim() != 3 or value.shape[:2] != keep.shape:
            raise ValueError(f"{name} must be [B, T, K], got the shape {tuple(value.shape)}")
        keep = keep.unsqueeze(2)
    return torch.where(keep, value.to(work), 0)


def anchor_of(algorithm: Algorithm, x: LossInputs) -> Tensor:
    """The log-probabilities that the ratio divides by; the policy's own without an anchor."""
    if algorithm.anchor == "sampler":
        if x.sampler_logprobs is None:
            raise ValueError("anchor sampler needs sampler_logprobs, which were not given")
        return x.sampler_logprobs
    return x.old_logprobs if algorithm.anchor == "old" else x.logprobs.detach()


def token_terms(algorithm: Algorithm, x: LossInputs, plan: UpdatePlan) -> TokenTerms:
    """What the surrogate reads."""
    anchor = anchor_of(algorithm, x)
    log_ratio = torch.where(x.mask, x.logprobs - anchor, 0)
    return TokenTerms(
        ratio=algorithm.ratio(log_ratio, x.mask),
        logprobs=x.logprobs,
        log_ratio=log_ratio,
        anchor_logprobs=anchor,
        advantages=x.advantages,
        mask=x.mask,
        plan=plan,
        ref_logprobs=x.ref_logprobs,
        entropies=None if x.entropies is None else x.entropies.detach(),
        top_logprobs=x.top_logprobs,
        sampler_top_logprobs=x.sampler_top_logprobs,
    )


def compute(
    algorithm: Algorithm, x: LossInputs, plan: UpdatePlan, state: AlgorithmState | None
) -> LossTerms:
    """The micro-batch's loss (a sum that adds up over micro-batches and ranks) and its sums."""
    if plan.weight.shape != x.mask.shape:
        raise ValueError(
            f"the plan's rows have the shape {tuple(plan.weight.shape)}, logprobs "
            f"{tuple(x.mask.shape)}; slice it with plan.rows(index) and plan.columns(width)"
        )
    plan = plan.to(x.logprobs.device)
    if x.logprobs.numel() == 0:
        return LossTerms(x.logprobs.sum(), MetricSums())
    weight = plan.weight.to(x.logprobs.dtype)
    terms = token_terms(algorithm, x, plan)
    raw = algorithm.surrogate(terms)
    shaped = raw if isinstance(raw, SurrogateOutput) else _objective(algorithm, raw, x.mask)
    correction = _correction(algorithm, x)
    policy = _policy_term(algorithm, x, plan, terms, shaped.value, correction)
    surrogate = (weight * policy).sum()
    loss = -surrogate
    if algorithm.kl.on and algorithm.kl.placement == "loss":
        loss = loss + algorithm.kl.coef * (weight * _kl_term(algorithm, x, terms)).sum()
    for extra in algorithm.extras:
        coef = extra.entropy_coefficient(state)
        if coef is not None:
            if x.entropies is None:
                raise ValueError(f"extra {extra.kind} needs entropies, which were not given")
            loss = loss - coef * x.entropies.sum() / max(plan.num_tokens, 1)
        coef = extra.divergence_coefficient()
        if coef is not None:
            if x.divergences is None:
                raise ValueError(f"extra {extra.kind} needs divergences, which were not given")
            loss = loss + coef * (weight * x.divergences).sum()
    sums = _sums(algorithm, x, terms, shaped, correction, surrogate)
    return LossTerms(loss + 0.0, sums)


def _objective(algorithm: Algorithm, value: Any, mask: Tensor) -> SurrogateOutput:
    """What a user-defined surrogate returned. ValueError where it is not one number a token."""
    if isinstance(value, Tensor) and value.shape == mask.shape:
        return SurrogateOutput(value)
    shape = f"the shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(
        f"algorithm.surrogate {algorithm.surrogate.formula()!r} must return the objective of every "
        f"token, a tensor of the shape {tuple(mask.shape)}, or a SurrogateOutput; got {shape}"
    )


def value_terms(
    algorithm: Algorithm,
    values: Tensor,
    *,
    plan: UpdatePlan,
    mask: Tensor,
    old_values: Tensor,
    returns: Tensor,
) -> LossTerms:
    """The critic's part of the loss for a micro-batch of whole rows; adds up like the policy's.

    `values` live, `old_values` at the start of the update, `returns` of `Algorithm.returns`.
    """
    trained = [each for each in algorithm.extras if each.trains_critic]
    if not trained:
        raise ValueError(f"algorithm {algorithm.name!r} has no value_loss among its extras")
    if not values.shape == mask.shape == old_values.shape == returns.shape == plan.weight.shape:
        raise ValueError("values, mask, old_values, returns and the plan's rows differ in shape")
    plan, keep = plan.to(values.device), mask.bool()
    work = values.dtype if values.dtype in (torch.float32, torch.float64) else torch.float32
    live, old, target = (
        torch.where(keep, x.to(work), 0) for x in (values, old_values.detach(), returns.detach())
    )
    loss = live.new_zeros(())
    for each in trained:
        per_token = torch.where(keep, each.value_loss(live, old, target), 0)
        loss = loss + each.coef * (plan.weight.to(work) * per_token).sum()
    tokens = float(keep.sum())
    error = float((live - target).detach().square().sum())
    return LossTerms(loss, MetricSums(means={"value/error": (error, tokens)}))


def _correction(algorithm: Algorithm, x: LossInputs) -> CorrectionOutput | None:
    if not algorithm.correction.active:
        return None
    if x.sampler_logprobs is None:
        name = algorithm.correction.kind or algorithm.correction.formula()
        raise ValueError(f"correction {name} needs sampler_logprobs, which were not given")
    log_w = torch.where(x.mask, x.old_logprobs - x.sampler_logprobs, 0)
    made: CorrectionOutput = algorithm.correction(log_w, x.mask)
    return made


def _policy_term(
    algorithm: Algorithm,
    x: LossInputs,
    plan: UpdatePlan,
    terms: TokenTerms,
    value: Tensor,
    correction: CorrectionOutput | None,
) -> Float[Tensor, "B T"]:
    """The surrogate with everything that silences or weighs it."""
    keep = x.mask if plan.keep is None else x.mask & plan.keep
    behaviour = x.old_logprobs if x.sampler_logprobs is None else x.sampler_logprobs
    for each in algorithm.filters:
        spoken = each.live(x.logprobs, behaviour, x.advantages, x.mask)
        keep = keep if spoken is None else keep & spoken
    if correction is not None:
        keep = keep & correction.kept
        value = value * correction.weight
    for extra in algorithm.extras:
        factor = extra.factor(terms)
        value = value if factor is None else value * factor.detach()
    return torch.where(keep, value, 0)


def _kl_term(algorithm: Algorithm, x: LossInputs, terms: TokenTerms) -> Float[Tensor, "B T"]:
    if x.ref_logprobs is None:
        raise ValueError("kl in the loss needs ref_logprobs, which were not given")
    return torch.where(
        x.mask, algorithm.kl.in_loss(x.logprobs - x.ref_logprobs, terms.log_ratio), 0
    )


@torch.no_grad()
def _sums(
    algorithm: Algorithm,
    x: LossInputs,
    terms: TokenTerms,
    shaped: SurrogateOutput,
    correction: CorrectionOutput | None,
    surrogate: Tensor,
) -> MetricSums:
    """The same keys for every algorithm; 0 of 0 where nothing is known."""
    mask, tokens, rows = x.mask, x.mask.sum(), x.mask.any(1).sum()
    ratio = terms.ratio
    if not algorithm.ratio.active:
        ratio = bounded_exp(torch.where(mask, x.logprobs - x.old_logprobs, 0))
    low, high = _extremes(mask, ratio)
    lows, highs = {"ratio/min": low}, {"ratio/max": high}
    means: dict[str, Any] = {"ratio/mean": (_total(mask, ratio), tokens)}
    for name in ("low", "high", "dual"):
        hit = getattr(shaped, name)
        if hit is not None or name != "dual":
            means[f"clip/{name}"] = (tokens * 0 if hit is None else (hit & mask).sum(), tokens)
    for name in ("kl", "kl/token", "entropy", "sampler_gap/mean"):
        means[name] = (tokens * 0, tokens * 0)
    highs["sampler_gap/max"] = high.new_tensor(-torch.inf)
    if x.ref_logprobs is not None:
        kl = _total(mask, k3(x.logprobs - x.ref_logprobs))
        means["kl"], means["kl/token"] = (kl, rows), (kl, tokens)
    if x.entropies is not None:
        means["entropy"] = (_total(mask, x.entropies), tokens)
    if x.sampler_logprobs is not None:
        gap = (x.old_logprobs - x.sampler_logprobs).abs()
        means["sampler_gap/mean"] = (_total(mask, gap), tokens)
        highs["sampler_gap/max"] = _extremes(mask, gap)[1]
    if x.divergences is not None:
        means["teacher/divergence"] = (_total(mask, x.divergences), tokens)
    sums = MetricSums(means, {"surrogate": surrogate, "tokens": tokens}, lows, highs)
    return (sums if correction is None else sums + _correction_sums(correction, mask)).read()


def _correction_sums(correction: CorrectionOutput, unit: Tensor) -> MetricSums:
    """Raw weights before the operation: a token each, or a row each at the sequence levels."""
    raw, kept = correction.raw, correction.kept
    if correction.per_row:
        first = unit.to(torch.uint8).argmax(1, keepdim=True)
        unit, raw, kept = unit.any(1), raw.gather(1, first)[:, 0], kept.gather(1, first)[:, 0]
    count, total = unit.sum(), _total(unit, raw)
    low, high = _extremes(unit, raw)
    return MetricSums(
        means={
            "correction/mean": (total, count),
            "correction/discarded": ((unit & ~kept).sum(), count),
        },
        lows={"correction/min": low},
        highs={"correction/max": high},
        effective={"correction/ess": (count, total, _total(unit, _wide(raw).square()))},
    )


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def _total(where: Tensor, values: Tensor) -> Tensor:
    return _wide(torch.where(where, values, 0)).sum()


def _extremes(where: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    low = torch.where(where, values, torch.inf).amin()
    return low, torch.where(where, values, -torch.inf).amax()
