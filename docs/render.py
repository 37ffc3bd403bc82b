"""Write the pages that are made from the code: recipe fields, algorithms.

Run by `make docs`. What is written lands in docs/generated/, which is not committed.
"""

from __future__ import annotations

from pathlib import Path

import algorithm_pages

from groupwise.recipe import field_table

HERE = Path(__file__).parent
TARGET = HERE / "generated"


def recipe_page() -> str:
    lines = [
        "# Recipes",
        "",
        (HERE / "recipe_intro.md.txt").read_text(encoding="utf-8").strip(),
        "",
        "## Every field",
        "",
        "| field | type | default | what it is |",
        "|---|---|---|---|",
    ]
    for name, kind, default, words in field_table():
        kind = kind.replace("|", "\\|")
        lines.append(f"| `{name}` | `{kind}` | `{default}` | {words} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, page in (
        ("recipe", recipe_page()),
        ("algorithms", algorithm_pages.index()),
        ("parts", algorithm_pages.parts_index()),
    ):
        (TARGET / f"{name}.md").write_text(page, encoding="utf-8")
    algorithm_pages.write(TARGET / "algorithms")
    algorithm_pages.write_parts(TARGET / "parts")


if __name__ == "__main__":
    main()
