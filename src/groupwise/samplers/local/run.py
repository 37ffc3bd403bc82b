"""One call of the local sampler: prefill, extend, decode, draw, until every request has ended.

Shapes: n rows, N tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from groupwise.policies.routing import packed_experts
from groupwise.samplers.contract import Pause
from groupwise.samplers.local.attention import (
    Decode,
    Extend,
    Extension,
    Layout,
    Prefill,
    lay_out,
)
from groupwise.samplers.local.cache import Cache
from groupwise.samplers.local.decoder import Attend, Decoder
from groupwise.samplers.local.head import SamplingHead
from groupwise.samplers.local.schedule import Place, Schedule, Slot
from groupwise.samplers.local.static import StaticSteps
from groupwise.samplers.rows import NextTokens, Picked

# Prompt tokens that are run at once: enough for full matrix products, small beside weights.
_PREFILL_TOKENS = 2048


@dataclass
class Counts:
    """What a sampler has done since it was made: tokens run through the decoder by stage, rows that
    the head projected, decoding steps, the most rows at once and the most bytes of keys and values.
    """

    prefilled: int = 0
    extended: int = 0
    decoded: int = 0
    projected: int = 0
    steps: int = 0
    most_rows: int = 0
    cache_bytes: int = 0


@dataclass
class _Batch:
    """The rows that run, as tensors; made again when another set of them runs. `best` [n] are the
    largest logits of their last tokens."""

    places: list[Place]
    layout: Layout
    next_tokens: NextTokens
    own: Tensor
    ids: Tensor
    best: Tensor
    longest_own: int
    longest: int


class Run:
    """Requests to completions."""

    def __init__(
        self,
        decoder: Decoder,
        head: SamplingHead,
        cache: Cache,
        schedule: Schedule,
        counts: Counts,
        static: StaticSteps | None = None,
    ) -> None:
        self.decoder = decoder
        self.head = head
        self.cache = cache
        self.schedule = schedule
        self.counts = counts
        self.static = static
        self.device = schedule.policy.device
        self.stop_ids = schedule.policy.template.stop_ids
        self.batch: _Batch | None = None
        self.last_states: dict[Slot, Tensor] = {}
        decoder.notes = any(row.request.experts for row in schedule.waiting)

    def run(self, pause: Pause | None = None) -> None:
        """Until nothing waits, runs or is out, or it is paused."""
        schedule = self.schedule
        while not schedule.done:
            if pause is not None and pause():
                schedule.pause()
                return
            schedule.expire()
            schedule.deliver()
            entered = schedule.admit()
            if entered:
                self._start(entered)
            back = schedule.returning()
            if back:
                self._resume(back)
            if schedule.running:
                self._decode()
            schedule.step += 1
        self.counts.cache_bytes = max(self.counts.cache_bytes, self.cache.num_bytes)

    # --- the three stages -----------------------------------------------------------------------

    def _start(self, entered: Sequence[Place]) -> None:
        """Run prompts that are new, once each, and draw every entering row's first token."""
        slots = self.schedule.slots
        self.last_states = {slot: self.last_states[slot] for slot in slots if slot.ready}
        new = [number for number, slot in enumerate(slots) if not slot.ready]
        for part in _parts(new, [len(slots[number].prompt) for number in new]):
            self._prefill(part)
        for place in entered:
            place.row.experts.extend(slots[place.slot].experts)
        begun = [place for place in entered if place.missing]
        if begun:
            self._resume(begun)
        entered = [place for place in entered if place not in begun]
        if not entered:
            return
        numbers = sorted({place.slot for place in entered})
        logits = self._project(torch.stack([self.last_states[slots[each]] for each in numbers]))
        row_of = {number: row for row, number in enumerate(numbers)}
        index = torch.tensor([row_of[place.slot] for place in entered], device=self.device)
        self._draw(entered, logits[index])
        self.schedule.deliver()

    def _prefill(self, numbers: Sequence[int]) -> None:
        slots = [self.schedule.slots[number] for number in numbers]
        lengths = [len(slot.prompt) for slot in slots]
        states = self._forward(
            [token for slot in slots for token in slot.prompt],
            [position for length in lengths for position in range(length)],
            Prefill(self.cache, lengths, numbers),
        )
        ends = torch.tensor(lengths, device=self.device).cumsum(0) - 1
        for slot, state, experts in zip(slots, states[ends], self._experts(lengths)):
            self.last_states[slot] = state
            slot.experts = experts
            slot.ready = True
        self.counts.prefilled += sum(lengths)

    def _resume(self, back: Sequence[Place]) -> None:
        """Run what a new turn adds, or what was begun, and draw the next token."""
        where = {id(place): row for row, place in enumerate(self.schedule.places)}
        rows = [
            Extension(where[id(each)], each.slot, each.prompt, each.own, len(each.missing))
            for each in back
        ]
        self.cache.make_room(max(row.own + row.length for row in rows))
        states = self._forward(
            [token for place in back for token in place.missing],
            [row.prompt + row.own + new for row in rows for new in range(row.length)],
            Extend(self.cache, rows),
        )
        lengths = torch.tensor([row.length for row in rows], device=self.device)
        for place, experts in zip(back, self._experts([row.length for row in rows])):
            place.row.experts.extend(experts)
            place.own += len(place.missing)
            place.missing = ()
        self.counts.extended += sum(row.length for row in rows)
        self._draw(back, self._project(states[lengths.cumsum(0) - 1]))
        self.schedule.deliver()

    def _decode(self) -> None:
        """One token for every row that runs."""
        batch = self._current()
        self.cache.make_room(batch.longest_own + 1)
        self.decoder.reserve(batch.longest)
        if self.static is not None:
            states = self.static.states(batch.layout, batch.ids, batch.own)
        else:
            attend = Decode(self.cache, batch.layout, batch.own)
            positions = batch.layout.prompts + batch.own
            states = self.decoder.run(batch.ids, positions, attend)
        self.counts.projected += states.shape[0]
        logits = self.head.near(states, batch.best)
        draws = batch.next_tokens.draw(logits, self.schedule.version)
        picked = Picked(draws)
        experts = self._experts([1] * len(batch.places))
        for index, place in enumerate(batch.places):
            place.own += 1
            place.row.experts.extend(experts[index])
            place.row.take(picked, index, self.stop_ids)
        batch.own += 1
        batch.longest_own += 1
        batch.longest += 1
        batch.ids = draws.ids
        batch.best = draws.best + batch.best if self.head.half else draws.best
        self.counts.decoded += len(batch.places)
        self.counts.steps += 1
        self.counts.most_rows = max(self.counts.most_rows, len(batch.places))

    # --- pieces ---------------------------------------------------------------------------------

    def _current(self) -> _Batch:
        if self.batch is None or self.schedule.changed:
            self._keep_best()
            places = self.schedule.places[: self.schedule.running]
            self.schedule.changed = False
            self.batch = _Batch(
                places=places,
                layout=lay_out(
                    [place.slot for place in places],
                    [place.prompt for place in places],
                    self.device,
                    None if self.static is None else self.static.frame(len(places)),
                ),
                next_tokens=NextTokens([place.row for place in places], self.device),
                own=torch.tensor([place.own for place in places], device=self.device),
                ids=torch.tensor([place.row.ids[-1] for place in places], device=self.device),
                best=torch.tensor([place.best for place in places], device=self.device),
                longest_own=max(place.own for place in places),
                longest=max(place.prompt + place.own for place in places) + 1,
            )
        return self.batch

    def _keep_best(self) -> None:
        """What the next batch needs of the one before it."""
        if self.batch is not None:
            for place, best in zip(self.batch.places, self.batch.best.tolist()):
                place.best = best

    def _draw(self, places: Sequence[Place], logits: Tensor) -> None:
        """The first token of a turn."""
        self._keep_best()
        self.batch = None
        rows = [place.row for place in places]
        draws = NextTokens(rows, self.device).draw(logits, self.schedule.version)
        picked = Picked(draws)
        for index, (place, best) in enumerate(zip(places, draws.best.tolist())):
            place.best = best
            place.row.take(picked, index, self.stop_ids)

    def _project(self, states: Tensor) -> Tensor:
        self.counts.projected += states.shape[0]
        return self.head.exact(states)

    def _experts(self, lengths: Sequence[int]) -> list[Sequence[bytes]]:
        """Of the decoder's last run, part by part; empty parts where they are not noted."""
        every = iter(packed_experts(self.decoder.experts))
        return [tuple(islice(every, length)) for length in lengths]

    def _forward(self, ids: list[int], positions: list[int], attend: Attend) -> Tensor:
        self.decoder.reserve(max(positions) + 1)
        return self.decoder.run(
            torch.tensor(ids, device=self.device),
            torch.tensor(positions, device=self.device),
            attend,
        )


def _parts(numbers: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """The numbers in order, in parts of about `_PREFILL_TOKENS`; a longer one is its own part."""
    parts: list[list[int]] = []
    total = 0
    for number, length in zip(numbers, lengths):
        if parts and total + length <= _PREFILL_TOKENS:
            parts[-1].append(number)
            total += length
        else:
            parts.append([number])
            total = length
    return parts
