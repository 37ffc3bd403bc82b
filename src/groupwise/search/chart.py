"""A search as a chart: accuracy against samples, tokens, the KL divergence or the budget."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.charts import Line, Panel, svg
from groupwise.search.result import SearchPoint, SearchResult
from groupwise.texts import counted

AXES = {
    "samples": "samples a prompt",
    "tokens": "tokens a prompt",
    "budget": "thinking budget, tokens",
    "kl": "KL of the best of n, nats at most",
}


def search_chart(result: SearchResult) -> str:
    """The SVG file: accuracy with its intervals, and what a perfect choice would reach, over every
    cost that was measured."""
    scored = "" if result.scorer is None else f" by {result.scorer}"
    name = f"{result.method}{scored}, {counted(result.prompts, 'prompt')}"
    panels = [_panel(name, field, result.points) for field in AXES if _varies(field, result.points)]
    return svg(panels or [_panel(name, "tokens", result.points)])


def _varies(field: str, points: Sequence[SearchPoint]) -> bool:
    values = {getattr(each, field) for each in points}
    return len(values) > 1 and None not in values


def _panel(name: str, field: str, points: Sequence[SearchPoint]) -> Panel:
    x = [float(getattr(each, field)) for each in points]
    low, high = zip(*(each.accuracy_interval for each in points))
    lines = [Line("accuracy, 95 % interval", x, [each.accuracy for each in points], low, high)]
    passed = [each.pass_at_k for each in points if each.pass_at_k is not None]
    if len(passed) == len(points):
        lines.append(Line("pass@samples: a perfect choice", x, passed, dashed=True))
    return Panel(name, AXES[field], lines, log=field != "kl")
