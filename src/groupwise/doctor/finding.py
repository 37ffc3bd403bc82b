"""A finding: its name, its weight, the evidence, and the change that it proposes."""

from __future__ import annotations

import json
import shlex
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
        """The change as flags of `groupwise train`, quoted for a shell."""
        return " ".join(f"--{name} {shlex.quote(_toml(v))}" for name, v in self.change.items())


def _toml(value: Any) -> str:
    """A value as TOML on one line, a text as it is (an option's value may be bare)."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_inner(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inner, value))}]"
    return json.dumps(value)


def _inner(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _toml(value)
