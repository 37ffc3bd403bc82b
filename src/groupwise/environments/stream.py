"""Training rows that are read as the run goes, each checked when it is reached; bounded memory.

Left out: in which order they come (stream_order.py), the checks of a row by itself (tasks.py), and
data that fits into memory (dataset.py).
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from groupwise.environments.base import Environment
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.identity import normalised_text
from groupwise.environments.order import Cursor
from groupwise.environments.overlap import Elsewhere, HeldOut, common_runs
from groupwise.environments.readers import Row, is_file, iter_rows
from groupwise.environments.stream_order import StreamCursor
from groupwise.environments.tasks import (
    Task,
    accepted,
    check_tasks,
    heldout_rows,
    refuse_overlap,
    tasks_of,
)
from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Verifier

PREVIEW = 256
"""Rows of a stream that stand for its training split: audits, plans, evaluations on `train`."""
REMEMBERED = 20_000
"""Prompts of a stream that can still be asked for by their id."""


def from_stream(settings: DatasetSettings, seed: int, verifier: Verifier) -> StreamEnvironment:
    """The environment of a stream; its first rows and all held-out ones are checked here.

    Raises RecipeError naming rows.
    """
    heldout = tasks_of(heldout_rows(settings, seed), settings, verifier, seed)
    check_tasks(heldout, settings, verifier)
    kept = accepted(heldout, settings, verifier)
    return StreamEnvironment(settings, seed, verifier, kept, num_dropped=len(heldout) - len(kept))


class StreamEnvironment(Environment):
    """A stream of training prompts beside held-out ones in memory.

    `prompts()` gives the first rows only. A prompt's id is its content hash and its row number, as
    `1f2e...@17`, so that equal rows are told apart without remembering all.
    """

    streamed = True

    def __init__(
        self,
        settings: DatasetSettings,
        seed: int,
        verifier: Verifier,
        heldout: Sequence[Task],
        num_dropped: int = 0,
    ) -> None:
        """`heldout` are checked tasks, `num_dropped` how many of them were dropped before."""
        self.verifier = verifier
        self._settings = settings
        self._seed = seed
        self._heldout = heldout
        self._index = HeldOut([task.prompt for task in heldout], settings.near_overlap)
        self._elsewhere: list[Elsewhere] = []
        self._drops_long = False
        self._too_long: Callable[[Prompt], str | None] = lambda prompt: None
        # Rows are read again and again, wherever the process then works.
        file = Path(settings.path).expanduser()
        self._path = str(file.absolute()) if file.exists() else settings.path
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
        dropped["bad_answers"] += num_dropped
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
        found = iter_rows(
            self._path,
            config=self._settings.config,
            split=self._settings.split,
            seed=self._seed,
            start=start,
            streaming=True,
        )
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
        """Whether a row is held out, too, and is dropped for it; refused where that is asked."""
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
        words = self._too_long(task.prompt)
        if words is not None and not self._drops_long:
            raise RecipeError(f"{task.where}: {words}")
        return None if words is None else "too_long"

    def fit(
        self, length_of: Callable[[Prompt], int], room: int, *, drop: bool, advice: str
    ) -> dict[str, int]:
        """As for any environment, and for every row that is still to come."""
        lengths = super().fit(length_of, room, drop=drop, advice=advice)
        self._drops_long = drop

        def too_long(prompt: Prompt) -> str | None:
            length = length_of(prompt)
            return (
                None if length <= room else f"its prompt of {length} tokens does not fit; {advice}"
            )

        self._too_long = too_long
        return lengths

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
