"""Describes a decoder of any family so that one forward pass can run it.

Every difference between families is a field: where norms stand, which rotary table a layer reads,
what a window or a soft cap does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from groupwise.samplers.local.weights import Matrix, Norm


@dataclass
class AttentionLayer:
    """One layer's attention. `qkv` gives queries, keys and values of all heads in this order.

    `scale` multiplies the scores, `softcap` bounds them, `window` is the number of newest positions
    that are seen (None: all). `query_norm` and `key_norm` are over a head's width, or with
    `norm_all_heads` over all heads at once. `rope` names the rotary table, None without one.
    """

    qkv: Matrix
    output: Matrix
    scale: float
    softcap: float | None = None
    window: int | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    norm_all_heads: bool = False
    rope: str | None = "default"


@dataclass
class DenseLayer:
    """A feed-forward layer: `down(act(gate) * up)`; the matrix `up` gives the gate, then up."""

    up: Matrix
    down: Matrix
    act: Callable[[Tensor], Tensor]


@dataclass
class Layer:
    """Norms before and after each half, where the family has them."""

    attention: AttentionLayer
    feed_forward: DenseLayer
    before_attention: Norm | None = None
    after_attention: Norm | None = None
    before_feed_forward: Norm | None = None
    after_feed_forward: Norm | None = None


# (layer number, layer, queries [N, Hq, W], keys [N, Hk, W], values [N, Hk, W]) to [N, Hq, W].
Attend = Callable[[int, AttentionLayer, Tensor, Tensor, Tensor], Tensor]

Rotary = Callable[[str, Tensor], tuple[Tensor, Tensor]]


@dataclass
class Decoder:
    """From ids and positions to the states that the head reads.

    `embedding` is the learner's own module. `rotary` maps a table's name and positions [S] to
    cosines and sines [S, W], W the rotated width of a head.
    """

    embedding: nn.Module
    layers: list[Layer]
    norm: Norm
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    rotary: Rotary
    tables: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take the learner's present weights everywhere."""
        for layer in self.layers:
            for part in _parts(layer):
                part.refresh()
        self.norm.refresh()

    @property
    def rope_names(self) -> tuple[str, ...]:
        names = {layer.attention.rope for layer in self.layers}
        return tuple(sorted(name for name in names if name is not None))

    def reserve(self, length: int) -> None:
        """Tables of rotary positions for sequences of `length` from now on."""
        for name in self.rope_names:
            table = self.tables.get(name)
            if table is None or table[0].shape[0] < length:
                device = next(self.embedding.parameters()).device
                rows = torch.arange(max(256, 2 * length), device=device)
                self.tables[name] = self.rotary(name, rows)

    @property
    def reserved(self) -> int:
        """Positions that the rotary tables hold; 0 without any."""
        return min((table[0].shape[0] for table in self.tables.values()), default=0)

    def rope(self, name: str, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, W] at `positions` [N], which `reserve` has made room for."""
        cos, sin = self.tables[name]
        return cos[positions], sin[positions]


def _parts(layer: Layer) -> Iterator[Matrix | Norm]:
    attention, feed_forward = layer.attention, layer.feed_forward
    yield from (attention.qkv, attention.output, feed_forward.up, feed_forward.down)
    for norm in (
        attention.query_norm,
        attention.key_norm,
        layer.before_attention,
        layer.after_attention,
        layer.before_feed_forward,
        layer.after_feed_forward,
    ):
        if norm is not None:
            yield norm
