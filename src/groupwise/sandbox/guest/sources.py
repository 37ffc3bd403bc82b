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
_RUN = ("test", "setUp", "tearDown", "asyncSetUp", "runTest", "__")
"""How the functions begin that unittest may call, and those of tests."""
_HOOKS = ("setup_", "teardown_")
"""How pytest's hooks begin, which are not called here."""

Span = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column of an expression."""


class Refused(ValueError):  # noqa: N818 (it names what the data got wrong)
    """The tests' own source cannot be run as a test."""


class TestSource(NamedTuple):
    """One source, compiled.

    `functions` have to be entered, and one assertion reached where it `asserts`, or the source has
    not been run; `dropped` are the calls whose value it does not use.
    """

    code: Any
    functions: dict[int, str]
    asserts: bool
    dropped: frozenset[Span]
    called: frozenset[str]
    constants: frozenset[str]
    last_line: int


def prepared(
    setup: str, tests: Sequence[str], entry: str | None
) -> tuple[list[TestSource], list[str]]:
    """The setup and every test, and the names that stand for the solution. `Refused` says why not.

    Refused are sources that do not parse, that import a module which is not here, that evaluate
    text or load pickles, that pass functions or objects of their own to the solution, that judge
    nothing, and functions that ask the solution and that nothing runs, pytest's hooks among them.
    """
    try:
        sources = [setup, *tests]
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
        made = {node.name for tree in trees for node in _all(tree, *_Function, ast.ClassDef)}
        mentioned = {node.id for tree in trees for node in _all(tree, ast.Name)}
        mentioned |= {node.attr for tree in trees for node in _all(tree, ast.Attribute)}
        for tree in trees[1:]:
            _refuse_doctests(tree)
            _refuse_functions(tree, set(names), made)
            _refuse_what_nothing_runs(tree, set(names), mentioned, entry)
        files = ["<setup>", *(f"<test {index}>" for index in range(len(tests)))]
        return [_compiled(tree, file, set(names)) for tree, file in zip(trees, files)], names
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused(f"{type(error).__name__}: {error}") from error


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
        node.func
        for node in _all(tree, ast.Call)
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    used = [node.id for node in _all(tree, ast.Name) if node not in harmless]
    used = [name for name in used if name in _EVALUATORS]
    for node in _all(tree, ast.Import, ast.ImportFrom):
        module = getattr(node, "module", "builtins")
        used += [module] if module != "builtins" else [each.name for each in node.names]
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


def _refuse_doctests(tree: ast.AST) -> None:
    """Examples in a docstring, where nothing else in the source judges."""
    holders = _all(tree, *_Function, ast.ClassDef, ast.Module)
    if not _judges(tree) and any(">>>" in (ast.get_docstring(each) or "") for each in holders):
        raise Refused("doctests are not run; write them as assertions")


def _judges(tree: ast.AST) -> bool:
    """Whether something in it can make a test fail: an assertion, an error, an exit, a result."""
    for node in ast.walk(tree):
        called = getattr(node, "func", None)
        method, name = getattr(called, "attr", ""), getattr(called, "id", "")
        if (
            isinstance(node, (ast.Assert, ast.Raise))
            or method.startswith(("assert", "fail"))
            or "exit" in (method, name)
        ):
            return True
        tests = isinstance(node, _Function) and node.name.startswith(("test", "check"))
        if (tests or isinstance(node, ast.ExceptHandler)) and any(
            each.value for each in _all(node, ast.Return)
        ):
            return True
    return False


def _refuse_functions(tree: ast.AST, names: set[str], own: set[str]) -> None:
    """Functions and classes as arguments of the solution; other objects show when they are sent."""
    for call in _all(tree, ast.Call):
        if getattr(call.func, "id", None) not in {*names, "candidate"}:
            continue
        passed = [*call.args, *(each.value for each in call.keywords)]
        for node in passed:  # which grows
            passed += [*getattr(node, "elts", ()), *getattr(node, "values", ())]
            name = getattr(node, "id", "")
            if isinstance(node, ast.Lambda) or name in own or callable(vars(builtins).get(name)):
                raise Refused(f"{ast.unparse(node)[:60]} cannot be passed to the solution")


def _refuse_what_nothing_runs(
    tree: ast.Module, names: set[str], mentioned: set[str], entry: str | None
) -> None:
    """Functions that assert or ask, whose name stands nowhere and no runner of tests may call."""
    for node in _all(tree, *_Function):
        if node.name.startswith(_HOOKS) and node.name not in mentioned:
            raise Refused(f"nothing runs the function {node.name}; set up where the test begins")
        runs = node.name.startswith(_RUN) or (node.name == "check" and entry)
        if node.name in mentioned or runs or node.decorator_list:
            continue
        asserts = (not isinstance(each.test, ast.Constant) for each in _all(node, ast.Assert))
        methods = (each.attr.startswith("assert") for each in _all(node, ast.Attribute))
        if _asks(node, names) or any(asserts) or any(methods):
            raise Refused(f"nothing runs the function {node.name}")


def _all(tree: ast.AST, *kinds: type[Any]) -> Iterator[Any]:
    """The nodes of some types."""
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


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
    constants = {node.value for node in _all(tree, ast.Constant) if isinstance(node.value, str)}
    called = {node.func.id for node in _all(tree, ast.Call) if isinstance(node.func, ast.Name)}
    last: Any = tree
    while getattr(last, "body", None):
        last = last.body[-1]
    excused = {  # a failure that is judged further on
        assertion
        for node in _all(tree, ast.Try, ast.For, ast.While)
        if any(map(_judges, getattr(node, "handlers", node.orelse)))
        for each in node.body
        for assertion in ast.walk(each)
    }
    asserts = False
    for node in [*ast.walk(tree)]:
        call = _unused_call(node)
        if call is not None:
            dropped.add((call.lineno, call.end_lineno, call.col_offset, call.end_col_offset))
        if isinstance(node, _Function) and (
            node.name.startswith("test") or node.name == "check" or _asks(node, names)
        ):
            place = 0 if ast.get_docstring(node) is None else 1
            node.body.insert(place, ast.Expr(_mark(len(functions))))
            functions[len(functions)] = node.name
        elif isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            asserts = True
            failed = [] if node in excused else [_mark(FAILED)]
            node.test = ast.BoolOp(ast.Or(), [_mark(ASSERTED), node.test, *failed])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assert"):
            asserts = True
            node.func = ast.BoolOp(ast.Or(), [_mark(ASSERTED), node.func])
    return TestSource(
        compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True),
        functions,
        asserts,
        frozenset(dropped),
        frozenset(called),
        frozenset(constants),
        getattr(last, "lineno", 0),
    )


def _mark(number: int) -> ast.expr:
    """A call that reports, and gives None, when its place in the source is reached."""
    return ast.Call(ast.Name(ENTERED, ast.Load()), [ast.Constant(number)], [])


def _asks(function: ast.AST, names: set[str]) -> bool:
    return any(node.id in names for node in _all(function, ast.Name))


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
