"""A step's metrics of its rollouts: rewards, verifiers, signal, outcomes, lengths, turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import get_args

from groupwise.records.metrics import Value
from groupwise.texts import checks_itself, repeated_share
from groupwise.types import Group, Outcome, Rollout

# The advantages' own tolerance: a group that counts as equal here has advantages of 0 there.
RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-7


class _Totals:
    """Sums with what they are divided by, and counts; None and NaN are skipped, never 0."""

    def __init__(self) -> None:
        self.means: dict[str, tuple[float, int]] = {}
        self.counts: dict[str, float] = {}

    def mean(self, name: str, *values: float | None) -> None:
        kept = [float(v) for v in values if v is not None and not math.isnan(v)]
        total, number = self.means.get(name, (0.0, 0))
        self.means[name] = (total + math.fsum(kept), number + len(kept))

    def count(self, name: str, number: float) -> None:
        """Add to a sum, which is whole where every number is."""
        add = number if isinstance(number, float) else int(number)
        self.counts[name] = self.counts.get(name, 0) + add


def has_signal(rewards: Iterable[float | None]) -> bool:
    """Whether a group's scored rewards differ by more than the tolerance.

    >>> has_signal([1.0, None, 0.0]), has_signal([0.2, 0.2 + 1e-9]), has_signal([1.0, None])
    (True, False, False)
    """
    scored = [r for r in rewards if r is not None and not math.isnan(r)]
    if len(scored) < 2:
        return False
    tolerance = RELATIVE_TOLERANCE * max(map(abs, scored)) + ABSOLUTE_TOLERANCE
    return max(scored) - min(scored) > tolerance


def group_totals(groups: Sequence[Group]) -> dict[str, Value]:
    """The metrics of whole groups, by the names of the metric table; a mean over nothing is None.

    Greedy rollouts count nowhere.
    """
    totals = _Totals()
    totals.count("groups/count", len(groups))
    for outcome in get_args(Outcome):
        totals.count(f"outcomes/{outcome}", 0)
    for group in groups:
        scored = [r for r in group.rewards if r is not None]
        totals.mean("reward", *scored)
        totals.count("unscored", len(group.rewards) - len(scored))
        totals.mean("groups/no_signal", not has_signal(scored))
        totals.mean("reward_std", *([population_std(scored)] if len(scored) >= 2 else []))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout in rollouts:
        _add_rollout(totals, rollout)
    found: dict[str, Value] = {
        name: total / number if number else None for name, (total, number) in totals.means.items()
    }
    found.update(totals.counts)
    if rollouts:
        lengths = [rollout.num_tokens for rollout in rollouts]
        found["completions/tokens_min"] = float(min(lengths))
        found["completions/tokens_max"] = float(max(lengths))
    turns = [_num_turns(each) for each in rollouts if each.extras.messages is not None]
    if turns:
        found["turns/max"] = float(max(turns))
    return found


def population_std(values: Sequence[float]) -> float:
    """The population standard deviation (ddof 0) of at least one value."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def _add_rollout(totals: _Totals, rollout: Rollout) -> None:
    extras, tokens = rollout.extras, rollout.num_tokens
    totals.count(f"outcomes/{rollout.score.outcome}", 1)
    for name, value in rollout.score.parts.items():
        totals.mean(f"verifier/{name}", value)
    totals.count("completions/count", 1)
    totals.count("tokens", tokens)
    totals.mean("completions/tokens_mean", tokens)
    totals.mean("completions/truncated", rollout.truncated)
    totals.mean("completions/repetition", repeated_share(rollout.completion_ids))
    totals.mean("completions/self_checks", checks_itself(rollout.text))
    totals.mean("staleness", rollout.step - rollout.version)
    if extras.messages is None:  # a single turn
        return
    totals.mean("turns/mean", _num_turns(rollout))
    totals.mean("turns/context_tokens", len(rollout.mask) - sum(rollout.mask))
    totals.count("turns/failed", extras.failure is not None)
    totals.count("turns/forced", bool(extras.continued))
    if extras.limit is not None:
        totals.count(f"turns/limit/{extras.limit}", 1)
    for name, number in extras.counts.items():
        totals.count(name if name.startswith("tools/") else f"plays/{name}", number)


def _num_turns(rollout: Rollout) -> int:
    return len(rollout.turns) - len(rollout.extras.continued)
