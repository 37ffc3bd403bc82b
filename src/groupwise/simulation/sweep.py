"""From few devices to many: the best split of each number, and where more stop helping."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.errors import RecipeError
from groupwise.simulation.costs import Costs
from groupwise.simulation.events import Layout, Outcome, simulate

TOTALS = tuple(8 * 2**i for i in range(10))
"""8 to 4,096 devices."""
WORTH = 1.25
"""Twice the devices help where they give at least so many times the tokens a second."""
_PARTS = 8
"""Splits are looked for in eighths of the devices."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The fastest layout of each number of devices, every layout that was played, and the numbers
    of devices in which policy and optimiser do not fit."""

    best: tuple[Outcome, ...]
    played: tuple[Outcome, ...]
    too_few: tuple[int, ...]

    @property
    def stops_at(self) -> int | None:
        """The number of devices from which on more do not help; None where all of them do."""
        for less, more in zip(self.best, self.best[1:]):
            doublings = math.log2(more.layout.devices / less.layout.devices)
            if more.tokens_per_second < less.tokens_per_second * WORTH**doublings:
                return less.layout.devices
        return None


def sweep(
    costs: Costs, lengths: Sequence[int], totals: Sequence[int] = TOTALS, *, staleness: int = 1,
    steps: int = 5, seed: int = 0,
) -> Sweep:  # fmt: skip
    """The fastest layout for each number of devices: all of them sampling and learning in turn, or
    samplers and learner apart with groups up to `staleness` steps ahead.

    Raises RecipeError where none of the numbers is enough.
    """

    def play(layout: Layout, ahead: int) -> Outcome:
        return simulate(costs, layout, lengths, staleness=ahead, steps=steps, seed=seed)

    def splits(total: int, share: float) -> Iterator[Outcome]:
        """Uphill from the split that balances the work."""
        parts = [total * part // _PARTS // costs.ways * costs.ways for part in range(1, _PARTS)]
        parts = sorted({each for each in parts if each and total - each >= costs.shards})
        if not parts:
            return
        middle = min(range(len(parts)), key=lambda at: abs(parts[at] - share * total))
        first = play(Layout(parts[middle], total - parts[middle]), staleness)
        yield first
        for side in (parts[middle + 1 :], parts[:middle][::-1]):
            last = first
            for samplers in side:
                found = play(Layout(samplers, total - samplers), staleness)
                yield found
                if found.tokens_per_second <= last.tokens_per_second:
                    break
                last = found

    best: list[Outcome] = []
    played: list[Outcome] = []
    for total in totals:
        found, share = [], 0.5
        if total >= max(costs.ways, costs.shards):
            found = [play(Layout(total, total, True), 0)]
            share = found[0].phases.rollout / found[0].step
        found += splits(total, share) if staleness else ()
        played += found
        best += sorted(found, key=lambda each: -each.tokens_per_second)[:1]
    if not best:
        raise RecipeError(
            f"{', '.join(map(str, totals))} devices: policy and optimiser need at least "
            f"{max(costs.ways, costs.shards)} x {costs.hardware.name}"
        )
    fitting = {each.layout.devices for each in best}
    return Sweep(tuple(best), tuple(played), tuple(each for each in totals if each not in fitting))
