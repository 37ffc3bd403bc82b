"""The contract's tests for the samplers `vllm` and `sglang`, against servers like theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import test_sampler_contract as contract
from test_sampler_contract import (  # noqa: F401 (run here with the fixture below)
    test_every_stop_id_ends,
    test_limits_are_per_request,
    test_requests_that_do_not_fit_are_refused,
    test_sampled_ids_are_not_encoded_again,
    test_stop_strings_over_token_boundaries,
    test_the_same_key_draws_the_same_tokens_and_other_keys_others,
    test_the_stop_id_is_kept_and_ends_the_completion,
)

from groupwise.policies import Policy
from groupwise.samplers import make_sampler
from groupwise.samplers.servers.settings import SglangSettings, VllmSettings
from groupwise.types import Completion, Request
from model_families import family_policy
from sglang_stub import SglangStub
from vllm_stub import Stub, vllm_stub

pytestmark = pytest.mark.slow


@pytest.fixture(params=["vllm", "sglang"])
def sampled(request: pytest.FixtureRequest) -> contract.Sampled:
    kind, table = {
        "vllm": (Stub, VllmSettings),
        "sglang": (SglangStub, SglangSettings),
    }[request.param]

    def sample(policy: Policy, asked: Sequence[Request], **kwargs: Any) -> list[Completion]:
        with vllm_stub(policy, kind=kind) as stub:
            settings = table(servers=(stub.url,))
            sampler = make_sampler(request.param, policy, servers=settings, **kwargs)
            try:
                return sampler.sample(asked)
            finally:
                sampler.close()

    return sample


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_logprobs_and_greedy_ids(family: str, sampled: contract.Sampled) -> None:
    contract.test_greedy_ids_equal_generate(family, sampled)
    contract.test_sampler_logprobs_equal_the_learners(family, 0.7, sampled)


def test_a_completion_does_not_depend_on_how_many_are_in_flight(
    sampled: contract.Sampled,
) -> None:
    contract.test_a_completion_does_not_depend_on_the_batch("llama", 3, sampled)


def test_the_most_likely_tokens_where_they_are_asked_for(sampled: contract.Sampled) -> None:
    policy = family_policy("llama")
    policy.template.stop_ids = frozenset()
    asked = Request((5, 6), key=2, max_tokens=6, top_k=3, temperature=0.8)
    (found,) = sampled(policy, [asked])
    (expected,) = make_sampler("transformers", policy).sample([asked])
    assert found.top_ids == expected.top_ids
    assert found.top_logprobs is not None
    assert expected.top_logprobs is not None
    for ours, theirs in zip(found.top_logprobs, expected.top_logprobs, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-5)
