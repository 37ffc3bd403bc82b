"""One self-contained HTML file of one or several runs: no server, no network."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from groupwise.dashboard.data import GROUPS, RunView, pair
from groupwise.records import Run, open_run
from groupwise.records.files import check_suffix, write_for_user

PAIRED = 3
"""Each run in a file is compared step by step with at most so many of those before it."""

_PARTS = {
    "/*UPLOT_CSS*/": "uPlot.min.css",
    "/*PAGE_CSS*/": "page.css",
    "/*UPLOT_JS*/": "uPlot.iife.min.js",
    "/*PAGE_JS*/": "page.js",
    "/*READER_JS*/": "reader.js",
    "/*CHARTS_JS*/": "charts.js",
}


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The page with its data, styles and scripts inside."""
    html = _asset("page.html")
    for mark, name in _PARTS.items():
        html = html.replace(mark, _asset(name))
    return html.replace("/*DATA*/", safe_json(list(runs)))


def safe_json(value: Any) -> str:
    """JSON that cannot end a script element or open a comment, whatever texts it holds.

    NaN and infinities become null.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    for mark, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(mark, escaped)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def write_report(
    folders: Sequence[str | Path], output: str | Path, *, groups: int = GROUPS
) -> Path:
    """Write the page of these runs; a pipeline's folder stands for its stages.

    `groups` bounds the groups of each run in the page. Raises RecipeError for a folder without a
    record, and for an output that exists and is no HTML file.
    """
    output = Path(output)
    check_suffix(output, "output", ".html")
    runs = [run for folder in folders for run in runs_of(folder)]
    data = [RunView(run).whole(groups) for run in runs]
    for at, each in enumerate(data):
        each["pairs"] = {n: pair(runs[at], runs[n]) for n in range(min(at, PAIRED))}
    write_for_user(output, page(short_names(data)), "output")
    return output


def short_names(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs' names without the folders that all of them share."""
    paths = [Path(each["name"]).absolute() for each in data]
    shared = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()
    for each, path in zip(data, paths, strict=True):
        each["name"] = str(path.relative_to(shared))
    return data


def runs_of(folder: str | Path) -> list[Run]:
    """The run of a folder, or the stages of a pipeline that took steps."""
    run = open_run(folder)
    stages = list(run.stages.values())
    return [stage for stage in stages if stage.steps] or stages or [run]


def _asset(name: str) -> str:
    return (files("groupwise.dashboard") / "assets" / name).read_text(encoding="utf-8")
