"""Training rows that are read during the run, each checked when it is reached, in bounded memory.

Each epoch's rows are visited block by block, every block in an order keyed by (seed, epoch, place):
a resumed run needs the block's first row and how many of its rows are done.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from groupwise.environments.base import Environment
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.identity import normalised_text
from groupwise.environments.order import Cursor
from groupwise.environments.overlap import Elsewhere, HeldOut, common_runs
from groupwise.environments.readers import Row, is_file, iter_rows
from groupwise.environments.tasks import (
    Task,
    accepted,
    check_tasks,
    heldout_rows,
    refuse_overlap,
    tasks_of,
)
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key, uniforms
from groupwise.types import Prompt
from groupwise.verifiers import Verifier

PREVIEW = 256
"""Rows of a stream that stand for its training split: audits, plans, evaluations on `train`."""
REMEMBERED = 20_000
"""Prompts of a stream that can still be asked for by their id."""
BATCH = 64
"""Rows that are checked together."""
_USED_UP = (
    "it gave no rows at all. Rows are read again every epoch, and a generator that is used up "
    "gives none, so name the function that makes it"
)


class StreamEnvironment(Environment):
    """A stream of training prompts beside held-out ones in memory.

    `prompts()` gives the first rows only. A prompt's id is its content hash and its row number, as
    `1f2e...@17`, so that equal rows are told apart without remembering all.
    """

    streamed = True

    def __init__(self, settings: DatasetSettings, seed: int, verifier: Verifier) -> None:
        """The first rows and all held-out ones are checked here. Raises RecipeError naming rows."""
        self.verifier = verifier
        self._settings = settings
        self._seed = seed
        given = tasks_of(heldout_rows(settings, seed), settings, verifier, seed)
        check_tasks(given, settings, verifier)
        self._heldout = heldout = accepted(given, settings, verifier)
        self._index = HeldOut([task.prompt for task in heldout], settings.near_overlap)
        self._elsewhere: list[Elsewhere] = []
        self._length_of: Callable[[Prompt], int] = lambda prompt: 0
        self._room, self._drops_long, self._advice = 0, False, ""
        # Rows are read again and again, wherever the process then works.
        file = Path(settings.path).expanduser()
        path = str(file.absolute()) if file.exists() else settings.path
        self._source = settings.source(seed)._replace(path=path)
        self._remembered: OrderedDict[str, Prompt] = OrderedDict()
        rows = list(islice(self.rows(0), settings.checked_rows))
        if not rows:
            raise RecipeError(
                f"environment.path = {settings.path!r} holds no rows; give one with a row"
            )
        texts = [normalised_text(task.prompt) for task in tasks_of(rows, settings, verifier, seed)]
        self._common = common_runs(map(self._index.shared, texts), len(texts))
        numbers = range(len(rows))
        found = self.usable(rows, numbers)
        first = [each for each in found if isinstance(each, Prompt)]
        dropped = Counter(each for each in found if isinstance(each, str))
        dropped["bad_answers"] += len(given) - len(heldout)
        if not first:
            raise RecipeError(
                f"{settings.where}: none of the first {len(rows)} rows can be used: {dict(dropped)}"
            )
        facts = {
            "streamed": True,
            "checked_rows": len(rows),
            **{f"dropped_{why}": count for why, count in dropped.items()},
            "arguments": settings.model_dump(mode="json"),
            **({"file_bytes": file.stat().st_size} if is_file(settings.path) else {}),
        }
        prompts = [task.prompt for task in heldout]
        splits = {"train": first[:PREVIEW], "heldout": prompts}
        super().__init__(settings.environment_name, verifier, splits, facts)
        self.on_overlap = settings.on_overlap
        self.places = {task.prompt.id: task.where for task in heldout}

    def rows(self, start: int) -> Iterator[Row]:
        """The training rows of one epoch from the `start`-th on."""
        found = iter_rows(self._source, start, streaming=True)
        limit = self._settings.limit
        return found if limit is None else islice(found, max(limit - start, 0))

    def usable(self, rows: Sequence[Row], numbers: Sequence[int]) -> list[Prompt | str]:
        """The prompts of rows, in place of a dropped one why it is.

        `numbers`: each row's place in the epoch, from 0. Raises RecipeError naming refused rows.
        """
        settings, verifier = self._settings, self.verifier
        tasks = tasks_of(rows, settings, verifier, self._seed)
        check_tasks(tasks, settings, verifier)
        good = {id(task) for task in accepted(tasks, settings, verifier)}
        found: list[Prompt | str] = []
        for task, number in zip(tasks, numbers, strict=True):
            why = None if id(task) in good else "bad_answers"
            why = why or self._overlaps(task) or self._length(task)
            prompt = replace(task.prompt, id=f"{task.prompt.id}@{number + 1}")
            found.append(prompt if why is None else why)
        return found

    def tell(self, why: str, count: int) -> None:
        """Say how many rows were dropped, whenever the count is 1, 10, 100, ..."""
        if str(count).rstrip("0") == "1":
            logging.getLogger("groupwise").warning(
                "%s: training rows dropped so far (%s): %d",
                self._settings.where,
                why.replace("_", " "),
                count,
            )

    def _overlaps(self, task: Task) -> str | None:
        """`overlap` for a row that is dropped because it is held out; raises if that is refused."""
        elsewhere = [each for each in self._elsewhere if each.found(task.prompt, task.where)]
        if any(each.on_overlap == "drop" for each in elsewhere):
            return "overlap"
        text = normalised_text(task.prompt)
        exact = self._index.same(text)
        near = [] if exact else self._index.near_to(self._index.shared(text) - self._common)
        if not exact and not near:
            return None
        if self._settings.on_overlap == "refuse":
            pairs = [(task.where, self._heldout[other].where) for other in (exact or near)]
            refuse_overlap(self._settings, pairs if exact else [], [] if exact else pairs)
        return "overlap" if self._settings.on_overlap == "drop" else None

    def keep_apart(self, others: Elsewhere) -> int:
        """As for any environment: the checked rows are looked at now, the others when reached."""
        rows = list(islice(self.rows(0), self._settings.checked_rows))
        tasks = tasks_of(rows, self._settings, self.verifier, self._seed)
        found = {number for task in tasks for number in others.found(task.prompt, task.where)}
        super().keep_apart(others)
        self._elsewhere.append(others)
        return len(found)

    def _length(self, task: Task) -> str | None:
        length = self._length_of(task.prompt)
        if length > self._room and not self._drops_long:
            raise RecipeError(
                f"{task.where}: its prompt of {length} tokens does not fit; {self._advice}"
            )
        return "too_long" if length > self._room else None

    def fit(
        self, length_of: Callable[[Prompt], int], room: int, *, drop: bool, advice: str
    ) -> dict[str, int]:
        """As for any environment, and for every row that is still to come."""
        self._length_of, self._room, self._drops_long, self._advice = length_of, room, drop, advice
        return super().fit(length_of, room, drop=drop, advice=advice)

    def cursor(self, seed: int) -> Cursor:
        return StreamCursor(self, seed, self._settings.shuffle_buffer)

    def prompt(self, id: str) -> Prompt:  # noqa: A002 (the field's name)
        """A held-out prompt, one of the first rows, or one that was handed out not long ago."""
        return self._remembered.get(id) or super().prompt(id)

    def remember(self, prompt: Prompt) -> None:
        """Keep a prompt within reach of `prompt(id)`, and forget the oldest."""
        self._remembered[prompt.id] = prompt
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)


class Place(NamedTuple):
    """Where a stream is: the first row of its block, how many of its rows are done, and its size.

    A size of 0 is not known yet.
    """

    epoch: int = 0
    start: int = 0
    done: int = 0
    size: int = 0


class StreamCursor:
    """A stream's prompts, block by block. It only goes forward."""

    def __init__(self, source: StreamEnvironment, seed: int, block: int) -> None:
        self._source = source
        self._seed = seed
        self._block = block
        self._dropped: Counter[str] = Counter()  # up to the last visit
        self._seen: Counter[str] = Counter()  # including rows read ahead
        self._given = -1
        self._last: tuple[int, str] | None = None
        self._rows: Iterator[tuple[int, Row, Place]] = iter(())
        self._begin(Place())

    def __len__(self) -> int:
        """Prompts known so far: the first rows."""
        return len(self._source.prompts())

    def at(self, index: int) -> tuple[int, str]:
        """Epoch and prompt id of the `index`-th visit, asked for in order.

        Raises ValueError if the stream is past it, RecipeError for a row that cannot be used.
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
        """The place after the last visit."""
        return {"given": self._given, "dropped": dict(self._dropped), **self._after._asdict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at that place; rows before its block are skipped.

        Raises RecipeError if its block has other rows than before.
        """
        self._given = int(state["given"])
        self._last = None
        self._dropped, self._seen = Counter(state["dropped"]), Counter(state["dropped"])
        self._begin(Place(*(int(state[field]) for field in Place._fields)))
        self._rows = chain(list(islice(self._rows, 1)), self._rows)  # reads the block now

    def _begin(self, place: Place) -> None:
        self._after = place
        self._empty = place == Place(place.epoch)  # no usable row in this epoch so far
        self._ready: deque[tuple[Prompt, Place, Counter[str]]] = deque()
        self._rows = self._visits(place)

    def _visits(self, place: Place) -> Iterator[tuple[int, Row, Place]]:
        """The rest of an epoch: number and row in visiting order, and the place after each."""
        rows = self._source.rows(place.start)
        start, done, size = place.start, place.done, place.size
        key = np.uint64(stream_key(self._seed, "order", "stream", place.epoch))
        while block := list(islice(rows, self._block)):
            keys = np.full(len(block), key, dtype=np.uint64)
            positions = np.arange(start, start + len(block), dtype=np.int64)
            order = np.argsort(uniforms(keys, positions), kind="stable")
            if size not in (0, len(block)):
                break
            for number, at in enumerate(order[done:], start=done + 1):
                after = Place(place.epoch, start, number, len(block))
                yield start + int(at), block[at], after
            start, done, size = start + len(block), 0, 0
        if size:
            raise RecipeError(
                f"the stream had {size} rows from row {start + 1} on and has others now; a run "
                "cannot be resumed with data that has changed"
            )

    def _prepare(self) -> None:
        """Check the next rows together and queue the usable ones."""
        rows = list(islice(self._rows, BATCH))
        if not rows:
            epoch = self._after.epoch
            if self._empty:
                raise RecipeError(
                    f"the stream has no usable row in epoch {epoch}: "
                    + (f"dropped so far {dict(self._seen)}" if self._seen else _USED_UP)
                )
            self._begin(Place(epoch + 1))
            return
        usable = self._source.usable([row for _, row, _ in rows], [each[0] for each in rows])
        for each, (_, _, place) in zip(usable, rows, strict=True):
            if isinstance(each, Prompt):
                self._ready.append((each, place, Counter(self._seen)))
                self._empty = False
            else:
                self._seen[each] += 1
                self._source.tell(each, self._seen[each])
