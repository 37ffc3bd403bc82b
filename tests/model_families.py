"""Tiny random models of several families, as policies: what differs between families is in here.

Weights are large enough that logits, soft caps and scales matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from groupwise.policies import Policy
from groupwise.templates import Template
from toy_tokenizers import words

VOCABULARY = 40
_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "initializer_range": 0.3,
}
_GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "initializer_range": 0.3,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**_BASE, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**_BASE, "sliding_window": 6}),
    "qwen2": ("Qwen2", _BASE),
    "qwen3": ("Qwen3", _BASE),
    "gemma2": (
        "Gemma2",
        {
            **_BASE,
            "sliding_window": 6,
            "final_logit_softcapping": 3.0,
            "attn_logit_softcapping": 5.0,
            "query_pre_attn_scalar": 8,
            "attn_implementation": "eager",
        },
    ),
    "granite": ("Granite", {**_BASE, "logits_scaling": 4.0, "embedding_multiplier": 2.0}),
    "cohere": ("Cohere", {**_BASE, "logit_scale": 0.25}),
    "olmo2": ("Olmo2", _BASE),
    "phi3": ("Phi3", {**_BASE, "original_max_position_embeddings": 128}),
    "gpt2": ("GPT2", _GPT2),
    "gpt_neox": ("GPTNeoX", {k: v for k, v in _BASE.items() if k != "num_key_value_heads"}),
    "phi": ("Phi", _BASE),
    "qwen3_moe": (
        "Qwen3Moe",
        {**_BASE, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
    "mixtral": ("Mixtral", {**_BASE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "gemma3": (
        "Gemma3",
        {
            **_BASE,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 6,
            "query_pre_attn_scalar": 8,
            "final_logit_softcapping": 3.0,
        },
    ),
}

# Families that differ in kind: the fast suite runs these, the slow one all.
_IN_EVERY_RUN = ("llama", "mistral", "gemma2", "granite", "gpt2", "gpt_neox", "qwen3_moe")


def cases(families: Iterable[str] = tuple(FAMILIES)) -> list[Any]:
    """The families as parameters of a test, those alike to another one marked slow."""
    return [
        pytest.param(name, marks=() if name in _IN_EVERY_RUN else pytest.mark.slow)
        for name in families
    ]


def family_template(tokens: int = VOCABULARY) -> Template:
    """One-character tokens; id 2 ends a completion and pads."""
    letters = [chr(48 + i) for i in range(tokens - 3)]
    tokenizer = words(["<unk>", "<bos>", "<end>"], letters)
    return Template(tokenizer, None, special_tokens={"eos_token": "<end>"}, pad_id=2)


def family_model(family: str, seed: int = 0, **changed: Any) -> nn.Module:
    name, config = FAMILIES[family]
    torch.manual_seed(seed)
    kwargs = config | changed
    attention = kwargs.pop("attn_implementation", None)
    text = "Text" if name == "Gemma3" else ""
    made = getattr(transformers, f"{name}{text}Config")(**kwargs)
    if name == "GPT2":
        model = transformers.GPT2LMHeadModel(made)
    else:
        model = getattr(transformers, f"{name}ForCausalLM")(made)
    if attention is not None:
        model.set_attn_implementation(attention)
    # Norms start at one and biases at zero; move them, so that leaving one out shows.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.eval()
    return model  # type: ignore[no-any-return]


def family_policy(
    family: str = "llama",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    tokens: int = VOCABULARY,
    **changed: Any,
) -> Policy:
    """`dtype` float64 makes the weights float64; bfloat16 only the matrix products. Fewer `tokens`
    than the vocabulary has rows leave it padded. `changed` are fields of the configuration."""
    model = family_model(family, seed, **changed)
    if dtype == torch.float64:
        model.double()
    return Policy(
        name=family,
        model=model,
        template=family_template(tokens),
        device=torch.device("cpu"),
        dtype=torch.bfloat16 if dtype == torch.bfloat16 else torch.float32,
        max_length=128,
    )
