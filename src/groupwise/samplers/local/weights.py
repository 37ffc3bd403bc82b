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

_LEVELS = 127
_ZERO_POINT = 128
_TINY = 1e-30
_LEAST_INPUT = 1e-5


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
    it, or on another device, `linear` does the same). With `quantise` it is kept in int8 from the
    first `refresh` on, and products are float32; `largest` [I] are the inputs' largest magnitudes.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        dtype: torch.dtype,
        *,
        pack: bool = True,
        quantise: bool = False,
    ) -> None:
        self.layers = tuple(layers)
        self.dtype = dtype
        self.quantise = quantise
        self.packs = pack and can_pack(dtype, effective_weight(self.layers[0]).device)
        self.weight: Tensor | Int8Weight = torch.empty(0)
        self.bias: Tensor | None = None
        self.largest: Tensor | None = None
        if not quantise:
            self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the layers' present weights."""
        parts = [effective_weight(layer) for layer in self.layers]
        weight = parts[0] if len(parts) == 1 else torch.cat(parts)
        bias = _join([effective_bias(layer) for layer in self.layers], parts)
        if self.quantise:
            self.weight = Int8Weight(weight.detach(), self.largest)
            self.bias = None if bias is None else bias.detach().float()
            return
        weight = weight.detach().to(self.dtype)
        self.bias = None if bias is None else bias.detach().to(self.dtype)
        if self.packs:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), EXPECTED_ROWS)
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """[N, I], contiguous, to [N, O]."""
        if isinstance(self.weight, Int8Weight):
            made = self.weight(x.float())
            return made if self.bias is None else made.add_(self.bias)
        x = x.to(self.dtype)
        if self.packs:
            return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
                x, self.weight, self.bias, "none", [], ""
            )
        return functional.linear(x, self.weight, self.bias)


class Int8Weight:
    """A matrix in int8 with one scale an output, for rows that are quantised as they come.

    x @ W.T = sx sw (qx @ qw.T), with sx = max |x| / 127 of a row and sw = max |W| / 127 of an
    output. A few inputs are far larger than the others, so each is divided first by
    sqrt(`largest` / max |W|), and its weights multiplied (SmoothQuant, 2211.10438). Rows do not
    depend on each other; the sum is exact. oneDNN's fast kernels take unsigned rows, hence the
    zero point.
    """

    def __init__(self, weight: Tensor, largest: Tensor | None = None) -> None:
        weight = weight.float()
        self.smooth: Tensor | None = None
        if largest is not None:
            heaviest = weight.abs().amax(dim=0).clamp_(min=_LEAST_INPUT)
            self.smooth = (heaviest / largest.clamp(min=_LEAST_INPUT)).sqrt_()
            weight = weight / self.smooth
        self.scales = weight.abs().amax(dim=1).div_(_LEVELS).clamp_(min=_TINY)
        quantised = torch.div(weight, self.scales[:, None]).round_().to(torch.int8)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(quantised, None)

    def __call__(self, x: Tensor) -> Tensor:
        """[N, I] float32 to [N, O] float32."""
        if self.smooth is not None:
            x = x * self.smooth
        scales = x.abs().amax(dim=1, keepdim=True).div_(_LEVELS).clamp_(min=_TINY)
        signed = torch.div(x, scales).round_().to(torch.int8)
        rows = signed.view(torch.uint8).bitwise_xor_(_ZERO_POINT)
        made: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, _ZERO_POINT, self.packed, self.scales, self.zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return made.mul_(scales)


def why_not_int8(device: torch.device) -> str | None:
    """None where int8 products are right and fast, else the reason in a few words."""
    if device.type != "cpu":
        return f"int8 products run on CPUs, and the model is on {device.type}"
    try:
        found = torch.cpu.get_capabilities()
        if not any(found.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
            return "this processor has no instructions for them (VNNI or AMX)"
        # Every pair of products must add up without saturating.
        signs = torch.tensor([[1.0], [-1.0]])
        made = Int8Weight(torch.ones(32, 64))(signs.expand(2, 64))
    except (RuntimeError, AttributeError) as error:
        return f"this PyTorch cannot compute them ({str(error).splitlines()[0][:100]})"
    return (
        None if bool((made - 64 * signs).abs().max() < 1e-3) else "they are wrong on this processor"
    )


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
