"""A run's record as the rules read it: series of metrics, evaluations, and a sample of rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from groupwise.doctor.finding import Sample
from groupwise.records import Run
from groupwise.records.compare import flatten

Row = Mapping[str, Any]
ROWS_A_STEP = 256
STEPS_AT_EACH_END = 4
CLEAR = 3.0
"""Standard errors that a trend must have."""
FELL = 0.25
"""A fall in accuracy that is a fault."""
FELL_FOR_GOOD = 0.15
"""The same below the very first step, over all later ones."""
FLAT = 0.02
"""A gain in accuracy below it is none."""
NARROW = 0.05
"""A clip range below it is meant for the ratio of a whole sequence."""
OFTEN, MORE = 0.2, 0.1
"""A share of completions that is frequent, and a rise of it that is one."""

_COLUMNS = (
    "step", "kind", "prompt_id", "visit", "group_index", "prompt", "answer", "columns",
    "completion_ids", "text", "finish_reason", "reward", "rewards", "outcome", "messages",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trend:
    """The first and the last third of a series: their means, and how far apart they are.

    `z` is the difference over its standard error, from the scatter of the steps within each third;
    0 where there are fewer than six steps.
    """

    early: float
    late: float
    z: float

    @property
    def change(self) -> float:
        return self.late - self.early


class Facts:
    """Everything that rules ask of a run, read once and only when asked for.

    With `steps`, as the record was after that many steps.
    """

    def __init__(self, run: Run, steps: int | None = None) -> None:
        self.run, self.steps = run, steps

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe's fields by dotted name; lists stay lists."""
        return flatten(self.run.recipe)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The steps' metrics, in order."""
        lines: list[dict[str, Any]] = self.run.metrics().to_pylist()
        return lines[: self.steps]

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.run.evaluations().to_pylist()
        return [e for e in found if self.steps is None or e["version"] <= self.steps]

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        return self.run.events()

    @property
    def num_steps(self) -> int:
        return len(set(self._steps))

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last step; zeros before any."""
        if not self.lines:
            return (0, 0)
        return (int(self.lines[0]["step"]), int(self.lines[-1]["step"]))

    def series(self, name: str) -> list[float]:
        """The metric's values, steps without one left out."""
        return [float(line[name]) for line in self.lines if line.get(name) is not None]

    @property
    def planned(self) -> dict[str, Any] | None:
        """The newest plan that the run wrote down; None where one of its figures is no number."""
        figures = ("resident", "peak", "memory", "step_seconds")
        plans = (each for each in reversed(self.events) if each["kind"] == "planned")
        newest: dict[str, Any] = next(plans, {})
        known = all(isinstance(newest.get(name), int | float) for name in figures)
        return newest if known else None

    def recent(self, name: str, steps: int = 5) -> float | None:
        """The mean over the last steps that have the metric."""
        values = self.series(name)[-steps:]
        return mean(values) if values else None

    def trend(self, name: str) -> Trend | None:
        """How a metric moved; None with fewer than two values."""
        return trend_of(self.series(name))

    def names(self, prefix: str) -> list[str]:
        """The metrics that begin so and have a value in some step."""
        names = dict.fromkeys(n for line in self.lines for n, v in line.items() if v is not None)
        return [name for name in names if name.startswith(prefix)]

    @cached_property
    def accuracy(self) -> list[float]:
        """The share of completions that were right, a step each: by outcome, partial ones half;
        steps with values that have no verdict are left out."""
        found = []
        for line in self.lines:
            scored = (line.get("completions/count") or 0) - (line.get("unscored") or 0)
            if scored > 0 and not line.get("outcomes/no_verdict"):
                right = line.get("outcomes/correct") or 0
                found.append((right + 0.5 * (line.get("outcomes/partial") or 0)) / scored)
        return found

    @cached_property
    def started(self) -> Trend | None:
        """Accuracy of the first two steps, nearly the starting policy's, against the last third."""
        return self._since(2, self.accuracy[-(len(self.accuracy) // 3) :])

    @cached_property
    def first(self) -> Trend | None:
        """Accuracy of the first step, the starting policy's, against all but the first two."""
        return self._since(1, self.accuracy[2:])

    def _since(self, steps: int, late: Sequence[float]) -> Trend | None:
        """Accuracy of the first steps against that of later ones; None with fewer than six steps.

        `z` counts completions as independent in the first steps, steps in the later ones.
        """
        count = sum(int(value) for value in self.series("completions/count")[:steps])
        values = self.accuracy
        if len(values) < 6 or not count:
            return None
        first, last = mean(values[:steps]), mean(late)
        error = math.sqrt((first * (1.0 - first) + 0.25 / count) / count + variance(late))
        return Trend(first, last, (last - first) / error)

    @cached_property
    def early_rows(self) -> list[Row]:
        """A sample of the first steps' training rollouts."""
        return self._rows(self._steps[:STEPS_AT_EACH_END])

    @cached_property
    def late_rows(self) -> list[Row]:
        """A sample of the last steps' training rollouts."""
        return self._rows(self._steps[-STEPS_AT_EACH_END:])

    @property
    def _steps(self) -> list[int]:
        return [int(line["step"]) for line in self.lines]

    def _rows(self, steps: Sequence[int]) -> list[Row]:
        found: list[Row] = []
        for step in steps:
            table = self.run.rollouts(step, columns=_COLUMNS)
            known = "kind" in table.column_names
            kinds = table["kind"].to_pylist() if known else [None] * table.num_rows
            wanted = (None, "training", "discarded")
            kept = [n for n, kind in enumerate(kinds) if kind in wanted]
            chosen = kept[:: max(1, len(kept) // ROWS_A_STEP)][:ROWS_A_STEP]
            found += table.take(np.array(chosen, int)).to_pylist()
        return found

    def share(self, rows: Sequence[Row], holds: Callable[[Row], bool]) -> float:
        """The share of rows of which something holds; 0 without rows."""
        return sum(map(holds, rows)) / len(rows) if rows else 0.0

    @property
    def verifiers(self) -> list[str]:
        """The names of the recipe's own verifiers; none where the environment's judge."""
        return [str(entry.get("name")) for entry in self.get("environment.verifiers") or []]

    def get(self, field: str, default: Any = None) -> Any:
        return self.recipe.get(field, default)


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Of the mean: the sample variance over the number of values; 0 with fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1) / len(values)


def trend_of(values: Sequence[float]) -> Trend | None:
    """The first third against the last; None with fewer than two values."""
    if len(values) < 2:
        return None
    third = max(1, len(values) // 3)
    early, late = values[:third], values[-third:]
    error = math.sqrt(variance(early) + variance(late))
    change = mean(late) - mean(early)
    if len(values) < 6:
        z = 0.0
    elif error > 0:
        z = change / error
    else:
        z = math.copysign(math.inf, change) if change else 0.0
    return Trend(mean(early), mean(late), z)


def fell_at_once(facts: Facts) -> Trend | None:
    """The fall of accuracy below that of the first two steps, or of the first and for good (where
    the very first update destroys the policy); None where it did not fall clearly."""
    for start, least in ((facts.started, FELL), (facts.first, FELL_FOR_GOOD)):
        if start is not None and start.change < -least and start.z < -CLEAR:
            return start
    return None


def is_right(row: Row) -> bool:
    return bool(row["outcome"] == "correct")


def samples_of(rows: Sequence[Row], number: int = 5) -> tuple[Sample, ...]:
    return tuple(
        Sample(int(row["step"]), str(row["prompt_id"]), int(row["group_index"]))
        for row in rows[:number]
    )


def gained(facts: Facts) -> float:
    """The larger gain in accuracy: over thirds, of evaluations where there are three or more, or
    since the first steps (a fast run is done in a third); without verdicts of the reward."""
    trends = [trend_of(facts.accuracy) or facts.trend("reward"), facts.started]
    for name in ("eval/accuracy", "eval/heldout"):
        values = [e[name] for e in facts.evaluations if e.get(name) is not None]
        if len(values) >= 3:
            trends[0] = trend_of(values)
    return max((trend.change for trend in trends if trend is not None), default=0.0)


def slower(facts: Facts) -> float:
    """A third of the learning rate."""
    return float(f"{float(facts.get('training.learning_rate', 1e-6)) / 3:.2g}")


def more_kl(facts: Facts, least: float = 0.04) -> dict[str, float]:
    """A KL term where there is none, else one of four times its size."""
    now = float(facts.get("algorithm.kl.coef") or 0.0)
    return {"algorithm.kl_coef": max(least, float(f"{4 * now:.2g}"))}


def clip_range(facts: Facts) -> float:
    """The narrower side of the clip; 1 without a clip."""
    bounds = [facts.get(f"algorithm.surrogate.{side}") for side in ("low", "high")]
    return min((float(bound) for bound in bounds if bound), default=1.0)
