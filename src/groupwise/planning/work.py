"""What a pass over a step's rollouts runs through: the formula that the counted work must equal.

Left out: how long it takes, which is measured.
"""

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


@dataclass(frozen=True, slots=True)
class RolloutWork:
    """What the local sampler runs for whole groups of one turn.

    `prefilled` prompt tokens and `decoded` tokens go through the decoder, `projected` positions
    through the output layer; `cached` tokens' keys and values are held at once.
    """

    prefilled: int
    decoded: int
    projected: int
    cached: int


def rollout_work(groups: Sequence[tuple[int, Sequence[int]]], *, step: int = 32) -> RolloutWork:
    """The work of sampling groups that are all in flight at once, as in `pass_work`.

    A prompt runs once, and its last position is projected once; a completion's last token is not
    run. Own parts have room for the longest of them, in multiples of `step` from the first.

    >>> rollout_work([(75, [128] * 8)] * 4)
    RolloutWork(prefilled=300, decoded=4064, projected=4068, cached=4396)
    """
    decoded = sum(length - 1 for _, lengths in groups for length in lengths)
    rows = sum(len(lengths) for _, lengths in groups)
    longest = max(length for _, lengths in groups for length in lengths)
    return RolloutWork(
        prefilled=sum(prompt for prompt, _ in groups),
        decoded=decoded,
        projected=len(groups) + decoded,
        cached=len(groups) * max(prompt for prompt, _ in groups) + rows * room(longest - 1, step),
    )


def room(tokens: int, step: int = 32) -> int:
    """Positions that a row's own part has room for when it has grown to `tokens` one by one: a
    buffer grows by a quarter, by `step` at least, in whole steps."""
    found = step
    while found < tokens:
        found = max(found + step, found * 5 // 4)
        found += -found % step
    return found
