"""Running test source against a solution that lives in another process.

The test's `assert` statements run here, in a child of their own that holds no line of the solution;
what they call is a stub that asks the parent, who asks the solution. What comes back is data of
exact built-in types, so neither an always-equal object nor a patched built-in can reach a test.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .frames import read_frame, write_frame
from .solution import MAX_MESSAGE, describe, module
from .values import Unencodable, decode, encode

_CACHE, _POP_TOP = dis.opmap["CACHE"], dis.opmap["POP_TOP"]


class SolutionError(Exception):
    """What the solution raised, where that is no built-in exception."""


def run_tests(job: Mapping[str, Any]) -> None:
    """Executes `setup`, then each of `tests`; one `["result", index, passed, reason]` each.

    Names that the test source uses and does not define are stubs for the solution's functions, and
    so is `entry`, whatever `setup` defined. Tells `["broken", why]` where the setup fails.
    """
    sources = [job["setup"], *job["tests"]]
    try:
        missing = undefined_names("\n".join(sources))
        namespace = module(job["setup"], "test")
    except BaseException as error:  # noqa: BLE001 (the data's own source; told to the parent)
        kind, message, _ = describe(error)
        write_frame(["broken", f"{kind}: {message}"])
        return
    for name in [*missing, *([job["entry"]] if job["entry"] else [])]:
        if name not in namespace or name == job["entry"]:
            namespace[name] = _stub(name)
    for index, source in enumerate(job["tests"]):
        write_frame(["result", index, *_run_test(source, namespace)])


def _run_test(source: str, namespace: dict[str, Any]) -> tuple[bool, str]:
    try:
        exec(compile(source, "<test>", "exec", dont_inherit=True), namespace)
    except BaseException as error:  # noqa: BLE001 (a failing test, whatever it raised)
        kind, message, _ = describe(error)
        line = _line(source, error)
        return False, f"{line}: {kind}: {message}" if message else f"{line}: {kind}"
    return True, ""


def _line(source: str, error: BaseException) -> str:
    """The line of the test that failed."""
    number = 1
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<test>":
            number = step.tb_lineno
        step = step.tb_next
    lines = source.splitlines()
    return lines[number - 1].strip()[:MAX_MESSAGE] if number <= len(lines) else "the test"


def undefined_names(source: str) -> list[str]:
    """Names that are read somewhere and bound nowhere, built-ins aside, in order of appearance.

    >>> undefined_names("def check(f): assert f(1) == g(max(2, 3))")
    ['g']
    """
    read: dict[str, None] = {}
    bound: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                read[node.id] = None
            else:
                bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return [name for name in read if name not in bound and not hasattr(builtins, name)]


def _stub(name: str) -> Callable[..., Any]:
    def ask(*arguments: Any, **keywords: Any) -> Any:
        try:
            told = [encode(each) for each in arguments]
            named = {key: encode(each) for key, each in keywords.items()}
        except Unencodable as error:
            raise TypeError(f"{name}: {error} cannot be passed to the solution") from error
        write_frame(["call", name, told, named])
        kind, *rest = read_frame()
        if kind == "value":
            if rest[0] is None or _drops_value(sys._getframe(1)):
                _write_back([*arguments, *keywords.values()], rest[1])
            return decode(rest[0])
        raise _exception(kind, rest)

    ask.__name__ = ask.__qualname__ = name
    return ask


def _write_back(arguments: Sequence[Any], after: Any) -> None:
    """What the solution changed in its arguments, where changing them is its result.

    It is where the solution gives nothing or the test drops what it gives. Elsewhere it gets copies
    alone: emptying `xs` and returning `[]` must not make `f(xs) == sorted(xs)` true.
    """
    for argument, told in zip(arguments, after or ()):
        if isinstance(argument, (list, bytearray)):
            argument[:] = decode(told)
        elif isinstance(argument, (dict, set)):
            changed = decode(told)
            argument.clear()
            argument.update(changed)


def _drops_value(frame: types.FrameType) -> bool:
    """Whether the test's next step is to throw away the value of the call that it is in."""
    code = frame.f_code.co_code
    place = frame.f_lasti + 2
    while place < len(code) and code[place] == _CACHE:
        place += 2
    return place < len(code) and code[place] == _POP_TOP


def _exception(kind: str, rest: list[Any]) -> Exception:
    """The solution's exception again: a built-in one by its name, never one that ends a program.

    Nor one that ends an iteration: `all(map(f, xs))` would take it for the end of `xs`.
    """
    if kind != "error":
        return SolutionError(str(rest[0]) if rest else kind)
    name, message, base, *given = rest[0]
    found = getattr(builtins, str(base), None)
    if isinstance(found, type) and issubclass(found, (StopIteration, StopAsyncIteration)):
        return RuntimeError(f"the solution raised {name}: {message}")
    if isinstance(found, type) and issubclass(found, Exception):
        # UnicodeDecodeError and its kind want more arguments; what was sent may be no value.
        with contextlib.suppress(TypeError, ValueError):
            made: Exception = found(*decode(given[0]))
            if str(made)[:MAX_MESSAGE] != message:
                made = found(message)
            return made
    return SolutionError(f"{name}: {message}")
