"""What is trained: loading a model, its log-probabilities, the built-in models, export.

`load_policy` gives a `Policy`; `sequence_logprobs` and `score` give per-token log-probabilities
from hidden states in chunks. torch and transformers load on first use of these names, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.policies.adapter_config import AdapterInfo as AdapterInfo
    from groupwise.policies.adapters import base_identity as base_identity
    from groupwise.policies.adapters import base_tensors as base_tensors
    from groupwise.policies.adapters import copy_trained as copy_trained
    from groupwise.policies.adapters import effective_bias as effective_bias
    from groupwise.policies.adapters import effective_weight as effective_weight
    from groupwise.policies.adapters import has_adapter as has_adapter
    from groupwise.policies.adapters import linear_layers as linear_layers
    from groupwise.policies.adapters import merged_copy as merged_copy
    from groupwise.policies.adapters import weights_hash as weights_hash
    from groupwise.policies.catalogue import ModelEntry as ModelEntry
    from groupwise.policies.catalogue import get_model as get_model
    from groupwise.policies.catalogue import models as models
    from groupwise.policies.critic import Critic as Critic
    from groupwise.policies.critic import make_critic as make_critic
    from groupwise.policies.critic import sequence_values as sequence_values
    from groupwise.policies.export import refuse_full as refuse_full
    from groupwise.policies.export import save_pretrained as save_pretrained
    from groupwise.policies.load import ModelInfo as ModelInfo
    from groupwise.policies.load import check_base as check_base
    from groupwise.policies.load import checkpoint_activations as checkpoint_activations
    from groupwise.policies.load import choose_device as choose_device
    from groupwise.policies.load import choose_dtype as choose_dtype
    from groupwise.policies.load import describe_model as describe_model
    from groupwise.policies.load import is_classifier as is_classifier
    from groupwise.policies.load import load_policy as load_policy
    from groupwise.policies.logprobs import LogprobOutput as LogprobOutput
    from groupwise.policies.logprobs import forward_tokens as forward_tokens
    from groupwise.policies.logprobs import runs_packed as runs_packed
    from groupwise.policies.logprobs import score as score
    from groupwise.policies.logprobs import sequence_logprobs as sequence_logprobs
    from groupwise.policies.logprobs import why_no_replay as why_no_replay
    from groupwise.policies.policy import Policy as Policy
    from groupwise.policies.settings import AdapterSettings as AdapterSettings
    from groupwise.policies.settings import ModelSettings as ModelSettings
    from groupwise.policies.smollm2 import fetch_smollm2 as fetch_smollm2
    from groupwise.policies.speed import Speed as Speed
    from groupwise.policies.speed import measure_speed as measure_speed
    from groupwise.policies.teaching import Teaching as Teaching
    from groupwise.policies.tiny import build_tiny as build_tiny

__getattr__, __all__ = lazy_names(__name__, __file__)
