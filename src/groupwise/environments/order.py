"""In which order prompts are visited: a function of (seed, epoch, ids), never a state.

So a resumed run finds its place from an index alone, and adding or losing a prompt leaves the
others' order as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from groupwise.errors import RecipeError
from groupwise.instants import passed
from groupwise.randomness import stream_key


class Cursor(Protocol):
    """The order in which a run visits training prompts, a function of the index alone."""

    def __len__(self) -> int:
        """Prompts an epoch."""

    def at(self, index: int) -> tuple[int, str]:
        """Epoch and prompt id of the `index`-th visit of the run, counted from 0."""


def prompt_order(seed: int, epoch: int, ids: Sequence[str]) -> list[str]:
    """The ids as epoch `epoch` visits them: sorted by a keyed hash of each.

    >>> prompt_order(0, 0, ["a", "b", "c"]) == prompt_order(0, 0, ["c", "a", "b"])
    True
    """
    return sorted(ids, key=lambda each: (stream_key(seed, "order", epoch, each), each))


class PromptCursor:
    """Where a run is in its prompts, as a pure function of how many it has taken.

    >>> cursor = PromptCursor(["a", "b", "c"], seed=0)
    >>> [cursor.at(index)[0] for index in range(4)]
    [0, 0, 0, 1]
    >>> sorted(cursor.at(index)[1] for index in range(3, 6))
    ['a', 'b', 'c']
    """

    def __init__(self, ids: Sequence[str], seed: int) -> None:
        """`ids` must be unique and not empty."""
        if not ids:
            raise RecipeError("there are no prompts to visit; the split is empty")
        if len(set(ids)) != len(ids):
            raise ValueError("prompt ids must be unique within a split")
        self.ids = tuple(ids)
        self.seed = seed
        self._epoch = -1
        self._order: list[str] = []

    def __len__(self) -> int:
        """Prompts an epoch."""
        return len(self.ids)

    def at(self, index: int) -> tuple[int, str]:
        """Epoch and prompt id of the `index`-th visit of the run, counted from 0."""
        epoch, position = divmod(index, len(self.ids))
        if epoch != self._epoch:
            self._order = prompt_order(self.seed, epoch, self.ids)
            self._epoch = epoch
        if epoch and not position:
            passed("epoch")
        return epoch, self._order[position]
