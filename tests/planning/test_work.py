"""What the local sampler runs for a rollout: a prompt once a group, a token once; no clock."""

from __future__ import annotations

import doctest

import pytest

from groupwise.planning import run_plan
from groupwise.samplers import LocalSampler, make_sampler
from groupwise.types import Request
from model_families import family_policy
from sampler_requests import unending

KV_BYTES = 2 * 2 * 2 * 8 * 4
"""Keys and values of a token: 2 layers, 2 key heads of width 8, float32."""


def test_the_examples_hold() -> None:
    assert doctest.testmod(run_plan).failed == 0


@pytest.mark.parametrize(
    ("groups", "prefilled", "decoded", "projected", "cached"),
    [
        ([(5, [1])], 5, 0, 1, 37),
        ([(5, [7, 7, 7, 7]), (9, [2, 30, 4])], 14, 57, 59, 242),
        ([(3, [90] * 2), (12, [33, 65, 1, 2]), (1, [34])], 16, 308, 311, 708),
    ],
)
def test_the_local_samplers_work(
    groups: list[tuple[int, list[int]]], prefilled: int, decoded: int, projected: int, cached: int
) -> None:
    """A completion's last token is projected and not run; own parts grow by 32 positions."""
    policy = unending(family_policy("llama"))
    sampler = make_sampler("local", policy)
    assert isinstance(sampler, LocalSampler)
    sampler.sample([
        Request(tuple(range(4, 4 + prompt)), key=100 * prompt + place, max_tokens=length)
        for prompt, lengths in groups
        for place, length in enumerate(lengths)
    ])  # fmt: skip
    counts = sampler.counts
    assert (counts.prefilled, counts.decoded, counts.projected) == (prefilled, decoded, projected)
    assert counts.cache_bytes == cached * KV_BYTES
