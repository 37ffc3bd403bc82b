"""Two runs' metrics over the steps, side by side, as one SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.charts import Line, Panel, svg
from groupwise.records.compare import Diff
from groupwise.records.reader import Run

_SHOWN = (
    ("reward", "reward"), ("eval/heldout", "held-out accuracy"), ("eval/accuracy", "accuracy"),
    ("completions/tokens_mean", "tokens a completion"), ("entropy", "entropy, nats a token"),
    ("kl", "KL, nats a completion"), ("grad_norm", "gradient norm"),
)  # fmt: skip
_PANELS = 4


def plot(a: Run, b: Run, found: Diff) -> str:
    """The first four metrics that both runs have; a dashed line where they part."""
    names = [str(run.folder) for run in (a, b)]
    tables = [(run.metrics().to_pylist(), run.evaluations().to_pylist()) for run in (a, b)]
    panels: list[Panel] = []
    for metric, title in _SHOWN:
        at = "version" if metric.startswith("eval/") else "step"
        series = [_points(each[at == "version"], at, metric) for each in tables]
        if not all(x for x, _ in series) or len(panels) == _PANELS:
            continue
        lines = [Line(name, x, y) for name, (x, y) in zip(names, series, strict=True)]
        if found.first_step is not None:
            values = [value for _, y in series for value in y]
            ends = [min(values), max(values)]
            lines.append(Line("where they part", [found.first_step] * 2, ends, dashed=True))
        panels.append(Panel(title, "policy version" if at == "version" else "step", lines))
    return svg(panels)


def _points(
    lines: Sequence[Mapping[str, Any]], at: str, metric: str
) -> tuple[list[float], list[float]]:
    found = [(line[at], line[metric]) for line in lines if line.get(metric) is not None]
    return [float(x) for x, _ in found], [float(y) for _, y in found]
