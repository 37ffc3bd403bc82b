"""Combinations of parts that cannot work are refused, those that look wrong are warned of, by name.

Left out: what a single part refuses by itself (its own `__post_init__`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.algorithms.baselines import Gae, Smoothed
from groupwise.algorithms.corrections import NoCorrection
from groupwise.algorithms.divergences import DivergenceMask, SymmetricTvMask
from groupwise.algorithms.entropy_shaping import EntropyShaped
from groupwise.algorithms.extras import AdaptiveEntropy, ValueLoss
from groupwise.algorithms.filters import DynamicSampling, MinReward, RowFilter, TopEntropy
from groupwise.algorithms.finite import refuse_non_finite
from groupwise.algorithms.parts import Part
from groupwise.algorithms.ratios import NoRatio, RatioPart
from groupwise.algorithms.scales import BatchWhiten, GroupStd, NoScale
from groupwise.algorithms.spreads import Broadcast, PerToken
from groupwise.algorithms.surrogates import (
    Cispo,
    Clip,
    GammaKernel,
    LogProb,
    OnlinePairLogistic,
    SurrogatePart,
)
from groupwise.algorithms.transforms import Rank, Steps, Threshold, ZScoreEach
from groupwise.algorithms.weights import PerSequence, WeightPart
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


def refuse(algorithm: Algorithm) -> None:
    """Raise RecipeError with the field, the reason and a legal value."""
    refuse_non_finite(algorithm, open_ends=True)
    for check in (_ratio, _surrogate, _divisors, _advantages, _others):
        problem = check(algorithm)
        if problem is not None:
            raise RecipeError(f"algorithm {algorithm.name!r}: {problem}")


def _ratio(a: Algorithm) -> str | None:
    if a.anchor not in ("old", "sampler", "none"):
        return f'anchor {a.anchor!r} is not one of "old", "sampler", "none"'
    if isinstance(a.ratio, RatioPart) and (a.anchor == "none") != isinstance(a.ratio, NoRatio):
        return (
            f"anchor {a.anchor!r} and ratio {a.ratio.kind!r} do not go together; a ratio needs the "
            'anchor "old" or "sampler", and ratio "none" the anchor "none"'
        )
    if isinstance(a.surrogate, SurrogatePart) and a.surrogate.reads_ratio and a.anchor == "none":
        return (
            f'surrogate {a.surrogate.kind!r} needs a ratio; give anchor = "old" and '
            'ratio = "token", or surrogate = "logp"'
        )
    clips = isinstance(a.surrogate, SurrogatePart) and a.surrogate.clips
    shared = isinstance(a.ratio, RatioPart) and a.ratio.per_row
    if clips and shared and isinstance(a.weight, WeightPart) and a.weight.by_length:
        return (
            f"a clipped ratio that the whole row shares ({_kind(a.ratio)}) under the weight "
            f"{a.weight.kind!r} counts a row's one term once a token, so by its length; use weight "
            '= "per_sequence", or "length_weighted" (preset gspo_length_weighted) to mean it'
        )
    if not isinstance(a.correction, NoCorrection) and a.anchor == "sampler":
        return (
            "a correction weighs learner against sampler, and a ratio anchored to the sampler "
            'does so already: the mismatch would count twice; use correction = "none" or anchor '
            '= "old"'
        )
    return None


def _surrogate(a: Algorithm) -> str | None:
    s = a.surrogate
    if isinstance(s, Cispo):
        if s.cap < 1:
            return (
                f"surrogate.cap = {s.cap} reads like an epsilon; cap is the largest weight itself, "
                f"for example 5.0 (an epsilon of {s.cap} is cap = {1 + s.cap:g})"
            )
        if s.floor is not None and not 0 <= s.floor <= 1:
            return f"surrogate.floor = {s.floor}; it is a weight between 0 and 1, for example 0.8"
    if isinstance(s, Clip):
        if s.low < 0 or s.high < 0:
            return f"surrogate.low = {s.low}, high = {s.high}; both are distances from 1, 0 or more"
        if s.dual is not None and s.dual <= 1:
            return f"surrogate.dual = {s.dual}; it bounds the ratio above 1, for example 3.0"
        if s.delta is not None and s.delta <= 1:
            return f"surrogate.delta = {s.delta}; it caps the ratio above 1, for example 4.0"
        if s.dual is not None and s.delta is not None:
            return "surrogate.dual and surrogate.delta are two forms of one bound; give one"
    if isinstance(s, OnlinePairLogistic) and not isinstance(a.weight, PerSequence):
        return (
            "surrogate online_pair_logistic has one term a pair, which only weight = "
            '"per_sequence" counts once'
        )
    return None


def _divisors(a: Algorithm) -> str | None:
    for slot in ("transform", "baseline", "scale"):
        part = getattr(a, slot)
        for name in ("ddof", "eps", "variance_eps"):
            value = getattr(part, name, None) if isinstance(part, Part) else None
            if value is not None and value < 0:
                return f"{slot}.{name} = {value}; it is 0 or more, for example 0"
    return None


def refuse_ddof(a: Algorithm, group_size: int) -> None:
    """RecipeError where a standard deviation over a group has no degree of freedom left."""
    found: list[tuple[str, int]] = []
    inherited = int(getattr(a.scale, "ddof", 0))
    if isinstance(a.scale, GroupStd):
        found.append(("scale.ddof", inherited))
    if isinstance(a.baseline, Smoothed):
        found.append(("baseline.ddof", a.baseline.ddof))
    if isinstance(a.transform, ZScoreEach) and a.transform.ddof is not None:
        found.append(("transform.ddof", a.transform.ddof))
    elif isinstance(a.transform, ZScoreEach | EntropyShaped):
        found.append(("scale.ddof", inherited))
    for field, ddof in found:
        if ddof >= group_size:
            raise RecipeError(
                f"algorithm.{field} = {ddof}: a group of {group_size} has no standard deviation "
                f"with it (the sum of squares is divided by the group size - ddof); give less than "
                f"{group_size}, for example 0, or sampling.group_size = {ddof + 1} or more"
            )


def _advantages(a: Algorithm) -> str | None:
    token_values = isinstance(a.transform, Steps) or (
        isinstance(a.transform, EntropyShaped) and a.transform.level == "token"
    )
    if token_values and isinstance(a.spread, Broadcast):
        return f"transform {_kind(a.transform)} gives values within a row; use spread = " + (
            '"suffix_sum"' if isinstance(a.transform, Steps) else '"per_token"'
        )
    if a.kl.in_reward and a.kl.placement == "token_reward":
        if isinstance(a.spread, Broadcast) and not isinstance(a.baseline, Gae):
            return 'kl in the token reward needs spread = "suffix_sum" (or baseline = "gae")'
        if token_values:
            return "kl in the token reward needs one reward a row, not step or token values"
    if a.kl.in_reward and a.kl.placement == "sequence_reward" and token_values:
        return "kl in the sequence reward needs one reward a row, not step or token values"
    if isinstance(a.baseline, Gae) and not isinstance(a.spread, PerToken):
        return 'baseline gae gives an advantage a token; use spread = "per_token"'
    if isinstance(a.baseline, Gae) and not isinstance(a.scale, NoScale | BatchWhiten):
        return 'baseline gae takes scale = "batch_whiten" or "none"'
    if isinstance(a.baseline, Smoothed) and not isinstance(a.scale, NoScale):
        return 'baseline smoothed is scaled already; use scale = "none"'
    return None


def _others(a: Algorithm) -> str | None:
    if sum(isinstance(part, DynamicSampling) for part in a.filters) > 1:
        return "filters: one dynamic_sampling at most"
    if sum(isinstance(part, AdaptiveEntropy) for part in a.extras) > 1:
        return "extras: one adaptive_entropy at most"
    if any(isinstance(part, ValueLoss) for part in a.extras) and not isinstance(a.baseline, Gae):
        return 'extras: value_loss trains a critic; it needs baseline = "gae"'
    for part in a.filters:
        if isinstance(part, TopEntropy) and not 0 < part.share <= 1:
            return f"filters: top_entropy.share = {part.share}; a share is above 0 and at most 1"
    if a.kl.coef < 0:
        return f"kl.coef = {a.kl.coef}; a penalty is 0 or more, for example 0.04"
    if not 0 < a.kl.refresh_mix <= 1 or a.kl.refresh_every < 0:
        return (
            f"kl.refresh_every = {a.kl.refresh_every}, refresh_mix = {a.kl.refresh_mix}; steps are "
            "0 or more and the mix is above 0 and at most 1"
        )
    return None


def warnings(a: Algorithm) -> list[str]:
    """What is legal and looks like a mistake, with the reason."""
    out: list[str] = []
    if a.kl.on and a.kl.placement == "loss" and a.kl.estimator == "k1":
        out.append(
            "kl: k1 in the loss has zero gradient in expectation; use k2 or k3_ratio for the "
            "reverse KL, or k1 in the reward"
        )
    if isinstance(a.surrogate, LogProb) and a.anchor != "none":
        out.append("surrogate logp does not read the ratio; a second update is not corrected")
    if isinstance(a.surrogate, DivergenceMask | SymmetricTvMask) and a.anchor != "sampler":
        out.append("surrogate: a divergence from the sampler, but the anchor is the old policy")
    if isinstance(a.surrogate, GammaKernel) and a.anchor != "sampler":
        out.append("surrogate gamma_kernel weighs against the behaviour policy; anchor = sampler")
    delta = a.surrogate.delta if isinstance(a.surrogate, Clip) else None
    if isinstance(a.surrogate, Clip) and delta is not None and delta < 1 + a.surrogate.high:
        out.append("surrogate.delta is below 1 + high, so it cuts positive advantages too")
    standardised = isinstance(a.transform, Rank | ZScoreEach | EntropyShaped)
    if standardised and isinstance(a.scale, GroupStd):
        out.append(f"transform {_kind(a.transform)} is scaled already; group_std scales it twice")
    if isinstance(a.transform, Threshold) and not any(
        isinstance(part, MinReward) for part in a.filters
    ):
        out.append("transform threshold without filter min_reward: rows below it stay in the mean")
    rows = [part for part in a.filters if isinstance(part, RowFilter)]
    if len({type(part) for part in rows}) < len(rows):
        out.append("filters: the same filter twice")
    return out


def check_context(
    algorithm: Algorithm,
    *,
    group_size: int | None,
    temperature: float,
    top_p: float,
    top_k: int,
    min_p: float,
    reference: bool | None,
    step_rewards: bool | None,
    num_components: int | None,
) -> None:
    """Refuse what the rest of a recipe makes impossible. Raises RecipeError naming the field."""
    needs, name = algorithm.needs, algorithm.name
    if group_size is not None and group_size < needs.min_group_size:
        raise RecipeError(
            f"sampling.group_size = {group_size}: algorithm {name!r} compares the completions of a "
            f"prompt with each other; give {needs.min_group_size} or more (8 is usual)"
        )
    if group_size is not None:
        refuse_ddof(algorithm, group_size)
    if group_size is not None and needs.group_size not in (None, group_size):
        raise RecipeError(
            f"sampling.group_size = {group_size}: algorithm {name!r} takes exactly "
            f"{needs.group_size}"
        )
    if temperature <= 0:
        raise RecipeError(f"sampling.temperature = {temperature}; training needs more than 0")
    if (top_p < 1 or top_k > 0 or min_p > 0) and needs.top_k:
        raise RecipeError(
            f"sampling.top_p = {top_p}, top_k = {top_k}, min_p = {min_p}: algorithm {name!r} "
            f"compares the {needs.top_k} most likely tokens of two policies, and a distribution "
            "that is cut may not hold them; sample with top_p = 1, top_k = 0, min_p = 0"
        )
    if needs.ref_logprobs and reference is False:
        raise RecipeError(
            f"algorithm {name!r} has a term against a reference, and there is none; set "
            "algorithm.kl_coef = 0 or give a reference"
        )
    if needs.step_rewards and step_rewards is False:
        raise RecipeError(
            f"algorithm {name!r} needs step rewards, and the environment gives one reward a "
            'completion; use preset = "grpo" or a verifier with step rewards'
        )
    if needs.values and not any(isinstance(part, ValueLoss) for part in algorithm.extras):
        raise RecipeError(
            f"algorithm {name!r} reads a critic's values and has no loss that trains one; add "
            'extras = [{ kind = "value_loss" }]'
        )
    if needs.components and num_components == 0:
        raise RecipeError(f"algorithm {name!r} needs named reward components (two or more)")


def _kind(part: object) -> str:
    return str(getattr(part, "kind", part))
