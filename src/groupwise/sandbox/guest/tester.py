"""Running test source against a solution that lives in another process.

The test's `assert` statements run here, in a child of their own that holds no line of the solution;
what they call is a stub that asks the parent, who asks the solution. What comes back is data of
exact built-in types, so neither an always-equal object nor a patched built-in can reach a test.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import sys
import traceback
import types
import unittest
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .frames import read_frame, write_frame
from .modules import KeptLoader
from .solution import MAX_MESSAGE, describe
from .sources import ASSERTED, ENTERED, FAILED, Refused, Span, TestSource, prepared
from .values import ANY_NUMBER, Unencodable, decode, encode_given

_EVALUATING = {"compile", "exec", "marshal.loads", "pickle.find_class", "code.__new__"}
_TRUSTED_FILES = ("/ast.py", "/collections/__init__.py", "/dataclasses.py",
                  "/unittest/mock.py")  # fmt: skip
"""They compile names that they check, never a text as it is."""


class SolutionError(Exception):
    """What the solution raised, if it was not a built-in exception."""


class EvaluatedText(BaseException):
    """A test is about to run text that may be the solution's; no `except Exception` stops it."""


class _State:
    """What the run of the tests has come to."""

    asked = 0
    guarded = False
    evaluated = False
    constants: frozenset[str] = frozenset()
    constant_ran = False
    dropped: frozenset[tuple[str, Span]] = frozenset()


def run_tests(job: Mapping[str, Any]) -> None:
    """Executes `setup`, then each of `tests`; one `["result", index, passed, reason]` each.

    Names that the test source uses and does not define are stubs for the solution's functions, and
    so is `entry`, whatever `setup` defined, and every name of a module `solution`. The source is
    run as a script; test functions and classes, unittest's cases and HumanEval's `check` are run
    as well. Tells `["broken", why]` where the source is refused or the setup fails.
    """
    made = types.ModuleType("__main__")
    sys.modules["__main__"], sys.modules["solution"] = made, _Solution("solution")
    namespace, entry = made.__dict__, job["entry"]
    unittest.main = _run_later  # type: ignore[assignment]
    try:
        (setup, *tests), names = prepared(job["setup"], job["tests"], entry)
        _State.dropped = frozenset(
            (each.code.co_filename, span) for each in (setup, *tests) for span in each.dropped
        )
        exec(setup.code, namespace)
    except BaseException as error:  # noqa: BLE001 (the data's own source; reported to the parent)
        kind, message, _ = describe(error)
        write_frame(["broken", message if isinstance(error, Refused) else f"{kind}: {message}"])
        return
    for name in names:
        if name not in namespace or name == entry:
            namespace[name] = _stub(name)
    sys.addaudithook(_refuse_evaluation)
    for index, (test, source) in enumerate(zip(tests, job["tests"])):
        write_frame(["result", index, *_run_test(test, source, namespace, entry)])


class _Solution(types.ModuleType):
    """The module `solution`, as tests import it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)


def _run_later(*_: Any, **__: Any) -> None:
    """In place of `unittest.main`: the cases are run behind the source."""


def _run_test(
    test: TestSource, source: str, namespace: dict[str, Any], entry: str | None
) -> tuple[bool, str]:
    """Whether it passed, and why not: an error, or a part that was not run."""
    before = dict(namespace)
    entered: set[int] = set()
    namespace[ENTERED] = entered.add
    _State.guarded, _State.evaluated, _State.constants = True, False, test.constants
    try:
        _run_script(test, namespace)
        made = {name: each for name, each in namespace.items() if before.get(name) is not each}
        _run_left(made, test.called, entry)
    except BaseException as error:  # noqa: BLE001 (a failing test, whatever it raised)
        kind, message, _ = describe(error)
        line = _line(source, error, test.code.co_filename)
        return False, f"{line}: {kind}: {message}" if message else f"{line}: {kind}"
    finally:
        _State.guarded = False
    if _State.evaluated:
        return False, "it evaluates text that may be the solution's"
    if FAILED in entered:
        return False, "an assertion failed and was passed over"
    if test.asserts and ASSERTED not in entered:
        return False, "no assertion was reached"
    idle = [name for number, name in test.functions.items() if number not in entered]
    return not idle, f"{idle[0]} was not run" if idle else ""


def _run_script(test: TestSource, namespace: dict[str, Any]) -> None:
    """As a script; its last statement may end it, as `sys.exit(unittest.main())` does."""
    try:
        exec(test.code, namespace)
    except SystemExit as stop:
        lines = _lines_of(stop, test.code.co_filename)
        if stop.code not in (None, 0) or len(lines) > 1 or lines[0] < test.last_line:
            raise


def _run_left(made: Mapping[str, Any], called: frozenset[str], entry: str | None) -> None:
    """Runs what a source leaves to pytest, unittest or HumanEval's harness."""
    for name, each in made.items():
        if isinstance(each, type) and each.__module__ == "__main__":
            if issubclass(each, unittest.TestCase):
                _run_cases(each)
            elif each.__name__.startswith("Test") and each.__init__ is object.__init__:
                for method in filter(lambda name: name.startswith("test"), dir(each)):
                    _run_function(getattr(each(), method))
        elif isinstance(each, types.FunctionType) and name not in called:
            needed = each.__code__.co_argcount - len(each.__defaults__ or ())
            if name.startswith("test") and needed == 0:
                _run_function(each)
            elif name == "check" and needed == 1 and entry:
                _run_function(each, _stub(entry))


def _run_function(test: Callable[..., Any], *arguments: Any) -> None:
    """Runs a test function, which may say that it failed by what it returns."""
    value = test(*arguments)
    if value is not None and not value:
        raise AssertionError(f"{test.__name__} returned {value!r:.40}")


def _run_cases(kind: type[unittest.TestCase]) -> None:
    """What unittest would run; a test that is skipped or meant to fail has not passed."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "It is deprecated to return a value")
        unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    said = [*result.errors, *result.failures, *result.skipped, *result.expectedFailures]
    said += [(case, "passed unexpectedly") for case in result.unexpectedSuccesses]
    for case, text in said:
        raise AssertionError(f"{case.id()}: {(text.strip().splitlines() or ['skipped'])[-1]}")


def _lines_of(error: BaseException, file: str) -> list[int]:
    """The lines of a source that an error went through, the outermost first."""
    steps = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in steps if frame.f_code.co_filename == file]


def _line(source: str, error: BaseException, file: str) -> str:
    """The line of the test that failed."""
    number = (_lines_of(error, file) or [1])[-1]
    lines = source.splitlines()
    return lines[number - 1].strip()[:MAX_MESSAGE] if number <= len(lines) else "the test"


def _refuse_evaluation(event: str, details: tuple[Any, ...]) -> None:
    """An audit hook: a test may run text that stands in it, and no other, whatever way it found."""
    if not _State.guarded or event not in _EVALUATING:
        return
    constant = event == "exec" and _State.constant_ran
    text = details[0] if event == "compile" else None
    text = text.decode() if isinstance(text, bytes) else text
    _State.constant_ran = isinstance(text, str) and text in _State.constants
    if constant or _State.constant_ran:
        return
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<test "):
        if any(each in frame.f_code.co_filename for each in _TRUSTED_FILES):
            return
        if isinstance(frame.f_locals.get("self"), KeptLoader):
            return
        frame = frame.f_back
    if frame is not None:
        _State.evaluated = True
        raise EvaluatedText("a test may not evaluate what the solution could have returned")


def _stub(name: str) -> Callable[..., Any]:
    def ask(*arguments: Any, **keywords: Any) -> Any:
        try:
            encoded = [encode_given(each) for each in arguments]
            named = {key: encode_given(each) for key, each in keywords.items()}
        except Unencodable as error:
            reason = f"{name}: {error} cannot be passed to the solution"
            if not _State.asked:  # so it cannot be the solution's doing
                write_frame(["broken", reason])
            raise TypeError(reason) from error
        _State.asked += 1
        write_frame(["call", name, encoded, named])
        kind, *rest = read_frame()
        if kind == "value":
            if _drops_value(sys._getframe(1)):
                _write_back([*arguments, *keywords.values()], rest[1])
            return decode(rest[0], max_hashed=ANY_NUMBER)
        raise _made_again(kind, rest)

    ask.__name__ = ask.__qualname__ = name
    return ask


def _write_back(arguments: Sequence[Any], after: Any) -> None:
    """What the solution changed in its arguments, where changing them is its result.

    It is where the test does not use the value. Elsewhere the solution gets copies alone: emptying
    `xs` and returning `[]` must not make `f(xs) == sorted(xs)` true.
    """
    for argument, encoded in zip(arguments, after or ()):
        if isinstance(argument, (list, bytearray)):
            argument[:] = decode(encoded, max_hashed=ANY_NUMBER)
        elif isinstance(argument, (dict, set, deque)):
            changed = decode(encoded, max_hashed=ANY_NUMBER)
            argument.clear()
            (argument.extend if isinstance(argument, deque) else argument.update)(changed)


def _drops_value(frame: types.FrameType) -> bool:
    """Whether the test does nothing with the value of the call that it is in."""
    code = frame.f_code
    spans = itertools.islice(code.co_positions(), frame.f_lasti // 2, None)
    return (code.co_filename, next(spans)) in _State.dropped


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
