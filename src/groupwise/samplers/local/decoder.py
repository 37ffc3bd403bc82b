"""Decoders of the Llama-like families over the learner's own weights: read from a model, and run.

Families differ in where norms stand, which rotary table a layer reads, and what a window or a soft
cap does. Everything but attention works token by token, so the tokens of any number of sequences,
in any stage, are one matrix product; `attend` knows which token belongs where. The residual stream
and norms are float32 (float64 where the weights are), matrix products are in the decoder's dtype:
what the learner's autocast does.
Shapes: N tokens, D hidden, Hq query heads, Hk key heads, W head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.policies.heads import causal_lm, text_config
from groupwise.policies.routing import noting, stacked
from groupwise.samplers.local.weights import Matrix, Norm

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "smollm3",
    "olmo2",
    "qwen3_moe",
    "mixtral",
)

# Families whose mask follows each layer's type, and those with one window for all layers. The
# others have none, even if their configuration names one.
_WINDOW_BY_TYPE = ("qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3")
_ONE_WINDOW = ("mistral", "mixtral", "phi3", "qwen3_moe")


@dataclass(frozen=True)
class _Reading:
    """How the matrices and norms of one model are made."""

    config: Any
    dtype: torch.dtype
    pack: bool
    quantise: bool = False

    def matrix(self, owner: Any, fused: str, *names: str) -> Matrix:
        """The layer called `fused`, else those called `names`, side by side."""
        found = [fused] if hasattr(owner, fused) else names
        layers = [getattr(owner, name) for name in found]
        return Matrix(layers, self.dtype, pack=self.pack, quantise=self.quantise)

    def norm(self, owner: Any, name: str) -> Norm | None:
        """The owner's norm of that name; Gemma's weights are stored as their distance from 1."""
        module = getattr(owner, name, None)
        if module is None:
            return None
        offset = 1.0 if self.config.model_type.startswith("gemma") else 0.0
        eps = getattr(module, "variance_epsilon", None)
        return Norm(module, eps=module.eps if eps is None else eps, offset=offset)


class AttentionLayer:
    """One layer's attention. `qkv` gives queries, keys and values of all heads in this order.

    `scale` multiplies the scores, `softcap` bounds them, `window` is the number of newest positions
    that are seen (None: all). `query_norm` and `key_norm` are over a head's width, or with
    `norm_all_heads` over all heads at once. `rope` names the rotary table, None without one.
    """

    def __init__(self, own: Any, reading: _Reading) -> None:
        config = reading.config
        self.qkv = reading.matrix(own, "qkv_proj", "q_proj", "k_proj", "v_proj")
        self.output = reading.matrix(own, "o_proj")
        self.scale: float = own.scaling
        # Gemma 3's configuration has one too, which its attention does not apply.
        gemma2 = config.model_type == "gemma2"
        self.softcap: float | None = own.attn_logit_softcapping if gemma2 else None
        self.window = _window(own, config)
        self.query_norm = reading.norm(own, "q_norm")
        self.key_norm = reading.norm(own, "k_norm")
        self.norm_all_heads = config.model_type.startswith("olmo")
        self.rope = _rope_name(own, config)


class GatedLayer:
    """A dense feed-forward layer: down(act(gate) * up)."""

    def __init__(self, mlp: Any, reading: _Reading) -> None:
        self.up = reading.matrix(mlp, "gate_up_proj", "gate_proj", "up_proj")
        self.down = reading.matrix(mlp, "down_proj")
        self.act: Callable[[Tensor], Tensor] = getattr(mlp, "act_fn", None) or mlp.activation_fn

    def __call__(self, x: Tensor) -> Tensor:
        """[N, D] to [N, D]."""
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(self.act(gate) * up)


class ExpertsLayer:
    """A mixture of experts, run as the model's own module, router included."""

    def __init__(self, module: nn.Module, reading: _Reading) -> None:
        self.module = module
        self.dtype = reading.dtype

    def __call__(self, x: Tensor) -> Tensor:
        """[N, D] to [N, D], with matrix products in `dtype`."""
        lower = self.dtype == torch.bfloat16
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=lower):
            made = self.module(x[None])
        return (made[0] if isinstance(made, tuple) else made)[0]  # type: ignore[no-any-return]


class Layer:
    """Attention and a feed-forward half, with norms before and after each where there are."""

    def __init__(self, layer: Any, reading: _Reading) -> None:
        self.attention = AttentionLayer(layer.self_attn, reading)
        made = ExpertsLayer if hasattr(layer.mlp, "experts") else GatedLayer
        self.feed_forward: Callable[[Tensor], Tensor] = made(layer.mlp, reading)
        self.before_attention = reading.norm(layer, "input_layernorm")
        self.after_attention = reading.norm(layer, "post_attention_layernorm")
        self.before_feed_forward = reading.norm(layer, "pre_feedforward_layernorm")
        self.after_feed_forward = reading.norm(layer, "post_feedforward_layernorm")
        if self.after_feed_forward is None:  # then the name says where it is, not what it norms
            self.before_feed_forward, self.after_attention = self.after_attention, None

    @property
    def parts(self) -> Iterator[Matrix | Norm]:
        """Whatever holds a copy of weights."""
        for owner in (self, self.attention, self.feed_forward):
            yield from (each for each in vars(owner).values() if isinstance(each, Matrix | Norm))


# (layer number, layer, queries [N, Hq, W], keys [N, Hk, W], values [N, Hk, W]) to [N, Hq, W].
Attend = Callable[[int, AttentionLayer, Tensor, Tensor, Tensor], Tensor]


class Decoder:
    """From ids and positions to the states that the head reads.

    `tables` hold cosines and sines [S, W] of the model's own rotary module, W the rotated width of
    a head, for the names in `rope_names`. With `notes`, `experts` [N, L, K] are those that the
    tokens of the last run were routed to.
    """

    def __init__(self, model: Any, reading: _Reading) -> None:
        config = reading.config
        self.embedding: nn.Module = model.embed_tokens
        self.layers = [Layer(layer, reading) for layer in model.layers]
        self.norm = reading.norm(model, "norm")
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = model.layers[0].self_attn.head_dim
        self.dtype = reading.dtype
        self.tables: dict[str, tuple[Tensor, Tensor]] = {}
        self.notes = False
        self.experts: Tensor | None = None
        self._model: nn.Module = model
        self._rotary = model.rotary_emb
        self._exact = torch.float64 if config.dtype == torch.float64 else torch.float32
        names = {layer.attention.rope for layer in self.layers}
        self.rope_names = tuple(sorted(name for name in names if name is not None))

    @property
    def matrices(self) -> list[Matrix]:
        """All fused linear layers."""
        return [part for layer in self.layers for part in layer.parts if isinstance(part, Matrix)]

    def refresh(self) -> None:
        """Take the learner's present weights everywhere."""
        for layer in self.layers:
            for part in layer.parts:
                part.refresh()
        assert self.norm is not None
        self.norm.refresh()

    @torch.no_grad()
    def reserve(self, length: int) -> None:
        """Tables of rotary positions for sequences of `length` from now on, float32 or better."""
        device = next(self.embedding.parameters()).device
        for name in self.rope_names:
            table = self.tables.get(name)
            if table is not None and table[0].shape[0] >= length:
                continue
            positions = torch.arange(max(256, 2 * length), device=device)[None]
            like = torch.zeros(1, dtype=self._exact, device=device)
            extra = () if name == "default" else (name,)
            with torch.autocast(device.type, enabled=False):
                cos, sin = self._rotary(like, positions, *extra)
            self.tables[name] = (cos[0], sin[0])

    @property
    def reserved(self) -> int:
        """Positions that the rotary tables hold; 0 without any."""
        return min((table[0].shape[0] for table in self.tables.values()), default=0)

    def run(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Normed hidden states [N, D] of tokens `ids` [N] at `positions` [N], which `reserve` has
        made room for.

        Queries arrive at `attend` scaled, and in the decoder's dtype like keys and values.
        """
        x = self.embedding(ids)
        ropes = {}
        for name in self.rope_names:  # [N, 1, W] cosines, the first half of the sines (both equal)
            cos, sin = (table[positions][:, None] for table in self.tables[name])
            ropes[name] = (cos, sin[..., : sin.shape[-1] // 2])
        with noting(self._model, self.notes) as chosen:
            for number, layer in enumerate(self.layers):
                rope = None if layer.attention.rope is None else ropes[layer.attention.rope]
                x = self._run_layer(number, layer, x, rope, attend)
        self.experts = stacked(chosen)
        return _normed(self.norm, x)

    def _run_layer(
        self,
        number: int,
        layer: Layer,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        attend: Attend,
    ) -> Tensor:
        attended = self._attention(
            number, layer.attention, _normed(layer.before_attention, x), rope, attend
        )
        if layer.after_attention is not None:
            attended = layer.after_attention(attended.to(x.dtype))
        middle = x + attended
        added = layer.feed_forward(_normed(layer.before_feed_forward, middle))
        if layer.after_feed_forward is not None:
            added = layer.after_feed_forward(added.to(x.dtype))
        return middle.add_(added)

    def _attention(
        self,
        number: int,
        own: AttentionLayer,
        x: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        attend: Attend,
    ) -> Tensor:
        both = self.heads + self.kv_heads
        states = own.qkv(x).view(x.shape[0], -1, self.head_dim)
        turned = _normed_heads(own, states[:, :both].to(x.dtype), self.heads)
        if rope is not None:
            turned = _rotated(turned, *rope)
        queries = (turned[:, : self.heads] * own.scale).to(self.dtype)
        keys = turned[:, self.heads :].to(self.dtype)
        values = states[:, both:].to(self.dtype)
        return own.output(attend(number, own, queries, keys, values).flatten(1))


def read_decoder(
    model: nn.Module, dtype: torch.dtype, *, pack: bool = True, quantise: bool = False
) -> Decoder | str:
    """A model's decoder, or the reason why it is not supported."""
    config = text_config(model)
    if config.model_type not in FAMILIES:
        return f"models of type {config.model_type!r} are not supported by the local sampler"
    if getattr(config, "use_bidirectional_attention", False):
        return "its attention looks ahead"
    ropes = getattr(config, "rope_parameters", None) or {}
    tables = [ropes, *(each for each in ropes.values() if isinstance(each, dict))]
    if any(each.get("rope_type") in ("dynamic", "longrope") for each in tables):
        return "its rotary positions depend on the length of the sequence at hand"
    return Decoder(causal_lm(model).get_decoder(), _Reading(config, dtype, pack, quantise))


def _window(attention: Any, config: Any) -> int | None:
    """The layer's sliding window, from where the family's own mask takes it."""
    types = getattr(config, "layer_types", None)
    if config.model_type in _WINDOW_BY_TYPE and types is not None:
        sliding = types[attention.layer_idx] == "sliding_attention"
        return config.sliding_window if sliding else None
    return config.sliding_window if config.model_type in _ONE_WINDOW else None


def _rope_name(attention: Any, config: Any) -> str | None:
    """The rotary table of a layer, which may depend on the layer's type; None without one."""
    if getattr(attention, "use_rope", True) in (False, 0):  # SmolLM3 leaves some layers without
        return None
    layer_type = getattr(attention, "layer_type", None)
    ropes = getattr(config, "rope_parameters", None) or {}
    return str(layer_type) if isinstance(ropes.get(layer_type), dict) else "default"


def _normed(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _normed_heads(own: AttentionLayer, turned: Tensor, heads: int) -> Tensor:
    """Queries and keys [N, Hq + Hk, W] normed by head, or over all heads of each at once."""
    if own.query_norm is None or own.key_norm is None:
        return turned
    queries, keys = turned[:, :heads], turned[:, heads:]
    if own.norm_all_heads:
        queries = own.query_norm(queries.flatten(1)).view(queries.shape)
        keys = own.key_norm(keys.flatten(1)).view(keys.shape)
        return torch.cat([queries, keys], dim=1)
    return torch.cat([own.query_norm(queries), own.key_norm(keys)], dim=1)


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
