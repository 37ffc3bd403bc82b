"""A surrogate and its gradient weight against the ratio, for the docs' plots.

Left out: the plotting. One token is one row; its advantage is `advantage`, its old log-probability
`old_logprob` (it matters only where a bound depends on the probability).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.loss import clean_inputs, token_terms
from groupwise.algorithms.surrogates import SurrogateOutput


@dataclass(frozen=True)
class Curve:
    """`objective` f and `weight` phi = (d f / d lp)/A at each of `ratios`."""

    ratios: tuple[float, ...]
    objective: tuple[float, ...]
    weight: tuple[float, ...]


def surrogate_curve(
    algorithm: Algorithm,
    ratios: Sequence[float],
    advantage: float = 1.0,
    old_logprob: float = -2.0,
) -> Curve:
    """f and phi for one token at each ratio; a surrogate of pairs is 0 everywhere.

    Ratios whose new probability would exceed 1 are left out. Raises ValueError where the advantage
    is 0.
    """
    if advantage == 0:
        raise ValueError("a curve needs an advantage other than 0")
    fits = tuple(r for r in ratios if 0 < r <= math.exp(-old_logprob))
    num = len(fits)
    old = torch.full((num, 1), old_logprob, dtype=torch.float64)
    shift = torch.tensor(fits, dtype=torch.float64).log().unsqueeze(1)
    logprobs = (old + shift).requires_grad_(True)
    mask = torch.ones(num, 1, dtype=torch.bool)
    top = logprobs.detach().unsqueeze(2) if algorithm.needs.top_k else None
    sampler_top = old.unsqueeze(2) if algorithm.needs.top_k else None
    inputs = clean_inputs(
        logprobs,
        mask,
        torch.full((num,), advantage, dtype=torch.float64),
        old,
        None,
        old,
        None,
        top,
        sampler_top,
    )
    plan = algorithm.plan_update(mask, group_ids=list(range(num)), max_tokens=1)
    out = algorithm.surrogate(token_terms(algorithm, inputs, plan))
    value = out.value if isinstance(out, SurrogateOutput) else out
    (slope,) = torch.autograd.grad(value.sum(), logprobs)
    return Curve(
        fits,
        tuple(value.detach().squeeze(1).tolist()),
        tuple((slope / advantage).squeeze(1).tolist()),
    )
