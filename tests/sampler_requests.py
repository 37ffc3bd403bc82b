"""What the tests of samplers share: prompts, requests, and policies that never stop."""

from __future__ import annotations

from typing import Any

from groupwise.policies import Policy
from groupwise.randomness import stream_key
from groupwise.types import Request

PROMPTS = [(5, 6), (7, 8, 2, 9, 11, 13, 6), (4,), (20, 2, 2), (9, 8, 7, 6, 5, 4, 3, 12, 14)]


def requests(count: int = 20, max_tokens: int = 12, seed: int = 0, **kwargs: Any) -> list[Request]:
    return [
        Request(
            PROMPTS[place % len(PROMPTS)],
            key=stream_key(seed, "probe", place),
            max_tokens=max_tokens,
            **kwargs,
        )
        for place in range(count)
    ]


def unending(policy: Policy) -> Policy:
    policy.template.stop_ids = frozenset()
    return policy
