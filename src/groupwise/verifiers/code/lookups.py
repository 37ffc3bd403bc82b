"""Finds programs that look their tests up: right for the tests' inputs, and for nothing else.

The definition is by behaviour. Constants of the program that equal test inputs are changed, where
something may be compared with them. A passed case that then fails depended on its own input
standing there. A program is a lookup where all passed cases do, or at least two do and the others
expect what the changed program answers to everything. It is not one where as many other constants
stand beside the inputs (a table of all months is a solution), nor is a recursion with base cases,
as long as one test is not a base case.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from groupwise.sandbox import Call, Job, Limits, Program, Sandbox, TrustedCallFailed
from groupwise.verifiers.code.rows import Task

MIN_LONG, MIN_LONG_TEXT = 12, 24
"""Characters of a test input, of a list or of a text, that no program compares with by chance."""
_LIMITS = Limits(time=1.0, total_time=2.0)
_WORD = re.compile(r"\w+")


class _Known(NamedTuple):
    """A case whose data are known: its test, and the ways to write its input and its output."""

    test: Call | Program
    writings: list[list[Any]]
    outputs: list[Any]


def is_lookup(sandbox: Sandbox, job: Job, task: Task, passed_all: bool) -> bool:
    """Whether the program of a job that passed some cases, or all, only looks up their inputs."""
    entry, known = _known_cases(task)
    words = set(_WORD.findall(job.source))
    near = [e for e in known if any(words.issuperset(_WORD.findall(repr(w))) for w in e.writings)]
    if not near:
        return False
    outputs = [part for each in known for part in each.outputs]
    arguments = (job.source, [each.writings for each in near], outputs)
    try:
        present, source, others = sandbox.evaluate(_SOURCE, "changed", arguments, limits=_LIMITS)
    except (TrustedCallFailed, ValueError):  # it cannot be read, or the tests are not data
        return False
    found = [each for each, there in zip(near, present) if there]
    if any(_is_long(each.test) for each in found):
        return True
    if not found or others >= len(found):
        return False
    if task.kind != "stdio":
        calls = [each.test for each in known]
        job = replace(job, kind="calls", entry=entry, setup="", tests=calls)
    job = replace(job, stop_early=False, limits=_LIMITS)
    passed = known if passed_all else _passed(sandbox, job, known)
    if not _expect_the_same([each for each in passed if each not in found]):
        return False
    job = replace(job, source=source)
    kept = _passed(sandbox, job, known)
    special = [each for each in passed if each in found and each not in kept]
    rest = [each for each in passed if each not in special]
    if others >= len(special) or not _expect_the_same(rest):
        return False
    if not rest and len(special) > 1:
        return True
    if rest and len(special) < (
        2 if isinstance(rest[0].test.expected, bool) else min(2, len(rest))
    ):
        return False
    asked = [near for each in special[:3] for near in _nearby(each.test)]
    asked += [_input(each.test) for each in rest[:1]]
    return len({_answer(sandbox, job, each) for each in asked}) == 1


def _expect_the_same(known: list[_Known]) -> bool:
    return len({repr(each.test.expected) for each in known}) <= 1


def _passed(sandbox: Sandbox, job: Job, known: list[_Known]) -> list[_Known]:
    cases = sandbox.grade(replace(job, tests=tuple(each.test for each in known))).cases
    return [each for each, outcome in zip(known, cases) if outcome == "passed"]


def _answer(sandbox: Sandbox, job: Job, given: Any) -> str:
    """What the program answers to an input, as text; all errors alike."""
    test = Program(given, "\0") if job.kind == "stdio" else Call(given, "\0")
    reason = sandbox.grade(replace(job, tests=(test,))).reason
    _, gave, answer = reason.partition(": gave ")
    return answer if gave else reason if ": printed " in reason else "error"


def _input(test: Call | Program) -> Any:
    return test.stdin if isinstance(test, Program) else test.arguments


def _is_long(test: Call | Program) -> bool:
    """Whether no program compares with the test's whole input by chance."""
    only = _input(test)
    if isinstance(only, tuple) and len(only) == 1:
        (only,) = only
    return len(repr(only)) >= (MIN_LONG_TEXT if isinstance(only, str) else MIN_LONG)


def _nearby(test: Call | Program) -> list[Any]:
    """The input of a test, and inputs like it."""
    if isinstance(test, Program):
        return [test.stdin, re.sub(r"\d+", lambda number: f"{number[0]}3", test.stdin)]
    return [test.arguments, *(_moved(test.arguments, step) for step in (-1, 1, 2, 5, 1000))]


def _moved(value: Any, step: int) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value + step
    if isinstance(value, str):
        return value + "xyz"[step % 3]
    is_list = isinstance(value, (list, tuple))
    return type(value)(_moved(each, step) for each in value) if is_list else value


def _known_cases(task: Task) -> tuple[str | None, list[_Known]]:
    """The function that is called, and the cases whose input and output are known as data."""
    entry, known = task.entry, list[_Known]()
    for test in task.tests:
        if isinstance(test, Program):
            outputs = [part for parts in _writings_of_text(test.expected) for part in parts]
            known.append(_Known(test, _writings_of_text(test.stdin), outputs))
            continue
        for name, call in [(entry, test)] if isinstance(test, Call) else _asserted(test):
            entry = entry or name
            if name in (entry, "candidate"):
                given = call.arguments
                writings: list[list[Any]] = [list(given), [given]] if given else []
                writings += [[str(given[0])], [repr(given[0])]] if len(given) == 1 else []
                known.append(_Known(call, writings, [call.expected, str(call.expected)]))
    return entry, known


def _writings_of_text(text: str) -> list[list[Any]]:
    """The ways in which a program may write its input as constants."""
    words = text.split()
    writings: list[list[Any]] = [[text.strip()], [text], text.strip().split("\n"), words, [words]]
    for convert in (int, float):
        with suppress(ValueError):
            numbers = [convert(word) for word in words[:20]]
            writings += [numbers, [numbers]]
    return writings if words else []


def _asserted(test: str) -> Iterator[tuple[str, Call]]:
    """Name and call of every assertion on one call of constants."""
    try:
        found = [each.test for each in ast.walk(ast.parse(test)) if isinstance(each, ast.Assert)]
    except (SyntaxError, ValueError):
        return
    for call in found:
        expected: ast.expr = ast.Constant(True)
        if isinstance(call, ast.UnaryOp) and isinstance(call.op, ast.Not):
            call, expected = call.operand, ast.Constant(False)
        elif isinstance(call, ast.Compare) and isinstance(call.ops[0], (ast.Eq, ast.Is)):
            sides = [call.left, call.comparators[0]]
            call, expected = sides if isinstance(sides[0], ast.Call) else sides[::-1]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            with suppress(ValueError, TypeError, SyntaxError):
                arguments = tuple(ast.literal_eval(each) for each in call.args)
                yield call.func.id, Call(arguments, ast.literal_eval(expected))


# In the sandbox, over a program that is read as text and never run there:


def changed(source: str, inputs: list[list[list[Any]]], outputs: list[Any]) -> list[Any]:
    """`[which inputs stand in the program, the program without them, how many others stand there]`.

    An input has several writings; in each, all of its parts have to stand there. Others are the
    constants beside the inputs that are not `outputs`.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [[False] * len(inputs), source, 0]
    places = [(group, node, _key(value), value) for group, node, value in _places(tree)]
    there = {key for _, _, key, _ in places}
    keys = [[[_key(part) for part in parts] for parts in writings] for writings in inputs]
    standing = [[w for w in writings if w and there.issuperset(w)] for writings in keys]
    used = {key for writings in standing for parts in writings for key in parts}
    groups = {group for group, _, key, _ in places if key in used}
    known = {*used, *map(_key, outputs)}
    others = {(g, repr(key)) for g, _, key, _ in places if g in groups and key not in known}

    swapped = {id(node): _other(value) for _, node, key, value in places if key in used}

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if id(node) in swapped:
                return ast.parse(repr(swapped[id(node)]), mode="eval").body
            return self.generic_visit(node)

    swapped_source = ast.unparse(ast.fix_missing_locations(Swap().visit(tree)))
    return [[bool(each) for each in standing], swapped_source, len(others)]


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
    if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        return value + 982_451_653
    if isinstance(value, (str, bool, type(None))):
        return f"{value}\0other"
    return value + b"\0" if isinstance(value, bytes) else (value, "\0other")


def _places(tree: ast.AST) -> Iterator[tuple[Any, ast.AST, Any]]:
    """Group, node and value of every constant that something may be compared with.

    In `==`, `in` and `is`, as keys, in `match`, in lists and the like. Operands of arithmetic do
    not count, nor what is compared with the result of arithmetic.
    """
    equality = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
    compared: set[str] = set()
    assigned = [each for each in ast.walk(tree) if isinstance(each, ast.Assign)]
    for node in ast.walk(tree):
        group: Any = id(node)
        nodes: list[Any] = []
        if isinstance(node, ast.Compare) and all(isinstance(op, equality) for op in node.ops):
            nodes = [node.left, *node.comparators]
            subjects = [each for each in nodes if not _constants([each])]
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
        compared |= {each.id for each in nodes if isinstance(each, ast.Name)}
        yield from ((group, *found) for found in _constants(nodes))
    for node in assigned:
        if any(isinstance(target, ast.Name) and target.id in compared for target in node.targets):
            yield from (("named", *found) for found in _constants([node.value]))


def _constants(nodes: list[Any]) -> list[tuple[Any, Any]]:
    """Each node that is a constant expression, with its value."""
    found = []
    for node in nodes:
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found.append((node, ast.literal_eval(node)))
    return found


_SENT = (changed, _key, _other, _places, _constants)
_SOURCE = "from __future__ import annotations\nimport ast\nfrom contextlib import suppress\n"
_SOURCE += "\n".join(inspect.getsource(each) for each in _SENT)
