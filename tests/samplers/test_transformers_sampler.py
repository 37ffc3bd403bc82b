"""What is the `transformers` sampler's own: how it batches, its modes, its precision."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.policies import Policy
from groupwise.policies.heads import head_of
from groupwise.policies.load import checkpoint_activations
from groupwise.samplers import make_sampler
from groupwise.types import Completion, Request
from model_families import family_policy
from sampler_requests import PROMPTS, requests, unending


def sampled(policy: Policy, asked: Sequence[Request], **kwargs: Any) -> list[Completion]:
    return make_sampler("transformers", policy, **kwargs).sample(asked)


def test_requests_past_their_deadline_come_back_unfinished() -> None:
    policy = unending(family_policy("llama"))
    inner = policy.model.model.forward
    calls = []

    def slow(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        time.sleep(0.03)
        return inner(*args, **kwargs)

    policy.model.model.forward = slow
    asked = [
        Request(PROMPTS[0], key=0, max_tokens=8),
        Request(PROMPTS[0], key=1, max_tokens=100, deadline=0.3),
        Request(PROMPTS[1], key=2, max_tokens=100, deadline=1e-9),
    ]
    first, second, third = sampled(policy, asked)
    assert (first.finish_reason, first.num_tokens) == ("length", 8)
    assert second.finish_reason == "deadline"
    assert second.num_tokens < 30
    assert (third.finish_reason, third.num_tokens, third.text) == ("deadline", 0, "")


@contextmanager
def watched(policy: Policy) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of ids that the decoder is run on."""
    shapes: list[tuple[int, ...]] = []
    head_of(policy.model)
    handle = policy.model.model.register_forward_pre_hook(
        lambda _, __, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    yield shapes
    handle.remove()


def test_a_prompt_is_prefilled_once_and_then_one_token_a_step() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(p, key=i, max_tokens=5) for i, p in enumerate(PROMPTS[:2] * 4)]
    with watched(policy) as shapes:
        sampled(policy, asked)
    assert shapes == [(2, 7)] + [(8, 1)] * 4


def test_finished_rows_leave_the_batch() -> None:
    policy = unending(family_policy("llama"))
    asked = [Request(PROMPTS[0], key=i, max_tokens=2 if i < 6 else 5) for i in range(8)]
    with watched(policy) as shapes:
        sampled(policy, asked)
    assert shapes == [(1, 2), (8, 1), (2, 1), (2, 1), (2, 1)]


def test_dropout_is_off_and_modes_are_put_back() -> None:
    """Faults 38 and 58: training mode and checkpointing neither change nor slow sampling."""
    policy = family_policy("gpt2")
    expected = [c.token_ids for c in sampled(policy, requests(6))]
    checkpoint_activations(policy.model)
    policy.model.train()
    with_cache: list[bool] = []
    policy.model.transformer.register_forward_pre_hook(
        lambda _, __, kwargs: with_cache.append(kwargs["input_ids"].shape[1] == 1),
        with_kwargs=True,
    )
    assert [c.token_ids for c in sampled(policy, requests(6))] == expected
    assert all(with_cache[-3:])
    assert all(module.training for module in policy.model.modules())
    assert all(block.gradient_checkpointing for block in policy.model.transformer.h)


def test_names_of_samplers() -> None:
    policy = family_policy("llama")
    with pytest.raises(RecipeError, match=r"did you mean 'transformers'\?"):
        make_sampler("transformer", policy)
    with pytest.raises(RecipeError, match="ScriptedSampler"):
        make_sampler("scripted", policy)
    with pytest.raises(RecipeError, match="batch_rows = 0"):
        make_sampler("auto", policy, batch_rows=0)
