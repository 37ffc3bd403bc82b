"""One rollout's side of the conversation, and its limits: the contract of several turns.

The policy writes a completion; `Episode.next` answers it or ends the rollout. Environments with
turns return their own `Episode` from `start`.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import RecipeError
from groupwise.texts import counted
from groupwise.types import Message, Prompt, Score
from groupwise.verifiers.core.scores import rated


class Episode:
    """One rollout of a prompt; single use.

    The policy reads the prompt's messages first; an episode cannot change them. Then for every
    completion `next` returns the messages that answer it, or None to end the rollout. `next`,
    `result` and `close` may be `async` or slow: they run beside the sampler, each with a deadline
    (`Limits.wait_seconds`). An exception in one of them marks this rollout as failed.

    `prompt` is the episode's own copy. `rewards` takes one number per completion, for environments
    that reward turns. `counts` takes finite numbers by name; the metrics sum them (`plays/<name>`).
    """

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.rewards: list[float] = []
        self.counts: Counter[str] = Counter()

    def next(
        self, completion: str
    ) -> Sequence[Message] | Awaitable[Sequence[Message] | None] | None:
        """The messages that answer a completion; None ends the rollout, as here after one turn."""
        return None

    def result(self) -> Score | None:
        """The episode's own score, which the verifier `play` returns; None if it has none.

        By default the sum of `rewards`. Called once, even if a limit ended the rollout.
        """
        if not self.rewards:
            return None
        total = math.fsum(self.rewards)
        return rated(total, f"rewards of {counted(len(self.rewards), 'turn')}")

    def close(self) -> None:
        """Release what the episode opened; called once, however the rollout ended."""


def checked_episode(episode: Any, prompt: Prompt) -> Episode:
    """The value that `start` returned for a prompt. Raises RecipeError if it is not an Episode."""
    if not isinstance(episode, Episode):
        if inspect.iscoroutine(episode):
            episode.close()
        raise RecipeError(
            f"start returned {episode!r:.80} for prompt {prompt.id!r}; return an object of a class "
            "derived from groupwise.environments.Episode"
        )
    if not all(hasattr(episode, name) for name in ("prompt", "rewards", "counts")):
        raise RecipeError(
            f"the __init__ of {type(episode).__name__}, which start returned for prompt "
            f"{prompt.id!r}, does not call super().__init__(prompt)"
        )
    return episode


@dataclass(frozen=True, slots=True)
class Limits:
    """When a rollout of several turns ends, whatever its environment wants.

    `turns`: completions. `turn_tokens`: sampled tokens per turn (None: what is left of the
    rollout's `sampling.max_tokens`). `seconds`: since the rollout's start. `wait_seconds`: for one
    answer of the environment, and for its start, its result and its close. `length`: positions of
    the model, prompt and context included (None: no bound). `characters`: of one message of the
    environment.
    """

    turns: int = 16
    turn_tokens: int | None = None
    seconds: float | None = 600.0
    wait_seconds: float = 60.0
    length: int | None = None
    characters: int | None = 20_000
