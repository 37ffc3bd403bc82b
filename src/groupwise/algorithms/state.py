"""What some parts remember between steps: plain numbers keyed by stable prompt id.

Left out: who reads it (the smoothed baseline, the pass-rate filter, the adaptive entropy bonus).
`state_dict` is JSON-able, goes into the checkpoint, and a loaded state is the same state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        return {
            "rewards": {
                key: [h.visits, h.count, h.mean, h.squares, *_finite(h.low, h.high)]
                for key, h in self.rewards.items()
            },
            "passes": {key: [h.visits, h.count, h.passed] for key, h in self.passes.items()},
            "entropy_coef": self.entropy_coef,
            "updates": self.updates,
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `state_dict` gave."""
        self.rewards = {
            key: RewardHistory(
                int(visits),
                int(count),
                float(mean),
                float(squares),
                math.inf if low is None else float(low),
                -math.inf if high is None else float(high),
            )
            for key, (visits, count, mean, squares, low, high) in data["rewards"].items()
        }
        self.passes = {
            key: PassHistory(int(visits), int(count), float(passed))
            for key, (visits, count, passed) in data["passes"].items()
        }
        coef = data["entropy_coef"]
        self.entropy_coef = None if coef is None else float(coef)
        self.updates = int(data["updates"])


def _finite(low: float, high: float) -> tuple[float | None, float | None]:
    return (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
