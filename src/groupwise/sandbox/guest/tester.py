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
import symtable
import sys
import types
import unittest
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .frames import read_frame, write_frame
from .solution import MAX_MESSAGE, describe, module
from .values import ANY_NUMBER, Unencodable, decode, encode_given

_CACHE, _POP_TOP = dis.opmap["CACHE"], dis.opmap["POP_TOP"]


_told: deque[Exception] = deque(maxlen=100)
"""What the solution raised last."""


class SolutionError(Exception):
    """What the solution raised, where that is no built-in exception."""


def run_tests(job: Mapping[str, Any]) -> None:
    """Executes `setup`, then each of `tests`; one `["result", index, passed, reason]` each.

    Names that the test source uses and does not define are stubs for the solution's functions, and
    so is `entry`, whatever `setup` defined, and every name of a module `solution`. What pytest or
    unittest would run in a source is run. Tells `["broken", why]` where the setup fails, or a test
    imports what is not here.
    """
    sys.modules["solution"] = _Solution("solution")
    unittest.main = _run_later  # type: ignore[assignment]
    try:
        missing = undefined_names(job["setup"], *job["tests"])
        namespace = module(job["setup"], "test")
    except BaseException as error:  # noqa: BLE001 (the data's own source; told to the parent)
        kind, message, _ = describe(error)
        write_frame(["broken", f"{kind}: {message}"])
        return
    for name in [*missing, *([job["entry"]] if job["entry"] else [])]:
        if name not in namespace or name == job["entry"]:
            namespace[name] = _stub(name)
    for index, source in enumerate(job["tests"]):
        try:
            verdict = _run_test(source, namespace, job["entry"])
        except ModuleNotFoundError as error:
            write_frame(["broken", str(error)])
            return
        write_frame(["result", index, *verdict])


class _Solution(types.ModuleType):
    """The module `solution`, as tests import it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)


def _run_later(*_: Any, **__: Any) -> None:
    """In place of `unittest.main`: the cases of a source are run behind it."""


def _run_test(source: str, namespace: dict[str, Any], entry: str | None) -> tuple[bool, str]:
    """Whether it passed, and why not. `ModuleNotFoundError` where the test itself raised it."""
    before = dict(namespace)
    try:
        exec(compile(source, "<test>", "exec", dont_inherit=True), namespace)
        called = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        made = {name: each for name, each in namespace.items() if before.get(name) is not each}
        _run_cases([each for each in made.values() if isinstance(each, type)])
        for name, each in made.items():
            if isinstance(each, types.FunctionType) and name not in called:
                _run_function(name, each, entry)
    except BaseException as error:  # a failing test, whatever it raised
        if isinstance(error, ModuleNotFoundError) and error not in _told:
            raise
        kind, message, _ = describe(error)
        line = _line(source, error)
        return False, f"{line}: {kind}: {message}" if message else f"{line}: {kind}"
    return True, ""


def _run_cases(classes: Sequence[type]) -> None:
    """What unittest and pytest would run of them, but for classes that only others derive from."""
    bases = {base for each in classes for base in each.__mro__[1:]}
    for each in classes:
        if each in bases:
            continue
        if not issubclass(each, unittest.TestCase):
            if each.__name__.startswith("Test") and each.__init__ is object.__init__:
                for name in dir(each):
                    if name.startswith("test"):
                        getattr(each(), name)()
            continue
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(each).run(result)
        for case, said in [*result.errors, *result.failures]:
            raise AssertionError(f"{case.id()}: {said.strip().splitlines()[-1]}")


def _run_function(name: str, function: types.FunctionType, entry: str | None) -> None:
    """Calls a function that a test leaves to pytest, or to HumanEval's harness."""
    needed = function.__code__.co_argcount - len(function.__defaults__ or ())
    if name.startswith("test") and needed == 0:
        function()
    elif name == "check" and needed == 1 and entry:
        function(_stub(entry))


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


def undefined_names(*sources: str) -> list[str]:
    """Names that are looked up in the module and that no source binds there, built-ins aside.

    >>> undefined_names("def check(f): assert f(1) == g(max(2, 3))")
    ['g']
    >>> undefined_names("x = 1", "assert f(x) == 2 and (lambda f: f)(1)")
    ['f']
    """
    read: dict[str, None] = {}
    bound: set[str] = set()
    waiting = [symtable.symtable(source, "<test>", "exec") for source in sources]
    while waiting:
        table = waiting.pop(0)
        waiting += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() != "module" and not symbol.is_global():
                continue
            if symbol.is_assigned() or symbol.is_imported():
                bound.add(symbol.get_name())
            elif symbol.is_referenced():
                read[symbol.get_name()] = None
    return [name for name in read if name not in bound and not hasattr(builtins, name)]


def _stub(name: str) -> Callable[..., Any]:
    def ask(*arguments: Any, **keywords: Any) -> Any:
        try:
            told = [encode_given(each) for each in arguments]
            named = {key: encode_given(each) for key, each in keywords.items()}
        except Unencodable as error:
            raise TypeError(f"{name}: {error} cannot be passed to the solution") from error
        write_frame(["call", name, told, named])
        kind, *rest = read_frame()
        if kind == "value":
            if rest[0] is None or _drops_value(sys._getframe(1)):
                _write_back([*arguments, *keywords.values()], rest[1])
            return decode(rest[0], max_hashed=ANY_NUMBER)
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
            argument[:] = decode(told, max_hashed=ANY_NUMBER)
        elif isinstance(argument, (dict, set)):
            changed = decode(told, max_hashed=ANY_NUMBER)
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
    """As `_made_again`; remembered, so that a test's own errors can be told from these."""
    made = _made_again(kind, rest)
    _told.append(made)
    return made


def _made_again(kind: str, rest: list[Any]) -> Exception:
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
