"""Puts a page for every algorithm under its index in the navigation (a hook of mkdocs).

A new preset gets its page and its place from docs/render.py alone; nothing lists them by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

INDEX = "generated/algorithms.md"


def on_config(config: Any) -> Any:
    """Replace the index by a section of the index and every page that was rendered."""
    pages = sorted((Path(config["docs_dir"]) / "generated" / "algorithms").glob("*.md"))
    section = [{"All of them": INDEX}]
    section += [{page.stem: f"generated/algorithms/{page.name}"} for page in pages]
    config["nav"] = [
        {title: section} if target == INDEX else {title: target}
        for entry in config["nav"]
        for title, target in entry.items()
    ]
    return config
