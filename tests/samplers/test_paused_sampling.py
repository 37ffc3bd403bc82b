"""A completion that is paused and continued equals the one that never was, in every sampler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupwise.policies import Policy
from groupwise.samplers import make_sampler
from groupwise.samplers.contract import Pause
from groupwise.types import Completion, Request
from model_families import family_policy
from sampler_requests import requests


def in_rounds(
    name: str, policy: Policy, asked: list[Request], steps: int
) -> tuple[list[Completion], int]:
    """Sampled in rounds of so many decoding steps, each under the next version."""
    sampler = make_sampler(name, policy, batch_rows=4)
    pending, begun = dict(enumerate(asked)), dict[int, Completion]()
    made: dict[int, Completion] = {}
    version = 0
    while pending:
        sampler.load(policy, version)
        places, limit = list(pending), iter(range(steps))

        def then(place: int, completion: Completion, places: list[int] = places) -> None:
            if completion.finish_reason == "paused":
                begun[places[place]] = completion
            else:
                made[places[place]] = completion
                del pending[places[place]]

        pause: Pause = lambda limit=limit: next(limit, None) is None  # noqa: E731
        rows = [replace(pending[place], begun=begun.get(place)) for place in places]
        sampler.play(rows, then, pause)
        version += 1
        assert version < 100
    return [made[place] for place in range(len(asked))], version


@pytest.mark.parametrize("name", ["transformers", "local"])
def test_pieces_are_the_whole_and_every_token_has_its_version(name: str) -> None:
    policy = family_policy("llama")
    fields = {"entropies": True, "top_k": 2, "keep_top_k": 9, "stop_strings": ("zz",)}
    asked = requests(9, max_tokens=23, temperature=1.4, **fields)
    asked += [replace(asked[0], key=99, pause_after=2)]
    whole = make_sampler(name, policy).sample([replace(each, pause_after=0) for each in asked])
    pieces, rounds = in_rounds(name, policy, asked, steps=5)
    assert rounds > 4
    for one, other in zip(whole, pieces, strict=True):
        same = ("token_ids", "text", "finish_reason", "supports", "top_ids")
        assert all(getattr(one, field) == getattr(other, field) for field in same)
        assert other.sampler_logprobs == pytest.approx(one.sampler_logprobs, abs=2e-5)
        assert other.entropies == pytest.approx(one.entropies, abs=2e-5)
        assert other.version == other.token_versions[0] == min(other.token_versions)
        assert list(other.token_versions) == sorted(other.token_versions)
        assert (other.versions is None) == (len(set(other.token_versions)) <= 1)
    last = pieces[-1].token_versions
    assert all(last.count(version) <= 2 for version in last)
    assert sum(each.num_tokens for each in pieces) > 60


@pytest.mark.parametrize("name", ["transformers", "local"])
def test_what_was_never_begun_comes_back_empty(name: str) -> None:
    sampler = make_sampler(name, family_policy("llama"), batch_rows=2)
    given: list[Completion] = []
    sampler.play(requests(5), lambda _, completion: given.append(completion), lambda: True)
    assert [(each.token_ids, each.text, each.finish_reason) for each in given] == [
        ((), "", "paused")
    ] * 5
