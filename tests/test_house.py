"""The checker of the house: long files, import circles, what counts as an import."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import house


def source(folder: Path, files: dict[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return house.files_of(folder)


def test_examples() -> None:
    assert doctest.testmod(house).failed == 0


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import p.b", {"p.b"}),
        ("from p import b", {"p.b"}),
        ("from p.b import name", {"p.b"}),
        ("from p import name", {"p"}),
        ("def f():\n    from p.b import name", {"p.b"}),
        ("class C:\n    async def f(self):\n        import p.b as b", {"p.b"}),
        ("try:\n    import p.b\nexcept ImportError:\n    pass", {"p.b"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.b", set()),
        ("import typing\nif typing.TYPE_CHECKING:\n    import p.b\nelse:\n    import p", {"p"}),
        ("import os, torch", set()),
    ],
)
def test_what_counts_as_an_import(tmp_path: Path, text: str, imports: set[str]) -> None:
    files = source(tmp_path, {"p/__init__.py": "", "p/b.py": "", "p/a.py": text})
    assert house.graph_of(files)["p.a"] == imports


def test_a_circle_and_a_long_file_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "p/__init__.py": "",
        "p/a.py": "from p import b\n",
        "p/b.py": "def f():\n    from p.c import x\n",
        "p/c.py": "import p.a\nx = 1\n",
        "p/long.py": "x = 1\n" * 451,
        "p/fine.py": "x = 1\n" * 450,
    }
    source(tmp_path, files)
    assert house.main(["--source", str(tmp_path), "--table"]) == 1
    told = capsys.readouterr().out
    assert "import circle: p.a, p.b, p.c" in told
    assert "long.py: 451 lines; at most 450" in told
    assert "fine.py" not in told
    assert "all                906      6      451       1" in told


def test_a_house_in_order_exits_with_0(tmp_path: Path) -> None:
    source(tmp_path, {"p/__init__.py": "", "p/a.py": "import p\n"})
    assert house.main(["--source", str(tmp_path)]) == 0


def test_no_file_of_the_source_is_too_long() -> None:
    files = house.files_of(Path(__file__).parents[1] / "src")
    assert [line for line in house.violations(files) if "lines; at most" in line] == []
