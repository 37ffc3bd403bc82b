"""Snippets of the documentation run, and print what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted(
    path
    for path in (Path(__file__).parents[1] / "docs").glob("*.md")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_snippets_of_the_page(path: Path) -> None:
    text = re.sub(r"^```.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    found = doctest.DocTestRunner().run(test)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_exercises_are_among_them() -> None:
    assert "exercises" in {path.stem for path in PAGES}
