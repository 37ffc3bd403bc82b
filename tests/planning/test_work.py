"""The plan's formula of a rollout's work equals what the sampler counts: no clock is needed."""

from __future__ import annotations

import doctest

import pytest

from groupwise.planning import rollout_work, work
from groupwise.samplers import LocalSampler, make_sampler
from groupwise.types import Request
from model_families import family_policy
from sampler_requests import unending


def test_the_examples_hold() -> None:
    assert doctest.testmod(work).failed == 0


@pytest.mark.parametrize(
    "groups",
    [
        [(5, [1])],
        [(5, [7, 7, 7, 7]), (9, [2, 30, 4])],
        [(3, [90] * 2), (12, [33, 65, 1, 2]), (1, [34])],
    ],
)
def test_the_local_samplers_work_is_the_plans(groups: list[tuple[int, list[int]]]) -> None:
    policy = unending(family_policy("llama"))
    sampler = make_sampler("local", policy)
    assert isinstance(sampler, LocalSampler)
    sampler.sample([
        Request(tuple(range(4, 4 + prompt)), key=100 * prompt + place, max_tokens=length)
        for prompt, lengths in groups
        for place, length in enumerate(lengths)
    ])  # fmt: skip
    planned, counts = rollout_work(groups), sampler.counts
    assert counts.prefilled == planned.prefilled
    assert counts.decoded == planned.decoded
    assert counts.projected == planned.projected
    # keys and values, 2 layers, 2 key heads of width 8, float32
    assert counts.cache_bytes == planned.cached * 2 * 2 * 2 * 8 * 4


def test_a_group_runs_its_prompt_once_whatever_its_size() -> None:
    assert rollout_work([(75, [1] * 64)]).prefilled == 75
    assert rollout_work([(75, [128] * 8)] * 4).projected == 4 + 32 * 127
