"""Decides which requests run: they enter as rows leave, continue over turns, and end at deadlines.

Requests wait in the order given and a free place is filled at once. A prompt enters the cache with
its first row and leaves with its last. A finished completion goes to `then`; a follow-up continues
in the same place, on the same keys and values. An answer that is not ready is awaited after a fixed
number of steps, so batching never depends on a clock.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from groupwise.policies.policy import Policy
from groupwise.samplers.contract import Then, check_length
from groupwise.samplers.local.cache import Cache
from groupwise.samplers.rows import Row
from groupwise.types import Request

# Steps that a row stays out for an answer that is still being made, while others run.
PATIENCE = 8


@dataclass(eq=False)
class Place:
    """One row of the cache: a request, and what of it is there.

    `prompt` and `own` count the positions in the cache of the group's part and of the row's own;
    the newest sampled token is not among them. `missing` are the ids of a new turn, or of a
    completion that was begun, that are not.
    `best` is the largest logit of the newest token.
    """

    row: Row
    slot: int
    prompt: int
    own: int = 0
    missing: tuple[int, ...] = ()
    answer: Future[Request | None] | None = None
    due: int = 0
    best: float = 0.0


@dataclass(eq=False)
class Slot:
    """A prompt in the cache, how many of its requests are in a place, and its tokens' experts."""

    prompt: tuple[int, ...]
    members: int = 0
    ready: bool = False
    experts: Sequence[bytes] = ()


class Schedule:
    """Places in the cache's order: first those that run, then those that are out for an answer."""

    def __init__(
        self, policy: Policy, cache: Cache, requests: Iterable[Request], then: Then, version: int
    ) -> None:
        self.policy = policy
        self.cache = cache
        self.then = then
        self.version = version
        self.rows = cache.rows
        self.groups = cache.groups
        self.places: list[Place] = []
        self.running = 0
        self.slots: list[Slot] = []
        self.step = 0
        self.changed = True
        template = policy.template
        rows = [Row.of(number, each, template) for number, each in enumerate(requests)]
        first: dict[tuple[int, ...], int] = {}
        for row in rows:
            first.setdefault(row.request.prompt_ids, row.place)
        # Requests of one prompt together, so that it is in the cache once.
        self.waiting = deque(sorted(rows, key=lambda row: first[row.request.prompt_ids]))
        # What follows requests that ended while they waited; it has no place here.
        self.left: list[tuple[int, Request | Future[Request | None]]] = []
        self._wanted = Counter(row.request.prompt_ids for row in self.waiting)

    @property
    def done(self) -> bool:
        return not (self.waiting or self.places)

    # --- entering -------------------------------------------------------------------------------

    def admit(self) -> list[Place]:
        """The waiting requests that fit now, each in a place among those that run."""
        entered: list[Place] = []
        while self.waiting and len(self.places) < self.rows:
            prompt = self.waiting[0].request.prompt_ids
            slot = self._slot_of(prompt)
            if slot is None:
                break
            row = self.waiting.popleft()
            place = Place(row, slot, len(prompt), missing=tuple(row.ids))
            self._wanted[prompt] -= 1
            self.slots[slot].members += 1
            self.places.append(place)
            self._run(len(self.places) - 1)
            entered.append(place)
        return entered

    def _slot_of(self, prompt: tuple[int, ...]) -> int | None:
        for number, slot in enumerate(self.slots):
            if slot.prompt == prompt:
                return number
        if len(self.slots) >= self.groups:
            idle = [number for number, slot in enumerate(self.slots) if not slot.members]
            if not idle:
                return None
            self._drop_slot(idle[0])
        self.slots.append(Slot(prompt))
        return len(self.slots) - 1

    def returning(self) -> list[Place]:
        """Places whose next turn begins now. An answer that is due is waited for."""
        due = [
            place
            for place in self.places[self.running :]
            if self.step >= place.due or self.running == 0
        ]
        back = []
        for place in due:
            assert place.answer is not None
            following, place.answer = place.answer.result(), None
            if following is None:
                self._leave(place)
            else:
                self._resume(place, following)
                back.append(place)
        return back

    def _resume(self, place: Place, request: Request) -> None:
        row = place.row
        before = (*row.request.prompt_ids, *row.ids)
        if request.prompt_ids[: len(before)] != before:
            raise ValueError(
                f"request {row.place}: a follow-up must start with the "
                f"{len(before)} ids of the prompt and completion before it"
            )
        check_length(self.policy, row.place, request)
        place.row = Row.of(row.place, request, self.policy.template)
        # Never empty: the newest token is not in the cache, and a row that waits has one.
        place.missing = request.prompt_ids[place.prompt + place.own :]
        self._run(self.places.index(place))

    # --- ending ---------------------------------------------------------------------------------

    def expire(self) -> None:
        """End every unfinished request that is past its deadline, waiting ones at once."""
        now = time.monotonic()
        for place in self.places[: self.running]:
            place.row.expire(now)
        late = [row for row in self.waiting if row.expire(now)]
        if not late:
            return
        self.waiting = deque(row for row in self.waiting if row.finish_reason is None)
        for row in late:
            self._wanted[row.request.prompt_ids] -= 1
            answer = self.then(row.place, row.completion(self.policy.template, self.version))
            if answer is not None:
                self.left.append((row.place, answer))

    def deliver(self) -> None:
        """Give every completion that has ended to `then`; its place is free, or out."""
        for place in [each for each in self.places[: self.running] if each.row.finish_reason]:
            completion = place.row.completion(self.policy.template, self.version)
            answer = self.then(place.row.place, completion)
            if answer is None:
                self._leave(place)
                continue
            if isinstance(answer, Request):
                place.answer, place.due = Future(), self.step
                place.answer.set_result(answer)
            else:
                place.answer, place.due = answer, self.step + PATIENCE
            self._pause(place)

    def pause(self) -> None:
        """Give every unfinished completion to `then`, paused; nothing waits or runs afterwards."""
        rows = [*(place.row for place in self.places[: self.running]), *self.waiting]
        for row in rows:
            row.pause()
            self.then(row.place, row.completion(self.policy.template, self.version))
        self.places, self.running, self.left = [], 0, []
        self.waiting.clear()

    # --- places ---------------------------------------------------------------------------------

    def _run(self, index: int) -> None:
        """The place at `index` runs from now on."""
        self._swap(index, self.running)
        self.running += 1
        self.changed = True

    def _pause(self, place: Place) -> None:
        self.running -= 1
        self._swap(self.places.index(place), self.running)
        self.changed = True

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        places = self.places
        length = max(places[one].own, places[other].own)
        if length:
            self.cache.swap_rows(one, other, length)
        places[one], places[other] = places[other], places[one]

    def _leave(self, place: Place) -> None:
        """Free a place: the last that runs moves into a gap among them, the last one into its."""
        gap = self.places.index(place)
        if gap < self.running:
            self.running -= 1
            self._fill(gap, self.running)
            gap = self.running
        self._fill(gap, len(self.places) - 1)
        self.places.pop()
        self.changed = True
        slot = self.slots[place.slot]
        slot.members -= 1
        if not slot.members and not self._wanted[slot.prompt]:
            self._drop_slot(place.slot)

    def _fill(self, gap: int, source: int) -> None:
        if gap == source:
            return
        moved = self.places[source]
        if moved.own:
            self.cache.move_row(source, gap, moved.own)
        self.places[gap] = moved

    def _drop_slot(self, gap: int) -> None:
        last = len(self.slots) - 1
        if gap != last:
            moved = self.slots[last]
            if moved.ready:
                self.cache.move_prompt(last, gap, len(moved.prompt))
            self.slots[gap] = moved
            for place in self.places:
                if place.slot == last:
                    place.slot = gap
        self.slots.pop()
