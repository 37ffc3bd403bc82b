"""Sums that make a step's metrics, whichever way the rollouts were split.

A `Totals` holds numerators and denominators, not means, so the totals of micro-batches or ranks add
up to those of the whole: 1 of 10 and 2 of 2 is 3 of 12. A name that a part has never seen adds
nothing; smallest and largest are over everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from groupwise.types import Group, Outcome, Rollout

# The advantages' own tolerance: a group that counts as equal here has advantages of 0 there.
RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-7


@dataclass(slots=True)
class Totals:
    """Mergeable numerators, denominators, counts and extremes; plain floats only.

    >>> a, b = Totals(), Totals()
    >>> a.mean("completions/truncated", 1, 10); b.mean("completions/truncated", 2, 2)
    >>> (a + b).finish()
    {'completions/truncated': 0.25}
    """

    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    smallest: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    def mean(self, name: str, numerator: float, denominator: float) -> None:
        """Add a numerator and its denominator; a denominator of 0 leaves the mean undefined."""
        top, bottom = self.means.get(name, (0.0, 0.0))
        self.means[name] = (top + float(numerator), bottom + float(denominator))

    def values(self, name: str, values: Iterable[float | None]) -> None:
        """Add each value to a mean; None and NaN are skipped, never counted as 0."""
        kept = [float(v) for v in values if v is not None and not math.isnan(v)]
        self.mean(name, math.fsum(kept), len(kept))

    def count(self, name: str, number: float) -> None:
        """Add to a sum, which is whole where every number is."""
        add = number if isinstance(number, float) else int(number)
        self.counts[name] = self.counts.get(name, 0) + add

    def low(self, name: str, value: float) -> None:
        """Lower a smallest value."""
        self.smallest[name] = min(self.smallest.get(name, math.inf), float(value))

    def high(self, name: str, value: float) -> None:
        """Raise a largest value."""
        self.largest[name] = max(self.largest.get(name, -math.inf), float(value))

    def __add__(self, other: Totals) -> Totals:
        merged = Totals(
            dict(self.means), dict(self.counts), dict(self.smallest), dict(self.largest)
        )
        for name, (top, bottom) in other.means.items():
            merged.mean(name, top, bottom)
        for name, number in other.counts.items():
            merged.count(name, number)
        for name, value in other.smallest.items():
            merged.low(name, value)
        for name, value in other.largest.items():
            merged.high(name, value)
        return merged

    def finish(self) -> dict[str, float | int | None]:
        """The metrics; a mean over nothing is None."""
        done: dict[str, float | int | None] = {
            name: top / bottom if bottom > 0 else None for name, (top, bottom) in self.means.items()
        }
        done.update(self.counts)
        done.update(self.smallest)
        done.update(self.largest)
        return done


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether a group's scored rewards differ by more than the tolerance.

    >>> has_signal([1.0, None, 0.0]), has_signal([0.2, 0.2 + 1e-9]), has_signal([1.0, None])
    (True, False, False)
    """
    scored = [r for r in rewards if r is not None and not math.isnan(r)]
    if len(scored) < 2:
        return False
    tolerance = RELATIVE_TOLERANCE * max(map(abs, scored)) + ABSOLUTE_TOLERANCE
    return max(scored) - min(scored) > tolerance


def population_std(values: Sequence[float]) -> float:
    """Standard deviation with ddof 0."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def group_totals(groups: Sequence[Group]) -> Totals:
    """Totals of whole groups: rewards, verifiers, signal, outcomes, lengths and staleness.

    Groups may be split over ranks in any way; a group itself is never split. Greedy rollouts count
    nowhere. The names are those of the metric table.
    """
    totals = Totals()
    totals.count("groups/count", len(groups))
    for outcome in get_args(Outcome):
        totals.count(f"outcomes/{outcome}", 0)
    for group in groups:
        _add_rewards(totals, group.rewards)
        for rollout in group.rollouts:
            _add_rollout(totals, rollout)
    return totals


def _add_rewards(totals: Totals, rewards: Sequence[float | None]) -> None:
    scored = [r for r in rewards if r is not None]
    totals.values("reward", scored)
    totals.count("unscored", len(rewards) - len(scored))
    totals.mean("groups/no_signal", not has_signal(rewards), 1)
    totals.values("reward_std", [population_std(scored)] if len(scored) >= 2 else [])


def _add_rollout(totals: Totals, rollout: Rollout) -> None:
    totals.count(f"outcomes/{rollout.score.outcome}", 1)
    for name, value in rollout.score.parts.items():
        totals.values(f"verifier/{name}", [value])
    tokens = rollout.num_tokens
    totals.count("completions/count", 1)
    totals.count("tokens", tokens)
    totals.mean("completions/tokens_mean", tokens, 1)
    totals.low("completions/tokens_min", tokens)
    totals.high("completions/tokens_max", tokens)
    totals.mean("completions/truncated", rollout.truncated, 1)
    totals.mean("staleness", rollout.step - rollout.version, 1)
    if rollout.extras.messages is not None:
        _add_turns(totals, rollout)


def _add_turns(totals: Totals, rollout: Rollout) -> None:
    """What only rollouts of several turns have."""
    extras = rollout.extras
    turns = len(rollout.turns) - len(extras.continued)
    totals.mean("turns/mean", turns, 1)
    totals.high("turns/max", turns)
    totals.mean("turns/context_tokens", len(rollout.mask) - sum(rollout.mask), 1)
    totals.count("turns/failed", extras.failure is not None)
    totals.count("turns/forced", bool(extras.continued))
    if extras.limit is not None:
        totals.count(f"turns/limit/{extras.limit}", 1)
    for name, number in extras.counts.items():
        totals.count(name if name.startswith("tools/") else f"plays/{name}", number)
