"""The doctor beside a run: each finding is said once, when it first shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.records import Value
from groupwise.training.callbacks import Callback
from groupwise.training.preparing import Prepared

EVERY = 10
"""Steps between two looks."""
SHARE = 0.03
"""Looks are left out while they have taken more than this share of the run's time."""

_UNREADABLE = (GroupwiseError, OSError, LookupError, ValueError, TypeError, ArithmeticError)


class LiveDoctor(Callback):
    """Reads the record while the run writes it, so it cannot change the run."""

    def __init__(self, say: Callable[[str], Any]) -> None:
        self.say = say
        self.folder: Path | None = None
        self.known: set[str] = set()
        self.started, self.spent = time.perf_counter(), 0.0

    def on_start(self, prepared: Prepared, folder: Path) -> None:
        self.folder, self.known = folder, set()

    def on_step(self, line: Mapping[str, Value]) -> None:
        busy = self.spent > SHARE * (time.perf_counter() - self.started)
        if (int(line["step"] or 0) + 1) % EVERY == 0 and "fit/examples" not in line and not busy:
            self._look()

    def on_end(self, summary: Mapping[str, Any], folder: Path) -> None:
        if self.folder == folder and summary.get("steps"):
            self._look()

    def _look(self) -> None:
        from groupwise.doctor import diagnose

        if self.folder is None:
            return
        begun = time.perf_counter()
        try:
            found = diagnose(self.folder).findings
        except _UNREADABLE as error:  # advice must never end a run
            self.say(f"note: the doctor could not read the record: {error!r}")
            self.folder = None
            return
        finally:
            self.spent += time.perf_counter() - begun
        for finding in found:
            if finding.level != "info" and finding.kind not in self.known:
                self.known.add(finding.kind)
                self.say(
                    f"doctor: {finding.kind}: {finding.message}; groupwise doctor {self.folder}"
                )
