"""Write the pages that are made from the code: fields of recipes and stages, algorithms.

Run by `make docs`. What is written lands in docs/generated/, which is not committed.
"""

from __future__ import annotations

from pathlib import Path

import algorithm_pages

from groupwise.recipe import field_table
from groupwise.stages import stage_fields

HERE = Path(__file__).parent
TARGET = HERE / "generated"


def recipe_page() -> str:
    intro = (HERE / "recipe_intro.md.txt").read_text(encoding="utf-8").strip()
    return f"# Recipes\n\n{intro}\n\n## Every field\n\n{_table(field_table())}"


def stages_page() -> str:
    intro = (
        "What stages have besides the fields of [a recipe of one run](recipe.md), which an `rl` "
        "stage has all; [how a pipeline is written](../stages.md)."
    )
    return f"# Fields of stages\n\n{intro}\n\n{_table(stage_fields())}"


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = ["| field | type | default | what it is |", "|---|---|---|---|"]
    for name, kind, default, words in rows:
        kind = kind.replace("|", "\\|")
        lines.append(f"| `{name}` | `{kind}` | `{default}` | {words} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, page in (
        ("recipe", recipe_page()),
        ("stages", stages_page()),
        ("algorithms", algorithm_pages.index()),
        ("parts", algorithm_pages.parts_index()),
    ):
        (TARGET / f"{name}.md").write_text(page, encoding="utf-8")
    algorithm_pages.write(TARGET / "algorithms")
    algorithm_pages.write_parts(TARGET / "parts")


if __name__ == "__main__":
    main()
