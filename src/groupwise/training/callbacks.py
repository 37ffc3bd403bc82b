"""What may watch a run, and the clock of its steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupwise.records import Value
from groupwise.training.preparing import Prepared
from groupwise.training.session import Session


class Callback:
    """What may watch a run. Every method does nothing unless overridden; none may change it."""

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        """A stage of a pipeline starts or resumes."""

    def on_start(self, prepared: Prepared, folder: Path) -> None:
        """Data is checked, weights are not loaded yet."""

    def on_ready(self, session: Session) -> None:
        """Everything is loaded; the first evaluation follows."""

    def on_evaluation(self, version: int, values: Mapping[str, Value]) -> None:
        """An evaluation of one version has ended."""

    def on_step(self, line: Mapping[str, Value]) -> None:
        """A step's line of metrics has been written."""

    def on_warning(self, message: str) -> None:
        """Something a person should know; the run continues."""

    def on_end(self, summary: Mapping[str, Any], folder: Path) -> None:
        """The summary has been written."""


class Clock:
    """Seconds by part of one step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[part] = self.seconds.get(part, 0.0) + spent

    def metrics(self) -> dict[str, float]:
        return {f"seconds/{part}": spent for part, spent in self.seconds.items()}
