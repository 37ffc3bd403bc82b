"""Counts the tokens of a pass over a step's rollouts, which tests compare with the learner's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassWork:
    """Tokens through the decoder, and positions through the output layer."""

    tokens: int
    projected: int

    def __add__(self, other: PassWork) -> PassWork:
        return PassWork(self.tokens + other.tokens, self.projected + other.projected)


def pass_work(groups: Iterable[tuple[int, Sequence[int]]]) -> PassWork:
    """The work of one pass over whole groups, given (prompt length, completion lengths) of each.

    A prompt runs once a group and a completion without its last token; every completion token is
    projected. A group that is cut between micro-batches runs its prompt once in each.

    >>> pass_work([(75, [128] * 8)] * 4)
    PassWork(tokens=4364, projected=4096)
    """
    tokens = projected = 0
    for prompt, completions in groups:
        tokens += prompt + sum(max(length - 1, 0) for length in completions)
        projected += sum(completions)
    return PassWork(tokens, projected)
