"""Where a fit is, and what it ended with."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.records import Value


@dataclass(slots=True)
class Progress:
    """Where a fit is: everything of its checkpoint besides weights and moments."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    stalled: int = 0
    stopped: bool = False


@dataclass(slots=True)
class Fitted:
    """What a fit ended with: metrics before and after it, and the step of the weights.

    Both compare the same rows: `loss` is of the first update's examples, `fit/eval_...` of the
    held-out ones.
    """

    first: dict[str, Value]
    last: dict[str, Value]
    step: int
    data_hash: str
