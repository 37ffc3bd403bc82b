"""Hooks of mkdocs: a page for every algorithm in the navigation, and formulas drawn as MathML.

A new preset gets its page and its place from docs/render.py alone; nothing lists them by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from formulas import render_page

INDEX = "generated/algorithms.md"


def on_config(config: Any) -> Any:
    """Replace the index by a section of the index and every page that was rendered."""
    pages = sorted((Path(config["docs_dir"]) / "generated" / "algorithms").glob("*.md"))
    section = [{"All of them": INDEX}]
    section += [{page.stem: f"generated/algorithms/{page.name}"} for page in pages]
    config["nav"] = [_placed(entry, section) for entry in config["nav"]]
    return config


def _placed(entry: dict[str, Any], section: list[dict[str, str]]) -> dict[str, Any]:
    ((title, target),) = entry.items()
    if isinstance(target, list):
        return {title: [_placed(each, section) for each in target]}
    return {title: section if target == INDEX else target}


def on_page_markdown(markdown: str, **_: Any) -> str:
    return render_page(markdown)
