"""A surrogate and its gradient weight against the ratio, for the docs' plots.

One token is one row; its advantage is `advantage`, its old log-probability
`old_logprob` (it matters only where a bound depends on the probability). Every row has a partner of
the opposite advantage at ratio 1, which only a surrogate of pairs looks at.
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
    """f and phi for one token at each ratio.

    Ratios whose new probability would exceed 1 are left out. Raises ValueError where the advantage
    is 0.
    """
    if advantage == 0:
        raise ValueError("a curve needs an advantage other than 0")
    fits = tuple(r for r in ratios if 0 < r <= math.exp(-old_logprob))
    num = len(fits)
    signs = torch.tensor([1.0] * num + [-1.0] * num, dtype=torch.float64)
    old = torch.full((2 * num, 1), old_logprob, dtype=torch.float64)
    shift = torch.tensor([*fits, *[1.0] * num], dtype=torch.float64).log().unsqueeze(1)
    logprobs = (old + shift).requires_grad_(True)
    mask = torch.ones(2 * num, 1, dtype=torch.bool)
    top = (logprobs.unsqueeze(2), old.unsqueeze(2)) if algorithm.needs.top_k else (None, None)
    inputs = clean_inputs(
        logprobs,
        mask,
        advantage * signs,
        old_logprobs=old,
        sampler_logprobs=old,
        top_logprobs=top[0],
        sampler_top_logprobs=top[1],
    )
    plan = algorithm.plan_update(
        mask,
        group_ids=[*range(num), *range(num)],
        max_tokens=1,
        logprobs=old,
        advantages=advantage * signs,
    )
    out = algorithm.surrogate(token_terms(algorithm, inputs, plan))
    value = out.value if isinstance(out, SurrogateOutput) else out
    (slope,) = torch.autograd.grad(value[:num].sum(), logprobs)
    return Curve(
        fits,
        tuple(value[:num].detach().squeeze(1).tolist()),
        tuple((slope[:num] / advantage).squeeze(1).tolist()),
    )
