"""The weights a sampler reads: the learner's own, or low-precision copies of its matrices.

In float32 nothing is copied. In bfloat16 every linear layer's weight but the head's has a bfloat16
copy, an adapter's A and B too, refreshed when a version is loaded, and everything else (embeddings,
norms, head, what is in 4 bits) is the learner's own tensor: the forward pass does what the
learner's does in autocast, without casting weights at every token.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from groupwise.policies.adapters import in_4_bits
from groupwise.policies.heads import head_of
from groupwise.policies.policy import Policy


class SamplingWeights:
    """A model for decoding, kept in step with a policy by `refresh`."""

    def __init__(self, policy: Policy) -> None:
        self._sources = list(policy.model.parameters())
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self.model: nn.Module = policy.model
        if policy.dtype != torch.float32:
            self.model = self._shadow(policy.model, policy.dtype)

    def _shadow(self, model: nn.Module, dtype: torch.dtype) -> nn.Module:
        """A second set of modules over the same tensors, its matrices replaced by copies."""
        shared: dict[int, Tensor] = {id(tensor): tensor for tensor in model.parameters()}
        shared.update((id(tensor), tensor) for tensor in model.buffers())
        shadow = copy.deepcopy(model, shared)
        copies: dict[int, nn.Parameter] = {}
        head = set(head_of(shadow).linear.modules())
        for module in shadow.modules():
            if not isinstance(module, nn.Linear | Conv1D) or module in head or in_4_bits(module):
                continue
            source = module.weight
            if id(source) not in copies:
                weight = nn.Parameter(source.detach().to(dtype), requires_grad=False)
                copies[id(source)] = weight
                self._pairs.append((source, weight))
            module.weight = copies[id(source)]
        return shadow

    def follow(self, policy: Policy) -> bool:
        """True where these weights are this policy's: the same parameter objects."""
        present = list(policy.model.parameters())
        return len(present) == len(self._sources) and all(
            known is found for known, found in zip(self._sources, present)
        )

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the policy's present weights."""
        for source, weight in self._pairs:
            weight.copy_(source)
