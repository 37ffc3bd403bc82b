"""The two files that `groupwise init loss NAME` writes."""

LOSS_MODULE = '''"""A loss: the objective of every token, to be maximised.

Use it in a recipe, with everything else of a preset as it is:

    [algorithm]
    preset = "grpo"
    surrogate = "{name}:{name}"
"""

from __future__ import annotations

from torch import Tensor

from groupwise.algorithms.surrogates import TokenTerms


def {name}(terms: TokenTerms) -> Tensor:
    """[B, T]. `terms` has ratio, log_ratio, logprobs (live), advantages, mask and more; what is
    under a False mask is 0 already, and the weight, the KL term and filters come afterwards."""
    capped = terms.ratio.clamp(max=2.0)
    return capped * terms.advantages
'''

TEST = '''"""The gradient of {name}, by hand and by finite differences."""

from __future__ import annotations

import torch
from {name} import {name}

import groupwise as gw

OLD = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], dtype=torch.float64)
A = torch.tensor([1.0, -1.0], dtype=torch.float64)


def loss(logprobs: torch.Tensor) -> torch.Tensor:
    algorithm = gw.preset("grpo", surrogate={name}, kl_coef=0, name="{name}")
    mask = torch.ones_like(OLD, dtype=torch.bool)
    return algorithm.loss(logprobs, mask=mask, advantages=A, old_logprobs=OLD).loss


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    logprobs = OLD.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(logprobs), logprobs)
    assert torch.allclose(gradient, -A.unsqueeze(1) / 4 * torch.ones_like(OLD))


def test_finite_differences() -> None:
    assert torch.autograd.gradcheck(loss, ((OLD + 0.1).requires_grad_(True),))
'''
