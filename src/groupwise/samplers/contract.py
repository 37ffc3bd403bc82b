"""The interface that every sampler implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

import torch

from groupwise.errors import RecipeError
from groupwise.policies.policy import Policy
from groupwise.types import Completion, Request

# Called with a request's place and its finished completion. Returns None, the next request of that
# place (its prompt ids start with all ids so far), or a future of either.
Then = Callable[[int, Completion], "Request | Future[Request | None] | None"]
# Asked before every decoding step; True from one call on: what is unfinished is given back paused.
Pause = Callable[[], bool]

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""The mean over tokens of |sampler - policy|, in nats, by precision: rounding alone is ten times
smaller."""
QUANTISED_TOLERANCE = 1.0
"""The same for a sampler that quantises; 0.13 on SmolLM2-135M."""


@runtime_checkable
class Sampler(Protocol):
    """Requests in, completions out, in order.

    The next token is `draw.draw` of the request's key: a completion depends on its own request and
    the weights, and not on what else is in the batch (beyond float rounding of the logits).
    """

    def load(self, policy: Policy, version: int) -> None:
        """Sample from these weights from now on; nothing made from older ones survives."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order. Raises NonFiniteError naming the request."""

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Sample every request and its follow-ups; `then` gets each completion when it ends.

        `then` is called in this thread and must not block: slow work goes into a future. A request
        that follows starts with the ids of the request and completion before it. Once `pause` is
        True, `then` gets what there is of every unfinished completion (maybe no token) with finish
        reason "paused", and answers that are still awaited are left to the caller. A sampler that
        cannot be interrupted does not ask.
        """

    def close(self) -> None:
        """Give back memory. The sampler is not used afterwards."""


def play_in_waves(
    sample: Callable[[Sequence[Request]], Sequence[Completion]],
    requests: Sequence[Request],
    then: Then,
) -> None:
    """`Sampler.play` for an engine that only samples whole lists: one list a turn."""
    waiting = dict(enumerate(requests))
    while waiting:
        places = list(waiting)
        completions = sample([waiting[place] for place in places])
        answers = {place: then(place, each) for place, each in zip(places, completions)}
        waiting = {}
        for place, answer in answers.items():
            following = answer.result() if isinstance(answer, Future) else answer
            if following is not None:
                waiting[place] = following


def check_length(policy: Policy, place: int, request: Request) -> None:
    """Raises RecipeError where a request is longer than the model has positions for."""
    length = len(request.prompt_ids) + request.max_tokens
    if length > policy.max_length:
        raise RecipeError(
            f"request {place}: {len(request.prompt_ids)} prompt tokens and max_tokens = "
            f"{request.max_tokens} make {length}; {policy.name} has positions for "
            f"{policy.max_length}"
        )
