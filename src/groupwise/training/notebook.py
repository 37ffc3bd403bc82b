"""What a notebook shows while its cell trains: progress, numbers and curves, drawn anew in place.

Used by `groupwise.train` wherever a Jupyter kernel runs it. IPython is looked for, never imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from groupwise.charts import Line, Panel, svg
from groupwise.records import Value
from groupwise.training.callbacks import Callback
from groupwise.training.session import Session

EVERY = 0.5
"""Seconds between two drawings."""
POINTS = 200
_CURVES = ("reward", "groups/no_signal", "entropy", "kl/token", "fit/eval_loss")
_EVALUATED = ("eval/heldout", "eval/accuracy")


def notebook_callbacks() -> list[Callback]:
    """The display of this process's notebook; none outside a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return [NotebookDisplay(ipython)] if getattr(shell, "kernel", None) is not None else []


class NotebookDisplay(Callback):
    """One output that follows a run, each stage of a pipeline in its own."""

    def __init__(self, ipython: Any) -> None:
        self.ipython = ipython
        self._begin("")

    def _begin(self, title: str) -> None:
        self.title, self.notes, self.steps = title, list[str](), 0
        self.lines: list[Mapping[str, Value]] = []
        self.evaluations: dict[int, Mapping[str, Value]] = {}
        self.handle: Any = None
        self.drawn = 0.0

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self._begin(f"stage {name} ({kind})")

    def on_ready(self, session: Session) -> None:
        self.steps = session.recipe.training.steps
        self._draw()

    def on_evaluation(self, version: int, values: Mapping[str, Value]) -> None:
        self.evaluations[version] = values

    def on_step(self, line: Mapping[str, Value]) -> None:
        self.lines.append(line)
        if time.monotonic() - self.drawn > EVERY:
            self._draw()

    def on_warning(self, message: str) -> None:
        self.notes.append(message)

    def on_end(self, summary: Mapping[str, Any], folder: Path) -> None:
        if self.lines or self.notes:
            self._draw()

    def html(self) -> str:
        """Everything as of now."""
        done = int(self.lines[-1]["step"] or 0) + 1 if self.lines else 0
        parts = [f"<b>{escape(self.title)}</b> step {done} of {self.steps or '?'} "]
        parts.append(f'<progress max="{self.steps or done}" value="{done}"></progress>')
        if self.lines:
            names = ("reward", "groups/no_signal", "entropy", "grad_norm", "seconds/step")
            last = [(name, self.lines[-1].get(name)) for name in names]
            parts.append(", ".join(f"{name} {v:.3g}" for name, v in last if v is not None))
        panels = self._panels()
        body = [" ".join(parts), *map(escape, self.notes[-5:]), *([svg(panels)] if panels else [])]
        return "".join(f"<div>{part}</div>" for part in body)

    def _panels(self) -> list[Panel]:
        made = []
        for name in _EVALUATED:
            known = sorted((v, e) for v, e in self.evaluations.items() if e.get(name) is not None)
            if known:
                ends = ("_low", "", "_high")
                low, mean, high = ([float(e[name + end] or 0) for _, e in known] for end in ends)
                line = Line(name, [float(v) for v, _ in known], mean, low, high)
                made.append(Panel(name, "steps", [line]))
                break
        for name in _CURVES:
            points = [(line["step"], line.get(name)) for line in self.lines]
            kept = [(float(x or 0), float(y)) for x, y in points if y is not None]
            if kept:
                every = -(-len(kept) // POINTS)
                x, y = zip(*kept[::every], strict=True)
                made.append(Panel(name, "step", [Line(name, x, y)]))
        return made[:4]

    def _draw(self) -> None:
        shown = self.ipython.display.HTML(self.html())
        if self.handle is None:
            self.handle = self.ipython.display.display(shown, display_id=True)
        else:
            self.handle.update(shown)
        self.drawn = time.monotonic()
