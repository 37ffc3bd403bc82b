"""The plain forward pass, one row at a time by the model's own logits: what ours is compared to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.policies import Policy


def plain(
    policy: Policy, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of one row: logits at index i predict id i + 1."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(completion, dtype=torch.int64)[:, None])[:, 0]
    return chosen, -(logprobs.exp() * logprobs).sum(-1)


def gradients(policy: Policy, value: Tensor) -> dict[str, Tensor]:
    policy.model.zero_grad(set_to_none=True)
    value.backward()
    return {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}


def gradient_error(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The norm of the difference over the norm."""
    assert ours.keys() == theirs.keys()
    size = math.sqrt(sum(float(g.square().sum()) for g in theirs.values()))
    return math.sqrt(sum(float((ours[n] - theirs[n]).square().sum()) for n in theirs)) / size


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor], tol: float) -> None:
    assert gradient_error(ours, theirs) <= tol
