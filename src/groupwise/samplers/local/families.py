"""The model families that the local sampler supports, each read from its transformers model.

They share one layout and differ in norms, windows and caps. Any other model is decoded by
transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.policies.heads import causal_lm, text_config
from groupwise.samplers.local.architecture import (
    AttentionLayer,
    Decoder,
    DenseLayer,
    Layer,
    Rotary,
)
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
)

# Position codes that depend on the length of the sequence at hand cannot come from a table.
_CHANGING_ROPES = ("dynamic", "longrope")

# Families whose mask follows each layer's type, and those with one window for all layers. The
# others have none, even if their configuration names one.
_WINDOW_BY_TYPE = ("qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3")
_ONE_WINDOW = ("mistral", "phi3")


@dataclass(frozen=True)
class _Reading:
    """How matrices of one model are made."""

    dtype: torch.dtype
    pack: bool

    def matrix(self, *layers: nn.Module) -> Matrix:
        return Matrix(layers, self.dtype, pack=self.pack)


def read_decoder(model: nn.Module, dtype: torch.dtype, *, pack: bool = True) -> Decoder | str:
    """The description of a model's decoder, or the reason why it is not supported."""
    lm = causal_lm(model)
    config = text_config(model)
    if config.model_type not in FAMILIES:
        return f"models of type {config.model_type!r} are not supported by the local sampler"
    if getattr(config, "use_bidirectional_attention", False):
        return "its attention looks ahead"
    if _changing_rope(config):
        return "its rotary positions depend on the length of the sequence at hand"
    return _decoder(lm.get_decoder(), config, _Reading(dtype, pack))


def _changing_rope(config: Any) -> bool:
    parameters = getattr(config, "rope_parameters", None) or {}
    tables = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    return any(each.get("rope_type") in _CHANGING_ROPES for each in tables)


def _decoder(decoder: Any, config: Any, reading: _Reading) -> Decoder:
    gemma = 1.0 if config.model_type.startswith("gemma") else 0.0
    attention = decoder.layers[0].self_attn
    return Decoder(
        embedding=decoder.embed_tokens,
        layers=[_layer(layer, config, reading, gemma) for layer in decoder.layers],
        norm=_norm(decoder.norm, gemma),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        dtype=reading.dtype,
        rotary=_rotary(decoder.rotary_emb, config),
    )


def _layer(layer: Any, config: Any, reading: _Reading, gemma: float) -> Layer:
    own = layer.self_attn
    fused = getattr(own, "qkv_proj", None)
    qkv = [fused] if fused is not None else [own.q_proj, own.k_proj, own.v_proj]
    query_norm, key_norm = getattr(own, "q_norm", None), getattr(own, "k_norm", None)
    attention = AttentionLayer(
        qkv=reading.matrix(*qkv),
        output=reading.matrix(own.o_proj),
        scale=own.scaling,
        # Gemma 3's configuration has one too, which its attention does not apply.
        softcap=own.attn_logit_softcapping if config.model_type == "gemma2" else None,
        window=_window(own, config),
        query_norm=None if query_norm is None else _norm(query_norm, gemma),
        key_norm=None if key_norm is None else _norm(key_norm, gemma),
        norm_all_heads=config.model_type.startswith("olmo"),
        rope=_rope_name(own, config),
    )
    made = Layer(attention, _feed_forward(layer.mlp, reading))
    before, after = "input_layernorm", "post_attention_layernorm"
    if hasattr(layer, "pre_feedforward_layernorm"):  # Gemma: norms on both sides
        made.before_feed_forward = _norm(layer.pre_feedforward_layernorm, gemma)
        made.after_feed_forward = _norm(layer.post_feedforward_layernorm, gemma)
        made.after_attention = _norm(getattr(layer, after), gemma)
    elif hasattr(layer, "post_feedforward_layernorm"):  # OLMo 2: norms behind only
        made.after_attention = _norm(getattr(layer, after), gemma)
        made.after_feed_forward = _norm(layer.post_feedforward_layernorm, gemma)
    else:
        made.before_feed_forward = _norm(getattr(layer, after), gemma)
    if hasattr(layer, before):
        made.before_attention = _norm(getattr(layer, before), gemma)
    return made


def _feed_forward(mlp: Any, reading: _Reading) -> DenseLayer:
    fused = getattr(mlp, "gate_up_proj", None)
    up = [fused] if fused is not None else [mlp.gate_proj, mlp.up_proj]
    act = getattr(mlp, "act_fn", None) or mlp.activation_fn
    return DenseLayer(reading.matrix(*up), reading.matrix(mlp.down_proj), act)


def _norm(module: Any, offset: float = 0.0) -> Norm:
    eps = getattr(module, "variance_epsilon", None)
    return Norm(module, eps=module.eps if eps is None else eps, offset=offset)


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
    parameters = getattr(config, "rope_parameters", None) or {}
    layer_type = getattr(attention, "layer_type", None)
    own = isinstance(parameters.get(layer_type), dict) if layer_type is not None else False
    return str(layer_type) if own else "default"


def _rotary(module: nn.Module, config: Any) -> Rotary:
    """The model's own rotary module as a table of cosines and sines, float32 or better."""

    @torch.no_grad()
    def table(name: str, positions: Tensor) -> tuple[Tensor, Tensor]:
        exact = torch.float64 if config.dtype == torch.float64 else torch.float32
        like = torch.zeros(1, dtype=exact, device=positions.device)
        extra = () if name == "default" else (name,)
        with torch.autocast(positions.device.type, enabled=False):
            cos, sin = module(like, positions[None], *extra)
        return cos[0], sin[0]

    return table
