"""Prepares test sources; refuses by name what a tester could not run, or not safely."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

ENTERED = "_groupwise_entered"
"""The name that an instrumented test calls at the start of a function, with its number."""
ASSERTED = -1
"""The number that it passes where it asserts something."""
FAILED = -2
"""The number that it passes where an assertion failed, whatever the test then does about it."""

_EVALUATORS = {"eval", "exec", "compile", "__import__"}
_LOADERS = {"pickle", "marshal", "shelve", "runpy", "code", "codeop", "ctypes", "timeit"}
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_ALWAYS_TRUE = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Lambda, ast.GeneratorExp)
_METHODS = ("test", "setup", "teardown", "setUp", "tearDown", "asyncSetUp", "runTest", "__")

Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column of an expression."""


class Refused(ValueError):  # noqa: N818 (it names what the data got wrong)
    """The tests' own source cannot be run as a test."""


class TestSource(NamedTuple):
    """One source, compiled.

    `functions` have to be entered, and one assertion reached where it `asserts`, or the source has
    not been run; `dropped` are the calls whose
    value it does not use; `docstrings` are those that hold doctests.
    """

    code: Any
    functions: dict[int, str]
    asserts: bool
    dropped: frozenset[Span]
    called: frozenset[str]
    constants: frozenset[str]
    docstrings: tuple[str, ...]
    last_line: int


def prepared(
    setup: str, tests: Sequence[str], entry: str | None
) -> tuple[list[TestSource], list[str]]:
    """The setup and every test, and the names that stand for the solution. `Refused` says why not.

    Refused are sources that do not parse, that import a module which is not here, that evaluate
    text or load pickles, that pass functions or objects of their own to the solution, that judge
    nothing, and functions that ask the solution and that nothing runs.
    """
    try:
        sources = [setup, *tests, *(each for test in tests for each in _examples(ast.parse(test)))]
        trees = [ast.parse(source) for source in sources]
        names = [*undefined_names(*sources), *([entry] if entry else [])]
        for tree in trees:
            _refuse_missing_modules(tree)
            _refuse_evaluation(tree)
            _refuse_dropped_comparisons(tree)
        if not any(map(_judges, trees)) and not any(
            isinstance(node, (ast.Try, ast.With)) for tree in trees for node in ast.walk(tree)
        ):
            raise Refused("nothing is asserted")
        for tree in trees[1:]:
            _refuse_functions_and_objects(tree, set(names), trees)
            _refuse_what_nothing_runs(tree, set(names), trees, entry)
        files = ["<setup>", *(f"<test {index}>" for index in range(len(tests)))]
        return [_compiled(tree, file, set(names)) for tree, file in zip(trees, files)], names
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused(f"{type(error).__name__}: {error}") from error


def _docstrings(tree: ast.AST) -> list[str]:
    """The docstrings that hold doctests."""
    holders = (*_Function, ast.ClassDef, ast.Module)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, holders)]
    return [text for text in texts if text and ">>>" in text]


def _examples(tree: ast.AST) -> list[str]:
    """The sources of all doctests."""
    texts = _docstrings(tree)
    if not texts:
        return []
    from doctest import DocTestParser

    return [each.source for text in texts for each in DocTestParser().get_examples(text)]


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


def _refuse_missing_modules(tree: ast.AST) -> None:
    """Imports of what is not here, but for those inside `try`."""
    for node in _nodes(tree, skipped=ast.Try):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise Refused("a relative import")
        named = [node.module] if isinstance(node, ast.ImportFrom) else []
        named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        for name in named:
            top = (name or "").partition(".")[0]
            if top not in ("solution", "__main__") and importlib.util.find_spec(top) is None:
                raise Refused(f"No module named {top!r}")


def _refuse_evaluation(tree: ast.AST) -> None:
    """What runs text or bytes, which may be the solution's; text that stands there is harmless."""
    harmless = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    }
    for node in ast.walk(tree):
        used: list[str] = []
        if isinstance(node, ast.Name) and node.id in _EVALUATORS and id(node) not in harmless:
            used = [node.id]
        elif isinstance(node, ast.ImportFrom):
            used = [node.module or ""]
            used += [each.name for each in node.names] if node.module == "builtins" else []
        elif isinstance(node, ast.Import):
            used = [each.name for each in node.names]
        for name in used:
            if name in _EVALUATORS | _LOADERS:
                raise Refused(f"tests that use {name} could run what the solution returns")


def _refuse_dropped_comparisons(tree: ast.AST) -> None:
    """`f(1) == 2` alone asserts nothing, nor does `print(f(1) == 2)` or `assert (f(1), 2)`.

    Inside `try` and `with` an error may be expected of it.
    """
    for node in _nodes(tree, skipped=(ast.Try, ast.With)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "print":
            dropped = any(isinstance(each, ast.Compare) for each in value.args)
        else:
            dropped = isinstance(value, (ast.Compare, ast.BoolOp))
        if dropped or (isinstance(node, ast.Assert) and isinstance(node.test, _ALWAYS_TRUE)):
            raise Refused(f"{ast.unparse(node)[:60]} asserts nothing")


def _judges(tree: ast.AST) -> bool:
    """Whether something in it can make a test fail: an assertion, an error, an exit, a result."""
    for node in ast.walk(tree):
        method = getattr(getattr(node, "func", None), "attr", "")
        plain = getattr(getattr(node, "func", None), "id", "")
        if (
            isinstance(node, (ast.Assert, ast.Raise))
            or method.startswith(("assert", "fail"))
            or "exit" in (method, plain)
            or (isinstance(node, ast.Module) and _docstrings(node))
        ):
            return True
        tests = isinstance(node, _Function) and node.name.startswith(("test", "check"))
        if (tests or isinstance(node, ast.ExceptHandler)) and any(
            isinstance(each, ast.Return) and each.value for each in ast.walk(node)
        ):
            return True
    return False


def _refuse_functions_and_objects(
    tree: ast.AST, names: set[str], trees: Sequence[ast.Module]
) -> None:
    """Arguments of the solution that have no form as data."""
    own: dict[str, ast.AST] = {}
    for each in trees:
        for node in ast.walk(each):
            if isinstance(node, (*_Function, ast.ClassDef)):
                own[node.name] = node
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        if call.func.id not in names and call.func.id != "candidate":
            continue
        waiting: list[ast.expr] = [*call.args, *(each.value for each in call.keywords)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
                waiting += node.elts
            elif isinstance(node, ast.Dict):
                waiting += [each for each in (*node.keys, *node.values) if each is not None]
            elif _is_not_data(node, own):
                raise Refused(f"{ast.unparse(node)[:60]} cannot be passed to the solution")


def _is_not_data(node: ast.expr, own: dict[str, ast.AST]) -> bool:
    if isinstance(node, ast.Lambda):
        return True
    if isinstance(node, ast.Name):
        return node.id in own or callable(getattr(builtins, node.id, None))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        made = own.get(node.func.id)
        return isinstance(made, ast.ClassDef) and not made.bases and not made.decorator_list
    return False


def _refuse_what_nothing_runs(
    tree: ast.Module, names: set[str], trees: Sequence[ast.AST], entry: str | None
) -> None:
    """Functions with assertions whose name stands nowhere and that no runner of tests calls."""
    mentioned = {
        name
        for each in trees
        for node in ast.walk(each)
        for name in (getattr(node, "id", None), getattr(node, "attr", None))
    }
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or not _tests(node, names) or node.decorator_list:
            continue
        if node.name in mentioned:
            continue
        needed = len(node.args.args) - len(node.args.defaults)
        plain = isinstance(node, ast.FunctionDef) and not _is_generator(node)
        if node in tree.body:
            hook = node.name.startswith(("setup_", "teardown_"))
            runs = hook or (node.name.startswith("test") and needed == 0)
            runs = plain and (runs or (node.name == "check" and needed == 1 and bool(entry)))
        else:  # of a class: whether that is run shows when it is
            runs = node.name.startswith(_METHODS)
        if not runs:
            raise Refused(f"nothing runs the function {node.name}")


def _tests(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> bool:
    """Whether a function asserts anything or asks the solution."""
    return any(
        (isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant))
        or (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr.startswith("assert"))
        for node in ast.walk(function)
    )


def _is_generator(function: ast.AST) -> bool:
    inner = (*_Function, ast.Lambda)
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _nodes(function, skipped=inner)
    )


def _nodes(tree: ast.AST, skipped: Any) -> Iterator[ast.AST]:
    """The nodes beneath `tree`, but for those inside a node of the types `skipped`."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, skipped):
            yield node
            yield from _nodes(node, skipped)


def _compiled(tree: ast.Module, file: str, names: set[str]) -> TestSource:
    """The code; each function that has to be entered says so when it is."""
    functions: dict[int, str] = {}
    dropped: set[Span] = set()
    docstrings = tuple(_docstrings(tree))
    constants = {node.value for node in ast.walk(tree)
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    asserts = False
    excused = {  # a failure that is judged further on
        assertion
        for node in ast.walk(tree)
        if any(map(_judges, getattr(node, "handlers", ())))
        or (isinstance(node, (ast.For, ast.While)) and any(map(_judges, node.orelse)))
        for each in getattr(node, "body", ())
        for assertion in ast.walk(each)
    }
    for node in [*ast.walk(tree)]:
        call = _unused_call(node)
        if call is not None:
            dropped.add((call.lineno, call.end_lineno, call.col_offset, call.end_col_offset))
        if isinstance(node, _Function) and (
            node.name.startswith("test") or node.name == "check" or _asks(node, names)
        ):
            mark: ast.stmt = ast.Expr(_mark(len(functions), node.body[0]))
            ast.copy_location(mark, node.body[0])
            node.body.insert(1 if ast.get_docstring(node) is not None else 0, mark)
            functions[len(functions)] = node.name
        elif isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            asserts = True
            failed = [] if node in excused else [_mark(FAILED, node.test)]
            node.test = _after(_mark(ASSERTED, node.test), node.test, *failed)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assert"):
            asserts = True
            node.func = _after(_mark(ASSERTED, node.func), node.func)
    called = {node.func.id for node in ast.walk(tree)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    last: Any = tree
    while getattr(last, "body", None):
        last = last.body[-1]
    return TestSource(
        compile(tree, file, "exec", dont_inherit=True),
        functions,
        asserts,
        frozenset(dropped),
        frozenset(called),
        frozenset(constants),
        docstrings,
        getattr(last, "lineno", 0),
    )


def _mark(number: int, place: ast.AST) -> ast.Call:
    """A call, at a place in the source, that reports that the place was reached."""
    call = ast.Call(ast.Name(ENTERED, ast.Load()), [ast.Constant(number)], [])
    for each in ast.walk(call):
        ast.copy_location(each, place)
    return call


def _after(mark: ast.Call, expression: ast.expr, *otherwise: ast.expr) -> ast.expr:
    """The value of the expression, once the mark was called; `otherwise` where it is false."""
    return ast.copy_location(ast.BoolOp(ast.Or(), [mark, expression, *otherwise]), expression)


def _asks(function: ast.AST, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(function))


def _unused_call(node: ast.AST) -> ast.expr | None:
    """A call that stands alone, or that is only compared with None: `assert f(x) is None`."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assertIsNone":
        return node.args[0] if node.args else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return node.value
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
        against = node.comparators[0]
        if isinstance(against, ast.Constant) and against.value is None:
            return node.left if isinstance(node.left, ast.Call) else None
    return None
