"""What is trained: loading a model, its log-probabilities, the built-in models, export.

`load_policy` gives a `Policy`; `sequence_logprobs` and `score` give per-token log-probabilities
from hidden states in chunks. torch and transformers load on first use of these names, not here.
Left out: sampling (samplers) and the optimiser (learner/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.policies.adapter_config import AdapterInfo
    from groupwise.policies.adapters import (
        base_identity,
        base_tensors,
        copy_trained,
        effective_bias,
        effective_weight,
        has_adapter,
        linear_layers,
        merged_copy,
        weights_hash,
    )
    from groupwise.policies.catalogue import ModelEntry, get_model, models
    from groupwise.policies.critic import Critic, make_critic, sequence_values
    from groupwise.policies.export import refuse_full, save_pretrained
    from groupwise.policies.load import (
        ModelInfo,
        checkpoint_activations,
        choose_device,
        choose_dtype,
        describe_model,
        load_policy,
    )
    from groupwise.policies.logprobs import (
        LogprobOutput,
        forward_tokens,
        runs_packed,
        score,
        sequence_logprobs,
    )
    from groupwise.policies.policy import Policy
    from groupwise.policies.settings import AdapterSettings, ModelSettings
    from groupwise.policies.smollm2 import fetch_smollm2
    from groupwise.policies.tiny import build_tiny

_HOMES = {
    "Policy": "policy",
    "ModelSettings": "settings",
    "AdapterSettings": "settings",
    "AdapterInfo": "adapter_config",
    "has_adapter": "adapters",
    "linear_layers": "adapters",
    "effective_weight": "adapters",
    "effective_bias": "adapters",
    "merged_copy": "adapters",
    "copy_trained": "adapters",
    "base_tensors": "adapters",
    "base_identity": "adapters",
    "weights_hash": "adapters",
    "load_policy": "load",
    "describe_model": "load",
    "ModelInfo": "load",
    "checkpoint_activations": "load",
    "choose_device": "load",
    "choose_dtype": "load",
    "LogprobOutput": "logprobs",
    "sequence_logprobs": "logprobs",
    "forward_tokens": "logprobs",
    "runs_packed": "logprobs",
    "score": "logprobs",
    "Critic": "critic",
    "make_critic": "critic",
    "sequence_values": "critic",
    "save_pretrained": "export",
    "refuse_full": "export",
    "ModelEntry": "catalogue",
    "models": "catalogue",
    "get_model": "catalogue",
    "fetch_smollm2": "smollm2",
    "build_tiny": "tiny",
}

__all__ = [
    "Policy",
    "ModelSettings",
    "AdapterSettings",
    "AdapterInfo",
    "has_adapter",
    "linear_layers",
    "effective_weight",
    "effective_bias",
    "merged_copy",
    "copy_trained",
    "base_tensors",
    "base_identity",
    "weights_hash",
    "load_policy",
    "describe_model",
    "ModelInfo",
    "checkpoint_activations",
    "choose_device",
    "choose_dtype",
    "LogprobOutput",
    "sequence_logprobs",
    "forward_tokens",
    "runs_packed",
    "score",
    "Critic",
    "make_critic",
    "sequence_values",
    "save_pretrained",
    "refuse_full",
    "ModelEntry",
    "models",
    "get_model",
    "fetch_smollm2",
    "build_tiny",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'groupwise.policies' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"groupwise.policies.{_HOMES[name]}"), name)
