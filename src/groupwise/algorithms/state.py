"""What some parts remember between steps: plain numbers keyed by stable prompt id.

`state_dict` is JSON-able, goes into the checkpoint, and a loaded state is the same state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any


@dataclass(slots=True)
class RewardHistory:
    """All rewards of a prompt as pooled sums; `squares` = sum of squared deviations.

    Pooled by count, so a visit with fewer scored rows weighs less (merging per-visit standard
    deviations would not give the standard deviation of the pool).
    """

    visits: int = 0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, rewards: Sequence[float]) -> None:
        """One more visit (Chan et al. 1979: merge of means and squared deviations)."""
        self.visits += 1
        if not rewards:
            return
        count = len(rewards)
        mean = math.fsum(rewards) / count
        squares = math.fsum((value - mean) ** 2 for value in rewards)
        total = self.count + count
        delta = mean - self.mean
        self.mean += delta * count / total
        self.squares += squares + delta * delta * self.count * count / total
        self.count = total
        self.low = min(self.low, *rewards)
        self.high = max(self.high, *rewards)

    def std(self, ddof: int) -> float:
        return math.sqrt(self.squares / (self.count - ddof)) if self.count > ddof else 0.0


@dataclass(slots=True)
class PassHistory:
    """How often a prompt was passed: visits, scored completions, sum of accuracies."""

    visits: int = 0
    count: int = 0
    passed: float = 0.0

    @property
    def rate(self) -> float:
        return self.passed / self.count if self.count else 0.0

    def add(self, accuracies: Sequence[float]) -> None:
        """One more visit with the accuracies of its scored completions."""
        self.visits += 1
        self.count += len(accuracies)
        self.passed += math.fsum(accuracies)


@dataclass(slots=True)
class AlgorithmState:
    """Everything an algorithm remembers.

    >>> state = AlgorithmState()
    >>> state.rewards_of("p").add([1.0, 0.0])
    >>> other = AlgorithmState()
    >>> other.load_state_dict(state.state_dict())
    >>> other == state
    True
    """

    rewards: dict[str, RewardHistory] = field(default_factory=dict)
    passes: dict[str, PassHistory] = field(default_factory=dict)
    entropy_coef: float | None = None
    updates: int = 0

    def rewards_of(self, prompt_id: str) -> RewardHistory:
        return self.rewards.setdefault(prompt_id, RewardHistory())

    def passes_of(self, prompt_id: str) -> PassHistory:
        return self.passes.setdefault(prompt_id, PassHistory())

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; floats survive `json` exactly (the shortest form that reads back the same)."""
        histories = {
            kind: {key: [_finite(x) for x in astuple(h)] for key, h in getattr(self, kind).items()}
            for kind in ("rewards", "passes")
        }
        return {**histories, "entropy_coef": self.entropy_coef, "updates": self.updates}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `state_dict` gave."""
        self.rewards = {
            key: RewardHistory(visits, count, mean, squares, *_bounds(low, high))
            for key, (visits, count, mean, squares, low, high) in data["rewards"].items()
        }
        self.passes = {key: PassHistory(*row) for key, row in data["passes"].items()}
        coef = data["entropy_coef"]
        self.entropy_coef = None if coef is None else float(coef)
        self.updates = int(data["updates"])


def _finite(value: int | float) -> int | float | None:
    return value if math.isfinite(value) else None


def _bounds(low: float | None, high: float | None) -> tuple[float, float]:
    return math.inf if low is None else low, -math.inf if high is None else high
