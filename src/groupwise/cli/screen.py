"""Consoles and log lines that show text as text: what a model, a record or a file holds cannot move
the cursor, hide or reorder anything."""

from __future__ import annotations

import logging
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from groupwise.texts import visible


def console(**options: Any) -> Console:
    """A console of `rich` without markup, all of whose text is shown as `visible_lines`."""
    made = Console(**{"highlight": False, "emoji": False, "markup": False, **options})
    made.push_render_hook(_AllVisible())
    return made


def visible_lines(text: str) -> str:
    """`visible` of each line; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(each if each in "\n\t" else visible(each) for each in text)


class _AllVisible(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(each) for each in renderables]


class _Visible:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in console.render(self.inner, options):
            is_control = each.control is not None
            yield each if is_control else Segment(visible_lines(each.text), each.style)


class VisibleFormatter(logging.Formatter):
    """Log lines as `visible_lines`."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))
