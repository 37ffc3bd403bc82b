"""One layout of samplers and learner, played event by event.

Groups start at most `staleness` steps ahead of the learner. Samplers share the rows evenly;
completions are verified as they end. The learner waits for a step's groups and for those that would
be too old after it; samplers stop while they take new weights. Lengths are independent draws.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from statistics import fmean

import numpy as np
import simpy

from groupwise.simulation.costs import NODE, UNCORRECTED, Costs, Phases


@dataclass(frozen=True, slots=True)
class Layout:
    """`samplers` and `learner` count devices, which are the same ones where `colocated`."""

    samplers: int
    learner: int
    colocated: bool = False

    @property
    def devices(self) -> int:
        return self.learner if self.colocated else self.samplers + self.learner


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over steps. Busy shares are of the devices' time (a sampler is busy while it decodes
    anything); `staleness` is in steps, from a group's first token on. In `phases`, `rollout` is the
    learner's wait for samplers and `rest` its wait for verifiers and the transfer."""

    layout: Layout
    phases: Phases
    step: float
    tokens_per_second: float
    samplers_busy: float
    learner_busy: float
    busy: float
    staleness: float
    staleness_max: int


@dataclass(slots=True)
class _Group:
    lengths: list[int]
    left: int
    version: int = -1


class _Run(simpy.Environment):  # type: ignore[misc] # mypy does not follow it
    def __init__(
        self, costs: Costs, layout: Layout, lengths: Sequence[int], staleness: int, seed: int
    ) -> None:
        super().__init__()
        self.costs, self.layout, self.ahead, given = costs, layout, staleness, costs.plan.inputs
        self.lengths, self.mean = np.asarray(lengths), fmean(lengths)
        self.random = np.random.default_rng(seed)
        self.engines = max(1, layout.samplers // costs.ways)
        rows = (staleness + 1) * costs.plan.completions_per_step
        self.slots = min(costs.slots(self.mean), math.ceil(rows / self.engines))
        workers = costs.verifiers * math.ceil(layout.devices / NODE)
        self.verifiers = [0.0] * min(workers, rows)  # no more than that many are ever at work
        self.prompts, self.size = given.prompts_per_step, given.group_size + given.greedy_rollouts
        self.queue: deque[tuple[int, _Group]] = deque()
        self.ready: list[_Group] = []
        self.started: Counter[int] = Counter()
        self.admitted = self.version = self.order = 0
        self.paused = self.sampled_at = self.busy = 0.0
        self.work, self.scored = self.event(), self.event()
        self.steps: list[tuple[Phases, list[_Group]]] = []
        self.admit()
        for _ in range(self.engines):
            self.process(self.sampler())

    def admit(self) -> None:
        """Every group that the bound on staleness allows."""
        while self.admitted < (self.version + self.ahead + 1) * self.prompts:
            drawn = self.random.choice(self.lengths, self.size).tolist()
            group = _Group(drawn, self.size)
            self.queue.extend((length, group) for length in drawn)
            self.admitted += 1
        self.work.succeed()
        self.work = self.event()

    def sampler(self) -> Generator[simpy.Event]:
        """Decode until a row ends; `rows` are (where it ends, order, where it began, group), by the
        sampler's own count of tokens."""
        rows: list[tuple[int, int, int, _Group]] = []
        count = begun = 0
        while True:
            started = min(self.slots - len(rows), len(self.queue))
            for _ in range(started):
                length, group = self.queue.popleft()
                if group.version < 0:
                    group.version = self.version
                    self.started[self.version] += 1
                self.order, begun = self.order + 1, begun + count
                heappush(rows, (count + length, self.order, count, group))
            if not rows:
                yield self.work
                continue
            tokens = rows[0][0] - count
            context = self.costs.plan.inputs.mean_prompt + count + tokens / 2 - begun / len(rows)
            seconds = self.costs.decode(len(rows), context, tokens, started)
            paused, at = self.paused, self.now
            done: simpy.Event = self.timeout(seconds)
            yield done | self.work if self.ahead and len(rows) < self.slots else done
            self.busy += self.now - at
            count += tokens if done.processed else int(tokens * (self.now - at) / seconds)
            if self.paused > paused:
                yield self.timeout(self.paused - paused)
            while rows and rows[0][0] <= count:
                _, _, start, group = heappop(rows)
                begun -= start
                self.sampled_at = self.now
                if self.costs.verify:
                    self.process(self.verify(group))
                else:
                    self.end(group)

    def verify(self, group: _Group) -> Generator[simpy.Event]:
        """The next free worker takes a completion."""
        done = max(self.now, self.verifiers[0]) + self.costs.verify
        heapreplace(self.verifiers, done)
        yield self.timeout(done - self.now)
        self.end(group)

    def end(self, group: _Group) -> None:
        """A completion is verified; a group that is whole goes to the learner."""
        group.left -= 1
        if not group.left:
            self.ready.append(group)
            self.scored.succeed()
            self.scored = self.event()

    def is_short(self) -> bool:
        """Whether the oldest groups that are ready make no step, or leave more behind than the
        coming steps can take before those are too old."""
        self.ready.sort(key=lambda group: group.version)
        left = self.started - Counter(group.version for group in self.ready[: self.prompts])
        behind = accumulate(left[version] for version in sorted(left))
        late = (
            count > (version + self.ahead - self.version) * self.prompts
            for version, count in zip(sorted(left), behind)
        )
        return len(self.ready) < self.prompts or any(late)

    def learner(self, steps: int) -> Generator[simpy.Event]:
        costs, layout, given = self.costs, self.layout, self.costs.plan.inputs
        for _ in range(steps):
            begun = self.now
            while self.is_short():
                yield self.scored
            sampled = min(self.now, max(begun, self.sampled_at))
            rest = costs.calibration.rest * costs.plan.completions_per_step / layout.learner
            taken, self.ready = self.ready[: self.prompts], self.ready[self.prompts :]
            self.started.subtract(group.version for group in taken)
            rows = [length for group in taken for length in group.lengths]
            tokens = round(self.prompts * given.mean_prompt) + sum(rows)
            logprobs, learn = costs.learn(tokens, max(rows), layout.learner)
            transfer = costs.transfer(layout.samplers, layout.colocated)
            waited = self.now - sampled + rest + transfer
            yield self.timeout(rest + logprobs + learn)
            self.paused += transfer
            yield self.timeout(transfer)
            self.steps.append((Phases(sampled - begun, logprobs, learn, waited), taken))
            self.version += 1
            self.admit()


def simulate(
    costs: Costs, layout: Layout, lengths: Sequence[int], *, staleness: int = 0, steps: int = 8,
    seed: int = 0,
) -> Outcome:  # fmt: skip
    """Play `steps` steps after the first `staleness + 1`, which fill the queue."""
    run, before = _Run(costs, layout, lengths, staleness, seed), staleness + 1
    run.run(run.process(run.learner(before)))
    start, busy = run.now, run.busy
    run.run(run.process(run.learner(steps)))
    span, seen = run.now - start, run.steps[before:]
    parts = ("rollout", "logprobs", "learn", "rest")
    means = Phases(*(fmean(getattr(phases, name) for phases, _ in seen) for name in parts))
    samplers = min(1.0, (run.busy - busy) / run.engines / span)
    learner = (means.logprobs + means.learn) * steps / span
    ages = [at - group.version for at, (_, taken) in enumerate(seen, before) for group in taken]
    tokens = sum(sum(group.lengths) for _, taken in seen for group in taken)
    share = (layout.samplers * samplers + layout.learner * learner) / layout.devices
    return Outcome(
        layout, means, span / steps, tokens / span, samplers, learner, share, fmean(ages), max(ages)
    )


def calibrated(costs: Costs, measured: Phases, lengths: Sequence[int]) -> Phases:
    """The corrections with which one device gives a recorded run's phases, under its settings."""
    plain = replace(costs, calibration=UNCORRECTED)
    computed = simulate(plain, Layout(1, 1, True), lengths, steps=20).phases
    return Phases(
        measured.rollout / computed.rollout,
        measured.logprobs / computed.logprobs if computed.logprobs else 1.0,
        measured.learn / computed.learn,
        measured.rest / costs.plan.completions_per_step,
    )
