"""One forward pass over a flat list of tokens, for every family that a `Decoder` describes.

Everything but attention works token by token, so the tokens of any number of sequences, in any
stage, are one matrix product; `attend` knows which token belongs where. The residual stream and
norms are float32 (float64 where the weights are), matrix products are in the decoder's dtype: what
the learner's autocast does.
Shapes: N tokens, D hidden, Hq query heads, Hk key heads, W head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.samplers.local.architecture import (
    Attend,
    AttentionLayer,
    Decoder,
    DenseLayer,
    Layer,
)
from groupwise.samplers.local.weights import Norm


def run_decoder(decoder: Decoder, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
    """Normed hidden states [N, D] of tokens `ids` [N] at `positions` [N].

    Queries arrive at `attend` scaled, and in the decoder's dtype like keys and values.
    """
    x = decoder.embedding(ids)
    ropes = {name: _broadcast(decoder.rope(name, positions)) for name in decoder.rope_names}
    for number, layer in enumerate(decoder.layers):
        rope = None if layer.attention.rope is None else ropes[layer.attention.rope]
        x = _run_layer(decoder, number, layer, x, rope, attend)
    return decoder.norm(x)


def _broadcast(rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """[N, 1, W] cosines and the first half of the sines (both halves are equal)."""
    cos, sin = rope
    return cos[:, None], sin[:, None, : sin.shape[-1] // 2]


def _run_layer(
    decoder: Decoder,
    number: int,
    layer: Layer,
    x: Tensor,
    rope: tuple[Tensor, Tensor] | None,
    attend: Attend,
) -> Tensor:
    attended = _attention(decoder, number, layer, x, rope, attend)
    if layer.after_attention is not None:
        attended = layer.after_attention(attended.to(x.dtype))
    middle = x + attended
    source = _normed(layer.before_feed_forward, middle)
    added = _feed_forward(layer.feed_forward, source, decoder.dtype)
    if layer.after_feed_forward is not None:
        added = layer.after_feed_forward(added.to(x.dtype))
    return middle.add_(added)


def _normed(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _attention(
    decoder: Decoder,
    number: int,
    layer: Layer,
    x: Tensor,
    rope: tuple[Tensor, Tensor] | None,
    attend: Attend,
) -> Tensor:
    own = layer.attention
    width = decoder.head_dim
    states = own.qkv(_normed(layer.before_attention, x).to(decoder.dtype))
    states = states.view(x.shape[0], -1, width)
    turned = states[:, : decoder.heads + decoder.kv_heads].to(x.dtype)
    if own.query_norm is not None and own.key_norm is not None:
        turned = _normed_heads(own, turned, decoder.heads, own.query_norm, own.key_norm)
    if rope is not None:
        turned = _rotated(turned, *rope)
    queries = (turned[:, : decoder.heads] * own.scale).to(decoder.dtype)
    keys = turned[:, decoder.heads :].to(decoder.dtype)
    values = states[:, decoder.heads + decoder.kv_heads :]
    return own.output(attend(number, own, queries, keys, values).reshape(x.shape[0], -1))


def _normed_heads(
    own: AttentionLayer, turned: Tensor, heads: int, query_norm: Norm, key_norm: Norm
) -> Tensor:
    """Queries and keys [N, Hq + Hk, W] normed by head, or over all heads of each at once."""
    queries, keys = turned[:, :heads], turned[:, heads:]
    if own.norm_all_heads:
        queries = query_norm(queries.flatten(1)).view(queries.shape)
        keys = key_norm(keys.flatten(1)).view(keys.shape)
        return torch.cat([queries, keys], dim=1)
    return torch.cat([query_norm(queries), key_norm(keys)], dim=1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions over the first dimensions of a head; the rest is left as it is.

    RoFormer (Su et al. 2021), with the halves apart: (a, b) to (a cos - b sin, b cos + a sin).
    """
    half = sin.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = x[..., : 2 * half] * cos
    turned[..., :half].addcmul_(second, sin, value=-1.0)
    turned[..., half:].addcmul_(first, sin)
    return turned if 2 * half == x.shape[-1] else torch.cat([turned, x[..., 2 * half :]], dim=-1)


def _feed_forward(layer: DenseLayer, x: Tensor, dtype: torch.dtype) -> Tensor:
    gate, up = layer.up(x.to(dtype)).chunk(2, dim=-1)
    return layer.down(layer.act(gate) * up)
