"""The constants of a program that is read and never run; sent whole into the sandbox.

There it imports nothing but the standard library.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)


def literals(source: str) -> list[Any]:
    """`[group, key]` of every constant that something may be compared with; the keys of all."""
    tree = ast.parse(source)
    stated = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    nodes = [e for e in ast.walk(tree) if isinstance(e, ast.expr) and id(e) not in stated]
    return [[list(each) for each in _compared(tree)], _keys(nodes)]


def key_of(value: Any) -> str:
    """A text that equal constants share, lists and tuples alike."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(key_of, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(key_of, value)))}}}"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(key_of(each) for each in value.items()))}}}"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def _compared(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """In `==`, `in` and `is`, as keys, in `match`, in lists and the like.

    Operands of arithmetic do not count, nor what is compared with the result of arithmetic.
    """
    named: set[str] = set()
    for node in ast.walk(tree):
        group = str(id(node))
        nodes: list[Any] = []
        if isinstance(node, ast.Compare) and all(isinstance(op, _EQUALITY) for op in node.ops):
            nodes = [node.left, *node.comparators]
            subjects = [each for each in nodes if not _keys([each])]
            if any(isinstance(each, ast.BinOp) for side in subjects for each in ast.walk(side)):
                continue
            group = "".join(map(ast.dump, subjects))
            for op, side in zip(node.ops, node.comparators):
                nodes += getattr(side, "elts", []) if isinstance(op, (ast.In, ast.NotIn)) else []
        elif isinstance(node, (ast.Dict, ast.MatchMapping)):
            nodes = node.keys
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            nodes = node.elts
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            group, nodes = ast.dump(node.value), [node.slice]
        elif isinstance(node, ast.MatchValue):
            group, nodes = "match", [node.value]
        named |= {each.id for each in nodes if isinstance(each, ast.Name)}
        yield from ((group, key) for key in _keys(nodes))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and named & {getattr(e, "id", "") for e in node.targets}:
            yield from (("named", key) for key in _keys([node.value]))


def _keys(nodes: list[Any]) -> list[str]:
    """The keys of those nodes that are constant expressions."""
    found = []
    for node in nodes:
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found.append(key_of(ast.literal_eval(node)))
    return found
