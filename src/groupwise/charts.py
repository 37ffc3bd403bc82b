"""Line charts as one SVG text: panels side by side, lines with intervals, no drawing library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#7b3294", "#8c564b", "#666666")
WIDTH, HEIGHT = 340, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 40, 44


@dataclass(frozen=True, slots=True)
class Line:
    """Points from left to right; `low` and `high` are the ends of each one's interval."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `log` spaces x by its logarithm, where every x is above 0."""

    title: str
    x_title: str
    lines: Sequence[Line]
    log: bool = False


def svg(panels: Sequence[Panel]) -> str:
    """The panels in a row, with one legend, as a whole SVG file.

    Labels keep their colours over all panels.
    """
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    width, height = WIDTH * len(panels), HEIGHT + 16 * len(labels) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, panel in enumerate(panels):
        parts += [f'<g transform="translate({WIDTH * place},0)">', *_panel(panel, colours), "</g>"]
    for place, (label, colour) in enumerate(colours.items()):
        y = HEIGHT + 16 * place + 8
        parts.append(f'<rect x="{_LEFT}" y="{y - 4}" width="18" height="3" fill="{colour}"/>')
        parts.append(_text(_LEFT + 24, y, label))
    return "\n".join([*parts, "</svg>\n"])


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers from `low` to `high`.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _panel(panel: Panel, colours: dict[str, str]) -> list[str]:
    xs = [x for line in panel.lines for x in line.x]
    ys = [y for line in panel.lines for y in (*line.y, *line.low, *line.high)]
    left, right = _span([math.log2(x) for x in xs] if panel.log else xs)
    bottom, top = _span(ys)

    def at(x: float, y: float) -> tuple[float, float]:
        x = math.log2(x) if panel.log else x
        return (
            round(_LEFT + (x - left) / (right - left) * (WIDTH - _LEFT - _RIGHT), 1),
            round(HEIGHT - _BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - _TOP - _BOTTOM), 1),
        )

    parts = [_text(_LEFT, 22, panel.title, weight="bold")]
    for value in ticks(bottom, top):
        _, y = at(xs[0], value)
        parts += [
            f'<path d="M{_LEFT} {y}H{WIDTH - _RIGHT}" stroke="#ddd"/>',
            _text(_LEFT - 6, y + 4, f"{value:g}", "end"),
        ]
    for value in sorted(set(xs)) if panel.log else ticks(left, right):
        x, _ = at(value, bottom)
        parts.append(_text(x, HEIGHT - _BOTTOM + 16, f"{value:.4g}", "middle"))
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 12, panel.x_title, "middle"))
    for line in panel.lines:
        colour = colours[line.label]
        points = [at(x, y) for x, y in zip(line.x, line.y, strict=True)]
        joined = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>'
        )
        parts += [f'<circle cx="{x}" cy="{y}" r="2.4" fill="{colour}"/>' for x, y in points]
        for x, low, high in zip(line.x, line.low, line.high):
            (across, down), (_, up) = at(x, low), at(x, high)
            parts.append(
                f'<path d="M{across} {down}V{up}" stroke="{colour}" stroke-opacity="0.5"/>'
            )
    return parts


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: that of the values and a little room."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
    )
