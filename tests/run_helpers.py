"""Callbacks that several tests of whole runs use."""

from __future__ import annotations

from typing import Any

from groupwise.training.callbacks import Callback
from groupwise.training.session import Session


class Keep(Callback):
    """Keeps the session and the notes of a run."""

    session: Session

    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_ready(self, session: Session) -> None:
        self.session = session

    def on_warning(self, message: str) -> None:
        self.notes.append(message)


class StopAfter(Keep):
    """Raises in the record of a step, as a killed process would end there."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_step(self, line: Any) -> None:
        if line["step"] == self.step:
            raise KeyboardInterrupt
