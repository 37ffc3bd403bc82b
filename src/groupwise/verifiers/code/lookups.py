"""Finds programs that look their tests up: right for the tests' inputs, and for nothing else.

The definition is by behaviour. Constants of the program that equal test inputs are changed, where
something may be compared with them (`lookup_source.py`). A passed case that then fails depended on
its own input standing there. A program is a lookup where all passed cases do, or at least two do
and the others expect what the changed program answers to everything. It is not one where as many
other constants stand beside the inputs: a table of all months is a solution. Nor is a recursion
with base cases, as long as one test is not a base case.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.sandbox import Call, Job, Limits, Program, Sandbox, TrustedCallFailed
from groupwise.verifiers.code.rows import Task

MIN_LONG, MIN_LONG_TEXT = 12, 24
"""Characters of a test input, of a list or of a text, that no program compares with by chance."""

_SOURCE = Path(__file__).with_name("lookup_source.py").read_text(encoding="utf-8")
_LIMITS = Limits(time=1.0, total_time=2.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """One case: its test, the ways in which a program may write its input, what it expects."""

    test: Call | Program
    writings: list[list[Any]]
    expected: Any

    @property
    def outputs(self) -> list[Any]:
        """The ways in which a program may write the expected value."""
        if isinstance(self.test, Program):
            return [part for parts in _writings_of_text(self.expected) for part in parts]
        return [self.expected, str(self.expected)]


def is_lookup(sandbox: Sandbox, job: Job, task: Task, passed_all: bool) -> bool:
    """Whether the program of a job that passed some cases, or all, only looks up their inputs."""
    entry, known = _known_cases(task)
    words = set(re.findall(r"\w+", job.source))
    near = [each for each in known if any(_words(parts) <= words for parts in each.writings)]
    far = [each for each in known if each not in near]
    if not near or (passed_all and not _expect_the_same(far)):
        long = [each for each in near if _is_long(each.test)]
        return bool(long) and bool(_changed(sandbox, job, long)[0])
    found, source, others = _changed(sandbox, job, known)
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
    if not rest and len(special) == 1:
        return len({_answer(sandbox, job, each) for each in _nearby(special[0].test)}) == 1
    if not rest:
        return True
    default = rest[0].expected
    if len(special) < (2 if isinstance(default, bool) else min(2, len(rest))):
        return False
    asked = [_expecting(each, near, default) for each in special for near in _nearby(each.test)]
    return len(_passed(sandbox, job, asked)) == len(asked)


def _changed(sandbox: Sandbox, job: Job, known: list[_Known]) -> tuple[list[_Known], str, int]:
    """The cases whose input stands in the program, the program without them, and how many others.

    None, where the program cannot be read or the tests are not data.
    """
    inputs = [each.writings for each in known]
    outputs = [part for each in known for part in each.outputs]
    try:
        present, source, others = sandbox.evaluate(
            _SOURCE, "changed", (job.source, inputs, outputs), limits=_LIMITS
        )
    except (TrustedCallFailed, ValueError):
        return [], job.source, 0
    return [each for each, there in zip(known, present) if there], source, others


def _expect_the_same(known: list[_Known]) -> bool:
    return len({repr(each.expected) for each in known}) <= 1


def _passed(sandbox: Sandbox, job: Job, known: list[_Known]) -> list[_Known]:
    """The cases that a job's program passes."""
    cases = sandbox.grade(replace(job, tests=tuple(each.test for each in known))).cases
    return [each for each, outcome in zip(known, cases) if outcome == "passed"]


def _answer(sandbox: Sandbox, job: Job, given: Any) -> str:
    """What the program answers to an input, as text; all errors alike."""
    test = Program(given, "\0") if job.kind == "stdio" else Call(given, "\0")
    reason = sandbox.grade(replace(job, tests=(test,))).reason
    _, gave, answer = reason.partition(": gave ")
    return answer if gave else reason if ": printed " in reason else "error"


def _is_long(test: Call | Program) -> bool:
    """Whether no program compares with the test's whole input by chance."""
    only = test.stdin if isinstance(test, Program) else test.arguments
    if isinstance(only, tuple) and len(only) == 1:
        (only,) = only
    return len(repr(only)) >= (MIN_LONG_TEXT if isinstance(only, str) else MIN_LONG)


def _expecting(known: _Known, given: Any, expected: Any) -> _Known:
    test = Program(given, expected) if isinstance(known.test, Program) else Call(given, expected)
    return _Known(test, [], expected)


def _nearby(test: Call | Program) -> list[Any]:
    """The input of a test, and inputs like it."""
    if isinstance(test, Program):
        return [test.stdin, re.sub(r"\d+", lambda number: f"{number[0]}3", test.stdin)]
    given = test.arguments
    return [given, *(tuple(_moved(each, step) for each in given) for step in (-1, 1, 2, 5, 1000))]


def _moved(value: Any, step: int) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value + step
    if isinstance(value, str):
        return value + "xyz"[step % 3]
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(each, step) for each in value)
    return value


def _words(parts: list[Any]) -> set[str]:
    return set(re.findall(r"\w+", repr(parts)))


def _known_cases(task: Task) -> tuple[str | None, list[_Known]]:
    """The function that is called, and the cases whose input and output are known as data."""
    entry, known = task.entry, list[_Known]()
    for test in task.tests:
        if isinstance(test, Program):
            known.append(_Known(test, _writings_of_text(test.stdin), test.expected))
        elif isinstance(test, Call):
            known.append(_Known(test, _writings(test.arguments), test.expected))
        else:
            for name, arguments, expected in _asserted(test):
                entry = entry or name
                if name in (entry, "candidate"):
                    call = Call(arguments, expected)
                    known.append(_Known(call, _writings(arguments), expected))
    return entry, known


def _writings(arguments: tuple[Any, ...]) -> list[list[Any]]:
    """The ways in which a program may write a call's arguments as constants."""
    writings: list[list[Any]] = [list(arguments), [arguments]]
    if len(arguments) == 1:
        (only,) = arguments
        writings += [[str(only)], [repr(only)]]
    return writings if arguments else []


def _writings_of_text(text: str) -> list[list[Any]]:
    """The ways in which a program may write its input as constants."""
    words = text.split()
    writings: list[list[Any]] = [
        [text.strip()],
        [text],
        [*text.strip().split("\n")],
        [*words],
        [words],
    ]
    for convert in (int, float):
        try:
            numbers = [convert(word) for word in words[:20]]
        except ValueError:
            continue
        writings += [[*numbers], [numbers]]
    return writings if words else []


def _asserted(test: str) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Name, arguments and expected value of every assertion on one call of constants."""
    try:
        tree = ast.parse(test)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert):
            continue
        call, expected = node.test, ast.Constant(True)
        if isinstance(call, ast.UnaryOp) and isinstance(call.op, ast.Not):
            call, expected = call.operand, ast.Constant(False)
        elif isinstance(call, ast.Compare) and isinstance(call.ops[0], (ast.Eq, ast.Is)):
            sides: list[Any] = [call.left, call.comparators[0]]
            call, expected = sides if isinstance(sides[0], ast.Call) else sides[::-1]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            try:
                arguments = tuple(ast.literal_eval(each) for each in call.args)
                yield call.func.id, arguments, ast.literal_eval(expected)
            except (ValueError, TypeError, SyntaxError):
                continue
