"""Checks the house: no long file, no import circle; prints a table of the rooms.

    python tests/house.py [--table] [--source src]

Imports inside functions count, those for type checking do not. Exit status 1 for a violation.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LONGEST = 450
"""Lines that a file of the source may have."""


def files_of(source: Path) -> dict[str, Path]:
    """Every module under `source` by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of every absolute import that runs; the name is empty for a plain import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imports_of(ast.Module([other], []))
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", each.name) for each in node.names)
        else:
            yield from imports_of(node)


def graph_of(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which modules each module imports, itself left out."""
    graph = {}
    for module, path in files.items():
        found = imports_of(ast.parse(path.read_text(encoding="utf-8")))
        named = {f"{base}.{name}" if f"{base}.{name}" in files else base for base, name in found}
        graph[module] = {each for each in named if each in files and each != module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, by Tarjan's algorithm; largest first.

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})
    [['b', 'c']]
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return sorted(found, key=len, reverse=True)


def violations(files: Mapping[str, Path], longest: int = LONGEST) -> list[str]:
    """What breaks a rule, one line each."""
    lines = {module: len(path.read_text("utf-8").splitlines()) for module, path in files.items()}
    long = [
        f"{files[module]}: {count} lines; at most {longest}"
        for module, count in lines.items()
        if count > longest
    ]
    return long + [f"import circle: {', '.join(each)}" for each in circles(graph_of(files))]


def table(files: Mapping[str, Path]) -> list[str]:
    """Lines, files, longest file and public names by room."""
    rooms: dict[str, list[tuple[int, int]]] = {}
    for module, path in files.items():
        text = path.read_text("utf-8")
        public = sum(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not node.name.startswith("_")
            for node in ast.parse(text).body
        )
        room = ".".join(module.split(".")[1:2]) or "groupwise"
        rooms.setdefault(room, []).append((len(text.splitlines()), public))
    rows = [
        (room, sum(n for n, _ in seen), len(seen), max(n for n, _ in seen), sum(p for _, p in seen))
        for room, seen in sorted(rooms.items())
    ]
    total = ("all", *(sum(row[i] for row in rows) for i in (1, 2)), max(row[3] for row in rows))
    header = f"{'room':<14}{'lines':>8}{'files':>7}{'longest':>9}{'public':>8}"
    body = [f"{r:<14}{n:>8,}{f:>7}{m:>9}{p:>8}" for r, n, f, m, p in rows]
    return [header, *body, "{:<14}{:>8,}{:>7}{:>9}{:>8}".format(*total, sum(r[4] for r in rows))]


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="house", description=__doc__)
    parser.add_argument("--source", type=Path, default=Path("src"))
    parser.add_argument("--table", action="store_true", help="the rooms, beside the violations")
    chosen = parser.parse_args(given)
    files = files_of(chosen.source)
    if chosen.table:
        print("\n".join(table(files)))
    found = violations(files)
    print("\n".join(found) or f"{len(files)} files: none too long, no import circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
