"""Attention over a packed row, registered as an attention function of transformers.

It serves every model that takes its attention from transformers. All completions of a prompt read
its keys and values; soft caps, scales and sliding windows are supported. The backward pass
recomputes the scores, so nothing as large as the scores is stored.
Shapes: N tokens, H query heads, G key and value heads, D their width; of a block R segments, C
query and K key slots.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from groupwise.policies.packing import Layout
from groupwise.policies.policy import evaluating
from groupwise.policies.routing import replaying

IMPLEMENTATION = "groupwise_packed"
PASSES = threading.RLock()
"""Held while a decoder runs: a pass sets its modules' modes and attention, which threads share."""
# Bytes of one batch of scores: a few times the fast caches, and small beside activations.
_SCORE_BYTES = 16 * 2**20


class PackingError(Exception):
    """The model uses an attention feature that is not supported here."""


@dataclass
class Pass:
    """The layout of a packed pass in progress, and the experts [N, L, K] that its tokens take where
    they are given; `windows` records each layer's window."""

    layout: Layout
    experts: Tensor | None = None
    windows: dict[int, int | None] = field(default_factory=dict[int, int | None])


_CURRENT: ContextVar[Pass | None] = ContextVar("groupwise_packed_pass", default=None)


class _Rule(NamedTuple):
    """How scores come about: scale, soft cap, sliding window."""

    scale: float
    softcap: float | None
    window: int | None


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query [1, H, N, D] and key, value [1, G, N, D] to
    [1, N, H, D]. Raises PackingError for any argument that it does not support."""
    current = _CURRENT.get()
    strange = [
        name
        for name, given in kwargs.items()
        if isinstance(given, Tensor) and not name.startswith(("position_ids", "cache_position"))
    ]
    if current is None or attention_mask is not None or dropout or strange:
        raise PackingError(f"attention with {', '.join(strange) or 'a mask or dropout'}")
    if kwargs.get("is_causal") is False or query.shape[0] != 1:
        raise PackingError("attention that is not causal")
    current.windows[int(getattr(module, "layer_idx", len(current.windows)))] = sliding_window
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    rule = _Rule(float(scale), softcap, sliding_window)
    dtype = value.dtype
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
    rows = [tensor[0].transpose(0, 1).to(dtype) for tensor in (query, key, value)]
    with torch.autocast(query.device.type, enabled=False):
        out = _attend(rows[0], rows[1], rows[2], current.layout, rule)
    return out[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor, layout: Layout, rule: _Rule) -> Tensor:
    """[N, H, D] and [N, G, D] to [N, H, D]."""
    if query.device.type != "cpu" and rule.softcap is None:
        return _fused(query, key, value, layout, rule)
    apply: Any = _BlockAttention.apply
    out: Tensor = apply(query, key, value, layout, rule)
    return out


def _fused(query: Tensor, key: Tensor, value: Tensor, layout: Layout, rule: _Rule) -> Tensor:
    """By the device's own fused kernels; autograd does the rest."""
    groups = query.shape[1] // key.shape[1]
    parts = []
    for number, block in enumerate(layout.blocks):
        bias = layout.bias(number, rule.window, query.dtype)[:, None]
        q = query[block.queries].transpose(1, 2)
        k, v = (
            tensor[block.keys].transpose(1, 2).repeat_interleave(groups, dim=1)
            for tensor in (key, value)
        )
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=rule.scale)
        parts.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, layout.order)


class _BlockAttention(torch.autograd.Function):
    """softmax(cap(scale q k) + mask) v for every block, batches of scores of bounded size.

    With S = cap(scale q k), P = softmax(S + mask), O = P v:
    dv = P' dO, dS = P (dO v' - sum(P dO v')), d(q k) = scale (1 - (S / cap)^2) dS.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Layout, rule: _Rule
    ) -> Tensor:
        slots = query.new_empty(layout.num_slots, query.shape[1], value.shape[2])
        for batch in _batches(layout, query):
            q, k, v = _gather(batch, query, key, value)
            weights, _ = _weights(q, k, batch, layout, rule)
            width = batch.queries.shape[1]
            slots[batch.slots] = _ungroup(torch.bmm(weights, v), width, key.shape[1])
        ctx.save_for_backward(query, key, value)
        ctx.layout, ctx.rule = layout, rule
        return slots.index_select(0, layout.order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        layout, rule = ctx.layout, ctx.rule
        slots = grad_out.new_zeros(layout.num_slots, *grad_out.shape[1:])
        slots.index_copy_(0, layout.order, grad_out)
        exact = torch.float64 if query.dtype == torch.float64 else torch.float32
        groups = key.shape[1]
        grad_query = slots.new_empty(slots.shape[0], *query.shape[1:])
        grad_key = torch.zeros_like(key, dtype=exact, memory_format=torch.contiguous_format)
        grad_value = torch.zeros_like(value, dtype=exact, memory_format=torch.contiguous_format)
        for batch in _batches(layout, query):
            q, k, v = _gather(batch, query, key, value)
            weights, slope = _weights(q, k, batch, layout, rule)
            rows, width = batch.queries.shape
            grad = _group(slots[batch.slots].view(rows, width, *slots.shape[1:]), groups)
            places = batch.keys.flatten()
            grad_v = torch.bmm(weights.transpose(1, 2), grad)
            grad_value.index_add_(0, places, _ungroup(grad_v, grad_v.shape[1], groups).to(exact))
            d_scores = torch._softmax_backward_data(
                torch.bmm(grad, v.transpose(1, 2)), weights, -1, weights.dtype
            )
            if slope is not None:
                d_scores.mul_(slope)
            d_scores.mul_(rule.scale)
            grad_query[batch.slots] = _ungroup(torch.bmm(d_scores, k), width, groups)
            grad_k = torch.bmm(d_scores.transpose(1, 2), q)
            grad_key.index_add_(0, places, _ungroup(grad_k, grad_k.shape[1], groups).to(exact))
        return (
            grad_query.index_select(0, layout.order),
            grad_key.to(key.dtype),
            grad_value.to(value.dtype),
            None,
            None,
        )


class _Batch(NamedTuple):
    """Some segments of one block: their queries [R, C], keys [R, K], place among all slots."""

    number: int
    rows: slice
    queries: Tensor
    keys: Tensor
    slots: slice


def _batches(layout: Layout, query: Tensor) -> Iterator[_Batch]:
    """The blocks, cut between segments so that a batch's scores stay within bounds."""
    before = 0
    for number, block in enumerate(layout.blocks):
        rows, width = block.queries.shape
        row = width * block.keys.shape[1] * query.shape[1] * query.element_size()
        size = max(1, _SCORE_BYTES // row)
        for start in range(0, rows, size):
            part = slice(start, min(start + size, rows))
            slots = slice(before + part.start * width, before + part.stop * width)
            yield _Batch(number, part, block.queries[part], block.keys[part], slots)
        before += rows * width


def _gather(batch: _Batch, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Queries [R G, H/G C, D], keys and values [R G, K, D] of a batch."""
    groups = key.shape[1]
    return tuple(
        _group(tensor[places], groups)
        for tensor, places in ((query, batch.queries), (key, batch.keys), (value, batch.keys))
    )


def _weights(
    query: Tensor, key: Tensor, batch: _Batch, layout: Layout, rule: _Rule
) -> tuple[Tensor, Tensor | None]:
    """Attention weights [R G, H/G C, K], and the soft cap's derivative, or None without a cap."""
    scores = torch.bmm(query, key.transpose(1, 2)).mul_(rule.scale)
    slope = None
    if rule.softcap is not None:
        bent = scores.div_(rule.softcap).tanh_()
        slope = 1.0 - bent.square()
        scores = bent.mul_(rule.softcap)
    bias = layout.bias(batch.number, rule.window, scores.dtype)
    rows, width = batch.queries.shape
    bias = bias[batch.rows] if bias.shape[0] > 1 else bias
    scores.view(rows, -1, width, scores.shape[2]).add_(bias[:, None])
    return torch.softmax(scores, -1), slope


def _group(tensor: Tensor, groups: int) -> Tensor:
    """[R, C, H, D] to [R G, H/G C, D]: the query heads of a key head, one under the other."""
    rows, width, heads, size = tensor.shape
    split = tensor.view(rows, width, groups, heads // groups, size)
    return split.permute(0, 2, 3, 1, 4).reshape(rows * groups, -1, size)


def _ungroup(tensor: Tensor, width: int, groups: int) -> Tensor:
    """[R G, H/G C, D] back to [R C, H, D], C being `width`."""
    split = tensor.view(-1, groups, tensor.shape[1] // width, width, tensor.shape[2])
    return split.permute(0, 3, 1, 2, 4).reshape(-1, groups * split.shape[2], tensor.shape[2])


# --- running a model so ------------------------------------------------------------------------


@contextmanager
def packed(decoder: nn.Module, layout: Layout, experts: Tensor | None = None) -> Iterator[None]:
    """Makes a forward pass of `decoder` over `layout.input_ids` attend as the layout says, its
    tokens routed to `experts` [N, L, K] where they are given.

    Checkpointed layers use it again when the backward pass recomputes them.
    """
    current = Pass(layout, experts)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _recomputing(decoder, current)

    checkpointed = [
        (module, module._gradient_checkpointing_func)
        for module in decoder.modules()
        if getattr(module, "gradient_checkpointing", False)
        and hasattr(module, "_gradient_checkpointing_func")
    ]
    for module, _ in checkpointed:
        module._gradient_checkpointing_func = partial(  # type: ignore[assignment]
            checkpoint, use_reentrant=False, context_fn=contexts
        )
    try:
        with running(decoder, current):
            yield
    finally:
        for module, before in checkpointed:
            module._gradient_checkpointing_func = before


@contextmanager
def _recomputing(decoder: nn.Module, current: Pass) -> Iterator[None]:
    with PASSES, evaluating(decoder), running(decoder, current):
        yield


@contextmanager
def running(decoder: nn.Module, current: Pass) -> Iterator[None]:
    """`current` is what attention sees, and packed attention what the decoder's modules take."""
    token = _CURRENT.set(current)
    try:
        with implementation(decoder, IMPLEMENTATION), replaying(decoder, current.experts):
            yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def implementation(decoder: nn.Module, name: str) -> Iterator[None]:
    """The name of an attention function in every configuration that the decoder's modules read.

    One without a mask function of the same name gets no mask: none as large as N x N is made.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if IMPLEMENTATION not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, packed_attention)
    configs: dict[int, Any] = {}
    for module in decoder.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            configs[id(config)] = config
    before = [(config, config._attn_implementation) for config in configs.values()]
    for config, _ in before:
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation


def run(decoder: Any, layout: Layout) -> Tensor:
    """[M, D] hidden states that predict the completion tokens, inside `packed`."""
    hidden: Tensor = decoder(
        input_ids=layout.input_ids, position_ids=layout.position_ids, use_cache=False
    ).last_hidden_state
    return hidden[0].index_select(0, layout.predictors)
