"""The sampler `sglang` against a server that answers like SGLang's."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import test_vllm_faults
from test_vllm_faults import check
from test_vllm_settings import recipe

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy, score
from groupwise.recipe import load_recipe
from groupwise.samplers import make_sampler
from groupwise.samplers.servers.settings import SglangSettings
from groupwise.types import Request
from sampler_requests import requests
from sglang_stub import SglangStub
from vllm_stub import Stub, moved, vllm_stub

URL = "http://127.0.0.1:30000"


def stub_of(opened: ExitStack, policy: Policy, *faults: str) -> Stub:
    return opened.enter_context(vllm_stub(policy, *faults, kind=SglangStub))


sampler_on = partial(test_vllm_faults.sampler_on, table=SglangSettings)


@pytest.mark.parametrize("stream", ["", "incremental"])
def test_each_version_is_refreshed_probed_and_sampled(
    stream: str, policy: Policy, opened: ExitStack
) -> None:
    stub = stub_of(opened, policy, stream)
    sampler = sampler_on(opened, policy, stub)
    assert "equal seeds, which a server follows" in sampler.notes[0]
    sampler.load(policy, 0)
    stub.calls.clear()
    sampler.load(moved(policy), 1)
    assert [call for call in stub.calls if call != "/ready"] == [
        "/pause_generation", "/update_weights_from_disk", "/flush_cache?timeout=5",
        "/update_weight_version", "/continue_generation", "/generate", "/generate",
        "/weights_checker",
    ]  # fmt: skip
    asked = requests(3, max_tokens=5, temperature=0.7)
    completions = sampler.sample(asked)
    check(policy, asked, completions)
    assert {completion.version for completion in completions} == {1}
    (found,) = sampler.sample([Request((5, 6), key=2, max_tokens=4, top_k=3)])
    (expected,) = make_sampler("transformers", policy).sample(
        [Request((5, 6), key=2, max_tokens=4, top_k=3)]
    )
    assert found.top_ids == expected.top_ids
    stub.version = "other"
    with pytest.raises(
        GroupwiseError, match=r"no SGLang server is left: .* has the weights 'other"
    ):
        sampler.sample(asked)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("half", "it holds other weights, or computes in another precision$"),
        ("stale", "its cache of prompts holds older weights"),
        ("raw", "before the temperature .* start it without SGLANG_RETURN_ORIGINAL_LOGPROB"),
        ("refused", "update_weights_from_disk replied 400"),
        ("stays_paused", "stays paused after /continue_generation"),
    ],
)
def test_no_rollout_before_the_probe_passes(
    fault: str, message: str, policy: Policy, opened: ExitStack
) -> None:
    stub = stub_of(opened, policy)
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults = {fault}
    with pytest.raises(GroupwiseError, match=f"no SGLang server is left: .*{message}"):
        sampler.load(moved(policy), 1)
    assert fault == "stays_paused" or not stub.paused


@pytest.mark.parametrize(
    ("fault", "message"),
    [("other_tokenizer", "another tokenizer than llama"), ("other_model", "its model_type is")],
)
def test_a_server_of_something_else_is_refused(
    fault: str, message: str, policy: Policy, opened: ExitStack
) -> None:
    with pytest.raises(RecipeError, match=f"the SGLang server .*{message}"):
        sampler_on(opened, policy, stub_of(opened, policy, fault))


def test_a_lost_servers_requests_go_to_another(policy: Policy, opened: ExitStack) -> None:
    one, other = stub_of(opened, policy), stub_of(opened, policy)
    sampler = sampler_on(opened, policy, one, other)
    asked = requests(8, max_tokens=4)
    expected = sampler.sample(asked)
    one.faults.add("drops")
    assert sampler.sample(asked) == expected  # the same seeds
    ((_, note),) = sampler.take_notes()
    assert note.startswith(f"lost a SGLang server: {one.url}")


def test_servers_that_end_or_read_otherwise_are_not_used(policy: Policy, opened: ExitStack) -> None:
    stub = stub_of(opened, policy)
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults = {"own_stop"}
    with pytest.raises(GroupwiseError, match="ended a request early: its own stop id"):
        sampler.sample(requests(1, max_tokens=5))
    sampler.load(policy, 0)
    stub.faults = {"cut"}
    with pytest.raises(GroupwiseError, match=r"read other ids than it was sent: \d+ ids for"):
        sampler.sample(requests(1, max_tokens=5))


def test_at_the_deadline_the_tokens_so_far_are_returned(policy: Policy, opened: ExitStack) -> None:
    stub = stub_of(opened, policy)
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults.add("stalls")
    (request,) = requests(1, max_tokens=6, deadline=0.5)
    (found,) = sampler.sample([request])
    assert (found.finish_reason, found.num_tokens) == ("deadline", 3)
    logprobs = score(policy, request.prompt_ids, found.token_ids)
    assert list(found.sampler_logprobs) == pytest.approx(logprobs.tolist(), abs=2e-5)


def test_the_longest_row_is_two_tokens_shorter_than_it_says(
    policy: Policy, opened: ExitStack
) -> None:
    stub = stub_of(opened, policy)
    stub.max_length = 32
    sampler = sampler_on(opened, policy, stub)
    check(policy, whole := [Request((5, 6), key=1, max_tokens=28)], sampler.sample(whole))
    with pytest.raises(RecipeError, match="more than the 30 tokens"):
        sampler.sample([Request((5, 6), key=1, max_tokens=29)])


def test_a_server_that_ignores_seeds_is_named(policy: Policy, opened: ExitStack) -> None:
    stubs = stub_of(opened, policy), stub_of(opened, policy, "seedless")
    sampler = sampler_on(opened, policy, *stubs)
    assert sampler.notes[0] == (
        f"{stubs[1].url} was started without --enable-deterministic-inference: SGLang ignores "
        "seeds, and no run or completion can be repeated"
    )
    assert sampler.facts()["sampler"]["name"] == "sglang"


def test_recipes() -> None:
    def of(**sampling: Any) -> dict[str, Any]:
        return recipe(**{"sampler": "sglang", **sampling})

    made = load_recipe(of(sglang={"servers": [URL + "/"]}))
    assert made.sampling.servers == SglangSettings(servers=(URL,))
    for sampling, message in (
        ({}, r"sampler = 'sglang' without a table \[sampling.sglang\]"),
        ({"sglang": {}}, "sampling.sglang.servers"),
        ({"sglang": {"servers": []}}, "sampling.sglang.servers"),
        ({"vllm": {"servers": [URL]}}, "sampler = 'sglang' with a table"),
        ({"sglang": {"servers": [URL], "python": "x"}}, "python"),
        ({"sglang": {"servers": ["x"]}}, "sampling.sglang.servers: 'x' is not an address"),
        ({"sglang": {"servers": [URL]}, "top_p": 0.9}, "does not say which tokens it kept"),
    ):
        with pytest.raises(RecipeError, match=message):
            load_recipe(of(**sampling))
