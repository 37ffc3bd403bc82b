"""Finds programs that look their tests up: the tests' inputs and outputs stand in them.

A program is a lookup where the output of every case that it passes is one of its constants, and so
is the input, where something may be compared with it; the inputs of cases that share one output may
be missing. It is none where as many other constants stand beside the inputs: a table of all months
is a solution. An input too long to be compared with by chance is enough by itself.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from groupwise.sandbox import Call, Limits, Program, Sandbox, TrustedCallFailed
from groupwise.verifiers.code import literals
from groupwise.verifiers.code.literals import key_of
from groupwise.verifiers.code.rows import Task

MIN_LONG, MIN_LONG_TEXT = 12, 24
"""Characters of a test input, of a list or of a text, that no program compares with by chance."""
_LIMITS = Limits(time=1.0, total_time=2.0)
_GUEST = inspect.getsource(literals)
_ALWAYS = {key_of(True), key_of(False), key_of(None)}


class _Known(NamedTuple):
    """A case whose data are known: the ways to write its input and its output, as keys."""

    inputs: list[list[str]]
    outputs: list[str]
    is_long: bool


def is_lookup(sandbox: Sandbox, source: str, task: Task, outcomes: Sequence[str]) -> bool:
    """Whether a program only looks up the cases that it passed; `outcomes` are those of all."""
    known = [case for test, outcome in zip(task.tests, outcomes)
             if outcome == "passed" for case in _cases(test, task.entry)]  # fmt: skip
    try:
        places, constants = sandbox.evaluate(_GUEST, "literals", (source,), limits=_LIMITS)
    except (TrustedCallFailed, ValueError):  # it cannot be read
        return False
    compared = {key for _, key in places}
    there = [any(writing and compared.issuperset(writing) for writing in case.inputs)
             for case in known]  # fmt: skip
    if any(case.is_long for case, standing in zip(known, there) if standing):
        return True
    written = {*constants, *_ALWAYS}
    if not any(there) or any(written.isdisjoint(case.outputs) for case in known):
        return False
    if len({case.outputs[0] for case, standing in zip(known, there) if not standing}) > 1:
        return False
    own = {key for case in known for writing in case.inputs for key in writing}
    own |= {key for case in known for key in case.outputs}
    groups = {group for group, key in places if key in own}
    others = {(group, key) for group, key in places if group in groups and key not in own}
    return len(others) < sum(there)


def _cases(test: Call | Program | str, entry: str | None) -> Iterator[_Known]:
    """The cases of one test whose input and output are data."""
    if isinstance(test, Program):
        outputs = [key for keys in _writings_of_text(test.expected) for key in keys]
        long = len(test.stdin.strip()) >= MIN_LONG_TEXT
        yield _Known(_writings_of_text(test.stdin), outputs, long)
        return
    for name, call in [(entry, test)] if isinstance(test, Call) else _asserted(test):
        if name in (entry or name, "candidate") and call.arguments:
            given = call.arguments
            writings: list[list[Any]] = [list(given), [given]]
            writings += [[str(given[0])], [repr(given[0])]] if len(given) == 1 else []
            only = given[0] if len(given) == 1 else given
            long = len(repr(only)) >= (MIN_LONG_TEXT if isinstance(only, str) else MIN_LONG)
            inputs = [list(map(key_of, writing)) for writing in writings]
            yield _Known(inputs, [key_of(call.expected), key_of(str(call.expected))], long)


def _writings_of_text(text: str) -> list[list[str]]:
    """The ways in which a program may write its input as constants."""
    words = text.split()
    writings: list[list[Any]] = [[text.strip()], [text], text.strip().split("\n"), words, [words]]
    for convert in (int, float):
        with suppress(ValueError):
            numbers = [convert(word) for word in words[:20]]
            writings += [numbers, [numbers]]
    return [list(map(key_of, writing)) for writing in writings] if words else []


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
