"""The order of a stream: a keyed shuffle in bounded memory that a resumed run finds again.

Row `i` of an epoch is due at `i + floor(u_i * window)`, u_i keyed by (seed, epoch, i), and rows are
visited in the order in which they are due. So the order is a function of the seed, at most `window`
rows wait at once, and a resumed run needs two counts to find its place. Left out: what a row is
(stream.py).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np

from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key, uniforms
from groupwise.types import Prompt

BATCH = 64
"""Rows that are checked together."""
_DRAWN = 4096
"""Delays that are drawn together."""
_USED_UP = (
    "it gave no rows at all. Rows are read anew every epoch: a generator that is used up gives "
    "none again, so name the function that makes it"
)


class Source(Protocol):
    """What a stream's order needs of it: `StreamEnvironment`."""

    def prompts(self) -> list[Prompt]:
        """The first ones."""

    def rows(self, start: int) -> Iterator[Row]:
        """The rows of an epoch from the `start`-th on."""

    def usable(self, rows: Sequence[Row], numbers: Sequence[int]) -> list[Prompt | str]:
        """Their prompts, or why a row is dropped."""

    def remember(self, prompt: Prompt) -> None:
        """Keep it within reach."""

    def tell(self, why: str, count: int) -> None:
        """Say how many rows were dropped for that."""


@dataclass(slots=True)
class Place:
    """Where a stream is: rows read of an epoch, and rows of it that were handed out or dropped."""

    epoch: int = 0
    read: int = 0
    handed: int = 0


class StreamCursor:
    """A stream's prompts in the order of their keyed delays. It only goes forward."""

    def __init__(self, source: Source, seed: int, window: int) -> None:
        self._source = source
        self._seed = seed
        self._window = window
        self._dropped: Counter[str] = Counter()  # up to the last visit
        self._seen: Counter[str] = Counter()  # as far as was read ahead
        self._given = -1
        self._last: tuple[int, str] | None = None
        self._after = Place()
        self._begin(Place())

    def __len__(self) -> int:
        """Prompts known so far: the first rows."""
        return len(self._source.prompts())

    def at(self, index: int) -> tuple[int, str]:
        """Epoch and prompt id of the `index`-th visit, asked in order.

        Raises ValueError where the stream is past it, RecipeError for a row that cannot be used.
        """
        if index == self._given and self._last is not None:
            return self._last
        if index < self._given:
            raise ValueError(f"the stream is past visit {index}; it is at {self._given}")
        while self._given < index:
            while not self._ready:
                self._prepare()
            prompt, self._after, self._dropped = self._ready.popleft()
            self._source.remember(prompt)
            self._last = (self._after.epoch, prompt.id)
            self._given += 1
        assert self._last is not None
        return self._last

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, behind the last visit that was asked for."""
        place = self._after
        return {
            "given": self._given,
            "epoch": place.epoch,
            "read": place.read,
            "handed": place.handed,
            "dropped": dict(self._dropped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Find that place again, rows before it passed over."""
        self._given = int(state["given"])
        self._last = None
        self._dropped, self._seen = Counter(state["dropped"]), Counter(state["dropped"])
        self._begin(Place(int(state["epoch"]), int(state["read"]), int(state["handed"])))

    def _begin(self, place: Place) -> None:
        """Stand behind `place`: the rows that wait there are read again, none before them."""
        self._after = replace(place)
        self._place = replace(place)
        self._fruitless = place.handed == 0
        self._ready: deque[tuple[Prompt, Place, Counter[str]]] = deque()
        self._delays = _Delays(self._seed, place.epoch, self._window)
        waiting = self._waiting(place)
        first = min((number for _, number in waiting), default=place.read)
        wanted = {number: due for due, number in waiting}
        self._rows = enumerate(self._source.rows(first), start=first)
        self._heap: list[tuple[int, int, Row]] = []
        for number, row in islice(self._rows, place.read - first):
            if number in wanted:
                self._heap.append((wanted[number], number, row))
        if len(self._heap) < len(wanted):
            raise RecipeError(
                f"the stream has fewer rows than before (row {max(wanted) + 1} is gone): a run "
                "cannot go on with data that has changed"
            )
        heapq.heapify(self._heap)

    def _waiting(self, place: Place) -> list[tuple[int, int]]:
        """(due, number) of the rows that were read and not yet handed out: the order replayed."""
        heap: list[tuple[int, int]] = []
        handed = 0
        for number in range(place.read):
            heapq.heappush(heap, (self._delays.due(number), number))
            while heap and heap[0][0] <= number and handed < place.handed:
                heapq.heappop(heap)
                handed += 1
        for _ in range(place.handed - handed):
            heapq.heappop(heap)
        return heap

    def _prepare(self) -> None:
        """Check the next rows together and put the usable ones in line."""
        rows: list[tuple[int, Row, Place]] = []
        while len(rows) < BATCH:
            found = self._next_row()
            if found is None:
                break
            rows.append((*found, replace(self._place)))
        if not rows:
            if self._fruitless:
                raise RecipeError(
                    f"the stream gave no usable row in epoch {self._place.epoch}: "
                    + (f"dropped so far {dict(self._seen)}" if self._seen else _USED_UP)
                )
            self._begin(Place(self._place.epoch + 1))
            return
        numbers = [number for number, _, _ in rows]
        usable = self._source.usable([row for _, row, _ in rows], numbers)
        for each, (_, _, place) in zip(usable, rows, strict=True):
            if isinstance(each, Prompt):
                self._ready.append((each, place, Counter(self._seen)))
                self._fruitless = False
            else:
                self._seen[each] += 1
                self._source.tell(each, self._seen[each])

    def _next_row(self) -> tuple[int, Row] | None:
        """The next row that is due; None where the epoch has ended."""
        while not self._heap or self._heap[0][0] > self._place.read - 1:
            found = next(self._rows, None)
            if found is None:
                break
            number, row = found
            self._place.read = number + 1
            heapq.heappush(self._heap, (self._delays.due(number), number, row))
        if not self._heap:
            return None
        _, number, row = heapq.heappop(self._heap)
        self._place.handed += 1
        return number, row


class _Delays:
    """When each row of an epoch is due, drawn block by block."""

    def __init__(self, seed: int, epoch: int, window: int) -> None:
        self._key = stream_key(seed, "order", "stream", epoch)
        self._window = window
        self._block = -1
        self._values = np.zeros(0, dtype=np.int64)

    def due(self, number: int) -> int:
        block, place = divmod(number, _DRAWN)
        if block != self._block:
            positions = np.arange(block * _DRAWN, (block + 1) * _DRAWN, dtype=np.int64)
            keys = np.full(_DRAWN, self._key, dtype=np.uint64)
            drawn = uniforms(keys, positions).astype(np.float64)
            self._values = positions + np.floor(drawn * self._window).astype(np.int64)
            self._block = block
        return int(self._values[place])
