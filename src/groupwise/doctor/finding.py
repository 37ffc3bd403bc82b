"""A finding: its name, its weight, the evidence, and the change that it proposes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["broken", "signal", "drift", "tuning", "info"]
LEVELS: tuple[Level, ...] = ("broken", "signal", "drift", "tuning", "info")
"""In the order in which they are acted on: advice of a level waits while one above it stands."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a rollout is in the record."""

    step: int
    prompt_id: str
    group_index: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One named finding.

    `evidence` are numbers by name; `steps` the first and last step that they are of. `confidence`
    is "sure", "likely" or "possible". `change` are fields of the recipe with new values, which
    `groupwise train` takes as flags; `advice` says it in words.

    >>> Finding("too_hard", "signal", "no group has signal", {"groups/no_signal": 1.0}, (0, 9),
    ...         "sure", "sample more", {"sampling.group_size": 16}).flags
    '--sampling.group_size 16'
    """

    kind: str
    level: Level
    message: str
    evidence: Mapping[str, Any]
    steps: tuple[int, int]
    confidence: Literal["sure", "likely", "possible"]
    advice: str
    change: Mapping[str, Any] = field(default_factory=dict[str, Any])
    samples: tuple[Sample, ...] = ()

    @property
    def flags(self) -> str:
        return " ".join(f"--{name} {value}" for name, value in self.change.items())
