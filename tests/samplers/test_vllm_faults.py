"""Every way in which vLLM servers were seen to fail, played by a stub."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch

from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError
from groupwise.policies import Policy, score
from groupwise.samplers import Sampler
from groupwise.samplers.servers.probe import Probe
from groupwise.samplers.servers.sampler import ServerSampler
from groupwise.samplers.servers.settings import ServerSettings, VllmSettings
from groupwise.types import Completion, Request
from groupwise.waiting.deadlines import BackgroundCall
from sampler_requests import requests
from vllm_stub import Stub, moved, vllm_stub


def sampler_on(
    opened: ExitStack,
    policy: Policy,
    *stubs: Stub,
    table: type[ServerSettings] = VllmSettings,
    **settings: Any,
) -> ServerSampler:
    sampler = ServerSampler(policy, table(servers=tuple(s.url for s in stubs), **settings))
    opened.callback(sampler.close)
    return sampler


def slow(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def check(policy: Policy, asked: list[Request], completions: list[Completion]) -> None:
    """The completions are of the policy's weights of now."""
    for request, completion in zip(asked, completions, strict=True):
        assert completion.num_tokens == request.max_tokens
        logprobs = score(policy, request.prompt_ids, completion.token_ids, request.temperature)
        torch.testing.assert_close(
            torch.tensor(completion.sampler_logprobs), logprobs, atol=2e-5, rtol=0
        )


def test_each_version_is_refreshed_probed_and_sampled(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    assert isinstance(sampler, Sampler)
    assert "/v1/completions" not in stub.calls  # nothing is sampled before the weights are there
    asked = requests(4, max_tokens=5, temperature=0.7)
    check(policy, asked, sampler.sample(asked))
    policy.version = 1
    sampler.load(moved(policy), 1)
    stub.calls.clear()
    policy.version = 2
    sampler.load(moved(policy), 2)
    assert [call for call in stub.calls if call != "/is_paused"] == [
        "/pause?mode=abort", "/collective_rpc", "/reset_prefix_cache", "/reset_prefix_cache",
        "/update_weight_version",
        "/resume", "/v1/completions", "/v1/completions", "/weight_checker",
    ]  # fmt: skip
    completions = sampler.sample(asked)
    check(policy, asked, completions)
    assert {completion.version for completion in completions} == {2}
    assert len(list(sampler._handover.root.iterdir())) == 1  # the last good folder alone
    assert sampler.take_notes() == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        slow("half", "nats from the policy's on average, .* it holds other weights"),
        ("unchanged", "it holds other weights"),
        ("stale", "those of 119 fixed tokens agree: its cache of prompts holds older weights"),
        slow("raw", r"before the temperature \(0.7\): start it with --logprobs-mode processed"),
        slow("refused", "collective_rpc replied 500"),
        slow("hangs", "collective_rpc: no reply within 1 s"),
        ("stays_paused", "stays paused after /resume"),
        slow("dead", "completions replied 500: .*engine dead"),
    ],
)
def test_no_rollout_before_the_probe_passes(
    fault: str, message: str, policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub, refresh_seconds=1.0)
    sampler.load(policy, 0)
    good = sampler._handover.good
    moved(policy).version = 1
    stub.faults = {fault}
    with pytest.raises(GroupwiseError, match=f"no vLLM server is left: .*{message}"):
        sampler.load(policy, 1)
    with pytest.raises(GroupwiseError, match="no vLLM server is left"):
        sampler.sample(requests(1))
    assert fault == "stays_paused" or not stub.paused
    assert good is not None
    assert good.is_dir()
    stub.faults = set()
    sampler.load(policy, 1)
    asked = requests(2, max_tokens=3)
    check(policy, asked, sampler.sample(asked))
    assert [about for about, _ in sampler.take_notes()] == ["sampler_server"] * 2


def test_an_update_smaller_than_the_tolerance_is_missed_by_no_probe(
    policy: Policy, opened: ExitStack
) -> None:
    """A reload that changes nothing is seen, although its gap looks like rounding."""
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults = {"unchanged"}
    with pytest.raises(GroupwiseError, match="are those of the version before: it kept them"):
        sampler.load(moved(policy, size=1e-5), 1)


def test_checksums_that_stay_say_that_the_weights_did(
    policy: Policy, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU's are of nothing, and say nothing."""
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    monkeypatch.setattr(Probe, "problem", lambda *_: None)
    stub.faults = {"unchanged", "packed"}
    sampler.load(moved(policy), 1)
    stub.faults = {"unchanged"}
    with pytest.raises(GroupwiseError, match="its checksums are those of the version before"):
        sampler.load(moved(policy), 2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("other_tokenizer", "another tokenizer than llama"), ("other_model", "another model")],
)
def test_a_server_of_something_else_is_refused_before_it_gets_weights(
    fault: str, message: str, policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy, fault))
    with pytest.raises(RecipeError, match=message):
        sampler_on(opened, policy, stub)
    assert not {"/pause?mode=abort", "/v1/completions"} & set(stub.calls)


def test_weights_that_are_not_finite_or_of_another_shape_are_not_sent(
    policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.calls.clear()
    weight = policy.model.model.norm.weight
    with torch.no_grad():
        kept, weight[3] = weight[3].item(), float("nan")
    with pytest.raises(NonFiniteError, match=r"norm.weight of version 0 holds NaN or infinity"):
        sampler.load(policy, 0)
    with torch.no_grad():
        weight[3] = kept
    policy.model.resize_token_embeddings(50, mean_resizing=False)
    with pytest.raises(GroupwiseError, match=r"other tensors than .* for one; it was not sent"):
        sampler.load(policy, 0)
    assert stub.calls == []


@pytest.mark.parametrize("fault", ["drops", slow("dead"), slow("gone")])
def test_a_lost_servers_requests_go_to_another(
    fault: str, policy: Policy, opened: ExitStack
) -> None:
    one, other = (opened.enter_context(vllm_stub(policy)) for _ in range(2))
    sampler = sampler_on(opened, policy, one, other)
    asked = requests(12, max_tokens=4)
    expected = sampler.sample(asked)
    one.gone() if fault == "gone" else one.faults.add(fault)
    assert sampler.sample(asked) == expected  # the same seeds
    ((about, note),) = sampler.take_notes()
    assert about == "sampler_server"
    assert note.startswith(f"lost a vLLM server: {one.url}")
    before = len(one.bodies)
    sampler.sample(asked)
    assert len(one.bodies) == before
    if fault != "gone":  # it is back, and gets the weights before it samples
        one.faults.clear()
        moved(policy)
        sampler.load(policy, 1)
        check(policy, asked, sampler.sample(asked))
        assert len(one.bodies) > before + 2
        assert sampler.take_notes() == [("sampler_server", f"{one.url} samples again")]


@pytest.mark.parametrize("fault", ["paused", slow("silent")])
def test_a_server_that_is_silent_is_asked_and_left_out_where_it_is_paused(
    fault: str, policy: Policy, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.samplers.servers.sampler._WATCH", 0.1)
    one, other = (opened.enter_context(vllm_stub(policy)) for _ in range(2))
    sampler = sampler_on(opened, policy, one, other, silent_seconds=0.2)
    sampler.load(policy, 0)
    asked = requests(6, max_tokens=3, deadline=4.0)
    if fault == "paused":
        one.paused = True
        check(policy, asked, sampler.sample(asked))
        assert "it is paused" in str(sampler.take_notes())
    else:  # healthy and only slow: it is waited for until the deadline
        one.faults.add(fault)
        reasons = {completion.finish_reason for completion in sampler.sample(asked)}
        assert reasons == {"length", "deadline"}
        assert sampler.take_notes() == []


def test_at_the_deadline_the_tokens_so_far_are_returned(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults.add("stalls")
    (request,) = requests(1, max_tokens=6, deadline=0.5)
    started = time.monotonic()
    (found,) = sampler.sample([request])
    assert time.monotonic() - started < 10.0
    assert (found.finish_reason, found.num_tokens) == ("deadline", 3)
    logprobs = score(policy, request.prompt_ids, found.token_ids)
    assert list(found.sampler_logprobs) == pytest.approx(logprobs.tolist(), abs=2e-5)


def test_turns_follow_with_and_without_waiting(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    seen: dict[int, list[Completion]] = {0: [], 1: []}
    first = requests(2, max_tokens=3)

    def then(place: int, completion: Completion) -> Request | Future[Request | None] | None:
        seen[place].append(completion)
        if len(seen[place]) == 3:
            return None
        ids = (*first[place].prompt_ids, *completion.token_ids, 7)
        following = Request(ids, key=len(seen[place]), max_tokens=2)
        if place == 0:
            return following
        later: Future[Request | None] = Future()
        later.set_result(following)
        return later

    sampler.play(first, then)
    assert [len(each) for each in seen.values()] == [3, 3]


def test_a_paused_completion_is_continued_from_its_tokens(
    policy: Policy, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.faults.add("stalls")
    (request,) = requests(1, max_tokens=6)
    found: list[Completion] = []
    arrived: list[Any] = []
    take = sampler.servers[0]._take
    monkeypatch.setattr(sampler.servers[0], "_take", lambda *a: (take(*a), arrived.append(a)))

    def pause() -> bool:
        return len(arrived) >= 3

    def then(place: int, completion: Completion) -> None:
        found.append(completion)

    sampler.play([request], then, pause)
    (first,) = found
    assert (first.finish_reason, first.num_tokens) == ("paused", 3)
    stub.faults.clear()
    sampler.load(moved(policy), 1)
    (whole,) = sampler.sample([replace(request, begun=first)])
    assert whole.token_ids[:3] == first.token_ids
    assert whole.token_versions == (0, 0, 0, 1, 1, 1)
    (short,) = sampler.sample([replace(request, pause_after=2)])
    assert (short.finish_reason, short.num_tokens) == ("paused", 2)
    logprobs = score(policy, (*request.prompt_ids, *first.token_ids), whole.token_ids[3:])
    assert list(whole.sampler_logprobs[3:]) == pytest.approx(logprobs.tolist(), abs=2e-5)
    assert stub.bodies[-2]["seed"] != stub.bodies[-1]["seed"]


def test_what_vllm_does_not_give_is_refused(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    sampler = sampler_on(opened, policy, stub)
    for wrong in ({"entropies": True}, {"keep_top_k": 3}):
        with pytest.raises(RecipeError, match="request 0: vLLM does not give"):
            sampler.sample([Request((5,), key=1, max_tokens=2, **wrong)])
    stub.faults.add("nan")
    with pytest.raises(NonFiniteError, match=r"request 0 \(key 1\): .* log-probability None"):
        sampler.sample([Request((5,), key=1, max_tokens=2)])


def test_a_longer_request_than_the_server_takes_is_refused(
    policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    stub.max_length = 32
    with pytest.raises(RecipeError, match="more than the 32 tokens that the vLLM server takes"):
        sampler_on(opened, policy, stub).sample([Request((5, 6), key=1, max_tokens=31)])


def test_a_server_left_paused_is_resumed(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    stub.paused = True
    sampler_on(opened, policy, stub)
    assert not stub.paused


@pytest.mark.slow
def test_a_sampler_closed_during_a_refresh_leaves_no_server_paused(policy: Policy) -> None:
    with vllm_stub(policy) as stub:
        settings = VllmSettings(servers=(stub.url,), refresh_seconds=2.0)
        sampler = ServerSampler(policy, settings)
        stub.faults = {"hangs"}
        loading = BackgroundCall(lambda: sampler.load(policy, 0))
        while not stub.paused:
            time.sleep(0.01)
        sampler.close()
        assert not stub.paused
        with pytest.raises(GroupwiseError, match="closed during a refresh"):
            loading.result(5.0)


def test_a_server_sleeps_between_calls_and_is_left_awake(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    with ExitStack() as inner:
        sampler = sampler_on(inner, policy, stub, sleep=True)
        asked = requests(2, max_tokens=3)
        for version in (0, 1):
            for _ in range(2):  # the weights are still there
                check(policy, asked, sampler.sample(asked))
                assert stub.asleep
            sampler.load(moved(policy), version)
            assert not stub.asleep
        sampler.sample(asked)
        assert stub.asleep
    assert not stub.asleep


def test_what_is_not_a_vllm_server_in_development_mode_is_named(
    policy: Policy, opened: ExitStack
) -> None:
    stub = opened.enter_context(vllm_stub(policy, "no_dev_mode"))
    message = "is_paused replied 404.*; a vLLM server has this call where VLLM_SERVER_DEV_MODE=1"
    with pytest.raises(GroupwiseError, match=f"no vLLM server is left: .*{message}"):
        sampler_on(opened, policy, stub)


def test_a_reply_that_is_not_vllms_is_named(policy: Policy, opened: ExitStack) -> None:
    stub = opened.enter_context(vllm_stub(policy))
    for path, answer, said in (
        ("/version", "<html>\nhello</html>", "'<html> hello</html>'"),
        ("/version", {"data": []}, "\"{'data': []}\""),
        ("/is_paused", {}, "'{}'"),
        ("/v1/models", {"data": []}, "\"{'data': []}\""),
        ("/v1/models", {"data": ["policy"]}, "\"{'data': ['policy']}\""),
        ("/tokenize", {}, "'{}'"),
        ("/collective_rpc", None, "'None'"),
        ("/reset_prefix_cache", [], "'[]'"),
        ("/weight_checker", {"checksums": None}, "\"{'checksums': None}\""),
    ):
        stub.answers = {path: answer}
        message = f"{stub.url} does not answer as a vLLM server: {path} replied {said}"
        with pytest.raises(GroupwiseError, match=re.escape(f"no vLLM server is left: {message}")):
            sampler_on(opened, policy, stub).load(policy, 0)
        assert not stub.paused
    stub.answers = {}
    sampler = sampler_on(opened, policy, stub)
    sampler.load(policy, 0)
    stub.answers = {"/weight_info": "up"}
    with pytest.raises(GroupwiseError, match="/weight_info replied 'up'"):
        sampler.sample(requests(1, max_tokens=1))


def test_no_server(policy: Policy) -> None:
    with pytest.raises(GroupwiseError, match=r"no vLLM server is left: .*ConnectError"):
        ServerSampler(policy, VllmSettings(servers=("http://127.0.0.1:9",)))
    with pytest.raises(GroupwiseError, match=r"python = 'no-such' is not a program here"):
        ServerSampler(policy, VllmSettings(python="no-such"))
