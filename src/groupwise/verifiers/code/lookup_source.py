"""Runs in the sandbox: changes the constants of a program that equal its tests' inputs.

Trusted source over an untrusted program, read as text and never run here. Constants count where
something may be compared with them: in `==`, `in` and `is`, as keys, in `match`, in lists and the
like. Operands of arithmetic do not, nor what is compared with the result of arithmetic.
"""

from __future__ import annotations

import ast
from typing import Any

_CHANGE = 982_451_653
_EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
_NOTHING = object()


def changed(source: str, inputs: list[list[list[Any]]], outputs: list[Any]) -> list[Any]:
    """`[which inputs stand in the program, the program without them, how many others stand there]`.

    An input has several writings; in each, all of its parts have to stand there. Others are the
    constants beside the inputs that are not `outputs`.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [[False] * len(inputs), source, 0]
    places = _places(tree)
    there = {_key(value) for _, _, value in places}
    present = [
        any(bool(parts) and all(_key(part) in there for part in parts) for parts in writings)
        for writings in inputs
    ]
    used = {
        _key(part)
        for writings, found in zip(inputs, present)
        for parts in writings
        if found and all(_key(each) in there for each in parts)
        for part in parts
    }
    known = {*used, *map(_key, outputs)}
    groups = {group for group, _, value in places if _key(value) in used}
    others = {
        (group, repr(_key(value)))
        for group, _, value in places
        if group in groups and _key(value) not in known
    }
    swapped = {id(node): _other(value) for _, node, value in places if _key(value) in used}
    return [
        present,
        ast.unparse(ast.fix_missing_locations(_Swap(swapped).visit(tree))),
        len(others),
    ]


class _Swap(ast.NodeTransformer):
    """Puts other constants in the place of some."""

    def __init__(self, swapped: dict[int, Any]) -> None:
        self._swapped = swapped

    def visit(self, node: ast.AST) -> Any:
        if id(node) in self._swapped:
            return ast.parse(repr(self._swapped[id(node)]), mode="eval").body
        return super().generic_visit(node)


def _key(value: Any) -> Any:
    """What equal constants share, lists and tuples alike."""
    if isinstance(value, (list, tuple)):
        return ("items", *map(_key, value))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted(map(repr, map(_key, value))))
    if isinstance(value, dict):
        return ("dict", *sorted(repr((_key(key), _key(item))) for key, item in value.items()))
    return (type(value).__name__ if isinstance(value, (bool, str, bytes)) else "value", value)


def _other(value: Any) -> Any:
    """A constant of the same kind that no test uses."""
    if isinstance(value, (bool, type(None))):
        return "\0other"
    if isinstance(value, (int, float, complex)):
        return value + _CHANGE
    if isinstance(value, str):
        return f"{value}\0other"
    return value + b"\0" if isinstance(value, bytes) else (value, "\0other")


def _places(tree: ast.AST) -> list[tuple[str, ast.AST, Any]]:
    """Group, node and value of every constant that something may be compared with."""
    places: list[tuple[str, ast.AST, Any]] = []
    compared: set[str] = set()

    def add(group: str, *nodes: ast.AST | None) -> None:
        for node in nodes:
            value = _value(node)
            if node is not None and value is not _NOTHING:
                places.append((group, node, value))
            elif isinstance(node, ast.Name):
                compared.add(node.id)

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and all(isinstance(op, _EQUALITY) for op in node.ops):
            sides = [node.left, *node.comparators]
            subjects = [side for side in sides if _value(side) is _NOTHING]
            if any(isinstance(inner, ast.BinOp) for side in subjects for inner in ast.walk(side)):
                continue
            group = "".join(map(ast.dump, subjects))
            add(group, *sides)
            for op, side in zip(node.ops, node.comparators):
                if isinstance(op, (ast.In, ast.NotIn)):
                    add(group, *getattr(side, "elts", []))
        elif isinstance(node, ast.Dict):
            add(f"dict {node.lineno} {node.col_offset}", *node.keys)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            add(f"list {node.lineno} {node.col_offset}", *node.elts)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            add(f"key of {ast.dump(node.value)}", node.slice)
        elif isinstance(node, ast.MatchValue):
            add("match", node.value)
        elif isinstance(node, ast.MatchMapping):
            add("match", *node.keys)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in compared for target in node.targets
        ):
            add("named", node.value)
    return places


def _value(node: Any) -> Any:
    """The value of a constant expression."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NOTHING
