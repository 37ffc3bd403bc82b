"""Every sampler that decodes a model keeps every promise of the contract, on every family."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from groupwise.errors import NonFiniteError, RecipeError
from groupwise.policies import Policy, score, sequence_logprobs
from groupwise.randomness import stream_key
from groupwise.samplers import Sampler, make_sampler
from groupwise.templates import Template
from groupwise.types import Completion, Request
from model_families import cases, family_policy
from sampler_requests import PROMPTS, requests, unending
from toy_tokenizers import merging

Sampled = Callable[..., list[Completion]]


@pytest.fixture(params=["transformers", "local"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sampled(name: str) -> Sampled:
    def sample(policy: Policy, asked: Sequence[Request], **kwargs: Any) -> list[Completion]:
        return make_sampler(name, policy, **kwargs).sample(asked)

    return sample


@pytest.mark.parametrize("family", cases())
def test_greedy_ids_equal_generate(family: str, sampled: Sampled) -> None:
    policy = family_policy(family)
    asked = requests(5, max_tokens=14, greedy=True)
    for request, completion in zip(asked, sampled(policy, asked)):
        ids = torch.tensor([request.prompt_ids])
        expected = policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=14, do_sample=False,
            eos_token_id=2, pad_token_id=2,
        )  # fmt: skip
        assert completion.token_ids == tuple(expected[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize("family", cases())
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_sampler_logprobs_equal_the_learners(
    family: str, temperature: float, sampled: Sampled
) -> None:
    policy = unending(family_policy(family))
    asked = requests(10, max_tokens=13, temperature=temperature)
    completions = sampled(policy, asked)
    with torch.no_grad():
        logprobs = sequence_logprobs(
            policy,
            [request.prompt_ids for request in asked],
            [completion.token_ids for completion in completions],
            temperature=temperature,
        ).logprobs
    ours = torch.tensor([completion.sampler_logprobs for completion in completions])
    assert (ours - logprobs).abs().max().item() <= 2e-5


@pytest.mark.parametrize("batch_rows", [1, 3, 7])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_a_completion_does_not_depend_on_the_batch(
    family: str, batch_rows: int, sampled: Sampled
) -> None:
    policy = family_policy(family)
    asked = requests(20)
    expected = [completion.token_ids for completion in sampled(policy, asked)]
    assert len(set(map(len, expected))) >= 3
    assert [c.token_ids for c in sampled(policy, asked, batch_rows=batch_rows)] == expected
    order = list(range(20))
    random.Random(batch_rows).shuffle(order)
    shuffled = sampled(policy, [asked[place] for place in order])
    assert [c.token_ids for c in shuffled] == [expected[place] for place in order]


def test_the_same_key_draws_the_same_tokens_and_other_keys_others(sampled: Sampled) -> None:
    """Fault 44: a group is not eight copies, and a seed decides all of it."""
    policy = unending(family_policy("llama"))
    nn.init.zeros_(policy.model.model.norm.weight)  # flat logits

    def group(seed: int, visit: int = 0) -> list[tuple[int, ...]]:
        keys = [stream_key(seed, "training", "p", visit, index) for index in range(8)]
        asked = [Request((5, 6), key=key, max_tokens=6) for key in keys]
        return [completion.token_ids for completion in sampled(policy, asked)]

    first = group(0)
    assert len(set(first)) == 8
    assert group(0) == first
    assert not set(group(1)) & set(first)
    assert not set(group(0, visit=1)) & set(first)


def test_the_stop_id_is_kept_and_ends_the_completion(sampled: Sampled) -> None:
    """Fault 2: end-of-text equals pad, stands inside prompts, and is trained on."""
    policy = family_policy("llama")
    assert policy.template.pad_id in policy.template.stop_ids
    completions = sampled(policy, requests(40, max_tokens=20))
    reasons = [completion.finish_reason for completion in completions]
    assert set(reasons) == {"stop", "length"}
    for completion in completions:
        assert (completion.token_ids[-1] == 2) == (completion.finish_reason == "stop")
        assert 2 not in completion.token_ids[:-1]
        assert completion.num_tokens == 20 or completion.finish_reason == "stop"
        assert "<end>" not in completion.text


def test_every_stop_id_ends(sampled: Sampled) -> None:
    policy = family_policy("llama")
    policy.template.stop_ids = frozenset({2, 10, 11, 12, 13, 14})
    for completion in sampled(policy, requests(30, max_tokens=30)):
        assert not policy.template.stop_ids & set(completion.token_ids[:-1])


def test_sampled_ids_are_not_encoded_again(sampled: Sampled) -> None:
    """Fault 3: tokens a, b, ab; a completion of [a, b] stays two tokens."""
    policy = family_policy("llama")
    policy.model.resize_token_embeddings(4)
    nn.init.zeros_(policy.model.model.norm.weight)  # every token equally likely
    policy.template = Template(merging(), None, special_tokens={"eos_token": "<e>"})
    asked = [Request((0,), key=key, max_tokens=3) for key in range(60)]
    completions = [c for c in sampled(policy, asked) if c.text == "ab"]
    assert {c.token_ids for c in completions} == {(0, 1, 3), (2, 3)}
    assert {len(c.sampler_logprobs) for c in completions} == {2, 3}
    assert policy.template.encode("ab") == (2,)


def test_limits_are_per_request(sampled: Sampled) -> None:
    policy = unending(family_policy("llama"))
    asked = [
        Request(PROMPTS[0], key=place, max_tokens=limit, temperature=temperature)
        for place, (limit, temperature) in enumerate([(1, 1.0), (9, 0.5), (4, 2.0)])
    ]
    completions = sampled(policy, asked)
    assert [completion.num_tokens for completion in completions] == [1, 9, 4]
    for request, completion in zip(asked, completions):
        alone = score(policy, request.prompt_ids, completion.token_ids, request.temperature)
        torch.testing.assert_close(
            torch.tensor(completion.sampler_logprobs), alone, atol=2e-5, rtol=0
        )


def test_stop_strings_over_token_boundaries(sampled: Sampled) -> None:
    """Fault 22: ids, log-probabilities and text end at the stop; it counts as finished."""
    policy = unending(family_policy("llama"))
    asked = requests(6, max_tokens=20)
    free = sampled(policy, asked)
    stop = free[3].text[4:6]  # two neighbouring one-character tokens
    stopped = sampled(policy, [*asked[:3], *requests(6, 20, stop_strings=(stop, "~~"))[3:]])
    assert [c.token_ids for c in stopped[:3]] == [c.token_ids for c in free[:3]]
    end = free[3].text.index(stop) + 2
    assert stopped[3].token_ids == free[3].token_ids[:end]
    assert stopped[3].sampler_logprobs == pytest.approx(free[3].sampler_logprobs[:end], abs=1e-5)
    assert stopped[3].text == free[3].text[:end]
    assert stopped[3].finish_reason == "stop"


def test_logits_that_are_not_finite_name_the_request(name: str) -> None:
    policy = family_policy("qwen2")
    sampler = make_sampler(name, policy)
    sampler.sample(requests(2))
    with torch.no_grad():
        policy.model.model.embed_tokens.weight[20] = float("nan")
    with pytest.raises(NonFiniteError, match=r"request 1 \(key 77\): the logits of completion"):
        sampler.sample([
            Request((3, 4), key=76, max_tokens=1, greedy=True),
            Request((20, 4), key=77, max_tokens=2),
        ])  # fmt: skip


def test_requests_that_do_not_fit_are_refused(sampled: Sampled) -> None:
    with pytest.raises(RecipeError, match=r"request 1: 2 prompt tokens and max_tokens = 127 .*128"):
        sampled(family_policy("llama"), [*requests(1), Request((5, 6), 1, max_tokens=127)])


def test_entropies_and_top_k_where_they_are_asked_for(sampled: Sampled) -> None:
    policy = unending(family_policy("gemma2"))
    asked = [
        Request(PROMPTS[1], key=1, max_tokens=5, entropies=True),
        Request(PROMPTS[0], key=2, max_tokens=6, top_k=3, temperature=0.8),
        Request(PROMPTS[0], key=3, max_tokens=4, top_k=1),
    ]
    one, two, three = sampled(policy, asked)
    assert (one.top_ids, two.entropies) == (None, None)
    with torch.no_grad():
        exact = sequence_logprobs(policy, [PROMPTS[1]], [one.token_ids], entropies=True).entropies
        top = sequence_logprobs(
            policy, [PROMPTS[0]], [two.token_ids], temperature=0.8,
            top_ids=torch.tensor([two.top_ids]),
        ).top_logprobs  # fmt: skip
    assert exact is not None
    assert top is not None
    torch.testing.assert_close(torch.tensor([one.entropies]), exact, atol=2e-5, rtol=0)
    torch.testing.assert_close(torch.tensor([two.top_logprobs]), top, atol=2e-5, rtol=0)
    assert three.top_ids is not None
    assert [len(ids) for ids in three.top_ids] == [1] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_weights_are_used_after_load_and_nothing_old_survives(
    dtype: torch.dtype, name: str
) -> None:
    """Faults 40 and 42: the same sampler after an update equals a fresh one."""
    policy = family_policy("llama", dtype=dtype)
    sampler = make_sampler(name, policy)
    before = sampler.sample(requests())
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(9)))
    policy.version = 3
    sampler.load(policy, 3)
    after = sampler.sample(requests())
    fresh = make_sampler(name, policy).sample(requests())
    assert after == fresh
    assert [c.token_ids for c in after] != [c.token_ids for c in before]
    assert {c.version for c in before} == {0}
    assert {c.version for c in after} == {3}
    policy.model, policy.version = copy.deepcopy(policy.model), 4
    with torch.no_grad():
        policy.model.model.norm.weight.mul_(0.5)
    sampler.load(policy, 4)
    assert sampler.sample(requests()) == make_sampler(name, policy).sample(requests())
    other = copy.deepcopy(policy)
    expected = [c.token_ids for c in sampler.sample(requests())]
    sampler.load(other, 4)
    assert [c.token_ids for c in sampler.sample(requests())] == expected


def test_no_requests_give_no_completions_and_the_contract_is_kept(name: str) -> None:
    sampler = make_sampler(name, family_policy("llama"))
    assert isinstance(sampler, Sampler)
    assert sampler.sample([]) == []
    sampler.close()


def test_no_gradient_and_no_graph_is_kept(sampled: Sampled) -> None:
    policy = family_policy("llama")
    sampled(policy, requests(3))
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    sequence_logprobs(policy, [(5,)], [(6, 7)]).logprobs.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())


def test_bfloat16_does_what_the_learners_autocast_does(sampled: Sampled) -> None:
    policy = unending(family_policy("llama", dtype=torch.bfloat16))
    asked = requests(10, max_tokens=13)
    completions = sampled(policy, asked)
    with torch.no_grad():
        logprobs = sequence_logprobs(
            policy, [r.prompt_ids for r in asked], [c.token_ids for c in completions]
        ).logprobs
    gap = (torch.tensor([c.sampler_logprobs for c in completions]) - logprobs).abs()
    exact = family_policy("llama")
    with torch.no_grad():
        other = sequence_logprobs(
            exact, [r.prompt_ids for r in asked], [c.token_ids for c in completions]
        ).logprobs
    # The two passes round the same products: closer to each other than to float32.
    assert gap.mean() < 0.9 * (logprobs - other).abs().mean()
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}
