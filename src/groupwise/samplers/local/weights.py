"""Matrices and norms as a sampler uses them: fused, in its precision, packed for the CPU's kernels.

A `Matrix` is one or several of the model's linear layers side by side (queries, keys and values;
gate and up). Its copy is made again by `refresh` after every optimiser step; norms and embeddings
are small or read by rows, and stay the learner's own tensors.
Shapes: N tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.policies.adapters import effective_bias, effective_weight

# Rows that oneDNN is told to expect; it decides the blocking, not what may be multiplied.
EXPECTED_ROWS = 64


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """True where oneDNN can lay a matrix of this type out once for many products."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


class Matrix:
    """`x @ W.T + b` over the outputs of several linear layers, one after the other.

    With `pack` the weight is kept in oneDNN's own layout (a private interface of PyTorch: without
    it, or on another device, `linear` does the same).
    """

    def __init__(
        self, layers: Sequence[nn.Module], dtype: torch.dtype, *, pack: bool = True
    ) -> None:
        self.layers = tuple(layers)
        self.dtype = dtype
        self.packs = pack and can_pack(dtype, effective_weight(self.layers[0]).device)
        self.weight = torch.empty(0)
        self.bias: Tensor | None = None
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the layers' present weights."""
        parts = [effective_weight(layer) for layer in self.layers]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts)
        bias = _join([effective_bias(layer) for layer in self.layers], parts)
        weight = weight.detach().to(self.dtype)
        self.bias = None if bias is None else bias.detach().to(self.dtype)
        if self.packs:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), EXPECTED_ROWS)
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """[N, I] of this matrix's dtype, contiguous, to [N, O]."""
        if self.packs:
            return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
                x, self.weight, self.bias, "none", [], ""
            )
        return functional.linear(x, self.weight, self.bias)


def _join(biases: Sequence[Tensor | None], weights: Sequence[Tensor]) -> Tensor | None:
    """The layers' biases one after the other, zeros for a layer without."""
    if all(bias is None for bias in biases):
        return None
    return torch.cat([
        weight.new_zeros(weight.shape[0]) if bias is None else bias
        for bias, weight in zip(biases, weights)
    ])  # fmt: skip


class Norm:
    """RMS norm over the last dimension, in the residual stream's precision.

    `offset` is added to the weight (Gemma stores its distance from 1).
    """

    def __init__(self, module: Any, *, eps: float, offset: float = 0.0) -> None:
        self.module = module
        self.eps = eps
        self.offset = offset
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the module's present weight."""
        weight = self.module.weight.detach().float()
        self.weight = weight + self.offset if self.offset else weight

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
