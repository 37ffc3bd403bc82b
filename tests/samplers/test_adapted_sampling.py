"""Samplers under a LoRA adapter: after each load they sample from what the learner scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.policies import AdapterSettings, Policy, sequence_logprobs
from groupwise.policies.adapter_config import lora_config
from groupwise.policies.adapters import adapter_parameters, attach
from groupwise.samplers import make_sampler
from groupwise.types import Request
from model_families import family_policy
from sampler_requests import PROMPTS, unending

# bfloat16: the local sampler rounds W + B A once, the learner W, A and B each.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.06}


def adapted(family: str, dtype: torch.dtype, **settings: Any) -> Policy:
    policy = unending(family_policy(family, dtype=dtype))
    chosen = AdapterSettings(rank=4, alpha=8.0, **settings)
    attach(policy.model, lora_config(chosen, policy.model, None))
    return policy


def move(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter_parameters(policy.model).values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


def gap(sampler: Any, policy: Policy) -> float:
    """The mean difference between the sampler's and the learner's log-probabilities."""
    requests = [Request(prompt, key=key, max_tokens=6) for key, prompt in enumerate(PROMPTS)]
    completions = sampler.sample(requests)
    with torch.no_grad():
        ours = sequence_logprobs(policy, PROMPTS, [c.token_ids for c in completions]).logprobs
    theirs = torch.tensor([c.sampler_logprobs for c in completions])
    return float((ours - theirs).abs().mean())


@pytest.mark.parametrize("name", ["transformers", "local"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "phi3"])
def test_every_load_takes_the_adapter_as_it_is(family: str, dtype: torch.dtype, name: str) -> None:
    policy = adapted(family, dtype)
    sampler = make_sampler(name, policy)
    assert gap(sampler, policy) < TOLERANCE[dtype]
    for version in (1, 2, 3):
        move(policy, version)
        if dtype == torch.bfloat16:  # copies are stale until they are loaded
            assert gap(sampler, policy) > TOLERANCE[dtype]
        sampler.load(policy, version)
        assert gap(sampler, policy) < TOLERANCE[dtype]


def test_an_adapted_head() -> None:
    for name in ("transformers", "local"):
        policy = adapted("mistral", torch.bfloat16, target_modules=("lm_head", "q_proj"))
        sampler = make_sampler(name, policy)
        move(policy, 1)
        sampler.load(policy, 1)
        assert gap(sampler, policy) < TOLERANCE[torch.bfloat16]
