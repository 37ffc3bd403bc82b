"""Rows of code data sets as tasks: HumanEval, MBPP, APPS, and a plain layout of our own.

A row is read from a prompt's columns. Left out: running anything (`code.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import RecipeError
from groupwise.sandbox import Call, Kind, Program, make_tests
from groupwise.texts import from_json
from groupwise.types import Prompt
from groupwise.verifiers.code.extraction import defines

Layout = Literal["auto", "tests", "humaneval", "mbpp", "apps"]


@dataclass(frozen=True, slots=True)
class Task:
    """What a submission is judged by.

    `prefix` is the start of the program that a completion may continue (HumanEval's prompt).
    """

    kind: Kind
    tests: tuple[Call | Program | str, ...]
    entry: str | None = None
    setup: str = ""
    prefix: str = ""
    alike: bool = False


def read_task(prompt: Prompt, layout: Layout = "auto", column: str = "tests") -> Task:
    """The task of a prompt. `ValueError` says what its columns lack."""
    columns = {name: value for name, value in prompt.columns.items() if value is not None}
    if layout == "auto":
        layout = _layout_of(columns, column)
    readers = {"humaneval": _humaneval, "mbpp": _mbpp, "apps": _apps}
    try:
        if layout == "tests":
            return _plain(columns, column)
        return readers[layout](prompt, columns)
    except KeyError as error:
        raise ValueError(f"a {layout} row needs the column {error}") from error
    except (RecipeError, TypeError, AttributeError) as error:
        raise ValueError(f"tests that cannot be read: {error}") from error


def _layout_of(columns: Mapping[str, Any], column: str) -> Layout:
    if column in columns:
        return "tests"
    if "test" in columns and "entry_point" in columns:
        return "humaneval"
    if "test_list" in columns:
        return "mbpp"
    if "input_output" in columns:
        return "apps"
    raise ValueError(
        f"no tests: give a column {column!r} (pairs or source), or HumanEval's `test` and "
        "`entry_point`, MBPP's `test_list`, or APPS's `input_output`"
    )


def _plain(columns: Mapping[str, Any], column: str) -> Task:
    """`tests`: source texts, or pairs of what goes in and comes out; `entry`, `kind`, `setup`."""
    tests = _read(columns[column])
    if isinstance(tests, str):
        tests = [tests]
    entry = columns.get("entry", columns.get("entry_point"))
    kind: Any = columns.get("kind")
    if kind is None:
        asserts = all(isinstance(test, str) for test in tests)
        kind = "asserts" if asserts else "calls" if entry else "stdio"
    if kind == "calls" and not entry:
        raise ValueError('tests of kind "calls" need a column `entry`, the function\'s name')
    setup = str(columns.get("setup", ""))
    # JSON has no tuples: only tests written in Python can tell a list from one.
    alike = not any(isinstance(test, tuple) for test in tests)
    return Task(kind, make_tests(list(tests), kind), entry, setup, alike=alike)


def _humaneval(prompt: Prompt, columns: Mapping[str, Any]) -> Task:
    """`test` defines `check(candidate)`; what the prompt defines is there for it as well."""
    entry = str(columns["entry_point"])
    prefix = str(columns.get("code_prompt", prompt.last_text))
    prefix = prefix if defines(prefix, entry) and _parses(prefix) else ""
    test = f"{columns['test']}\n\nassert check({entry}) in (None, True)\n"
    return Task("asserts", make_tests([test], "asserts"), entry, prefix, prefix)


def surroundings(prefix: str, entry: str) -> str:
    """A program without its definition of `entry`.

    >>> surroundings("import re\\ndef f(x):\\n    'Doc.'", "f")
    'import re'
    """
    tree = ast.parse(prefix)
    tree.body = [each for each in tree.body if getattr(each, "name", None) != entry]
    return ast.unparse(tree)


def _mbpp(_: Prompt, columns: Mapping[str, Any]) -> Task:
    """`test_list` of asserts, after `test_setup_code` and `test_imports`."""
    setup = [*_texts(columns.get("test_imports")), *_texts(columns.get("test_setup_code"))]
    tests = _texts(columns["test_list"])
    return Task("asserts", make_tests(tests, "asserts"), None, "\n".join(setup))


def _apps(_: Prompt, columns: Mapping[str, Any]) -> Task:
    """`input_output` with `inputs`, `outputs` and, for calls, `fn_name`."""
    table = _read(columns["input_output"])
    if not isinstance(table, Mapping):
        raise ValueError("input_output must be a table with inputs and outputs")
    inputs, outputs = table["inputs"], table["outputs"]
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs")
    entry = table.get("fn_name")
    if not entry:
        return Task("stdio", make_tests(list(zip(inputs, outputs)), "stdio"))
    calls = list(map(Call, map(tuple, inputs), outputs))
    if all(isinstance(out, (list, tuple)) and len(out) == 1 for out in outputs):
        # APPS may have wrapped the value in a list of one, or not: both are right
        calls = [Call(each.arguments, each.expected[0], also=(each.expected,)) for each in calls]
    return Task("calls", make_tests(calls, "calls"), str(entry), alike=True)


def _read(value: Any) -> Any:
    """A column that may be JSON text."""
    if isinstance(value, str):
        try:
            return from_json(value)
        except ValueError:
            return value
    return value.tolist() if hasattr(value, "tolist") else value


def _texts(value: Any) -> list[str]:
    value = _read(value) if value is not None else []
    each = [value] if isinstance(value, str) else value
    return [str(text) for text in each if str(text).strip()]


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
