"""A repository as texts by path: the files in a completion, and the program that tests run against.

Nothing is written to a disk: the program imports its modules from the texts, inside the sandbox.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from groupwise.verifiers.answers.extraction import after_reasoning

Files = Mapping[str, str]
"""Source by path; paths are relative, with forward slashes."""

_OPENING = re.compile(r"```(?:python|py)?[ \t]+(\S+)\s*")

_PROGRAM = """\
import json as _json, sys as _sys
from importlib.machinery import ModuleSpec as _ModuleSpec
_files = _json.loads({texts})
class _Modules:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        stem = name.replace(".", "/")
        if stem + ".py" in _files:
            return _ModuleSpec(name, cls, origin=stem + ".py")
        if any(each.startswith(stem + "/") for each in _files):
            return _ModuleSpec(name, cls, origin=stem + "/__init__.py", is_package=True)
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        path = module.__spec__.origin
        exec(compile(_files.get(path, ""), path, "exec"), module.__dict__)
_sys.meta_path.insert(0, _Modules)
{imports}
"""


def check_path(path: str) -> None:
    """Raises ValueError unless the path is that of a module inside the repository.

    >>> check_path("shop/cart.py")
    """
    if not path.endswith(".py") or not all(
        part.isidentifier() for part in path.removesuffix(".py").split("/")
    ):
        raise ValueError(
            f"path {path!r} leaves the repository, or is not that of a module; give one such as "
            "'shop/cart.py'"
        )


def block(path: str, text: str) -> str:
    """A file as prompts show it and as completions give it."""
    return f"```python {path}\n{text.rstrip()}\n```"


def patched(files: Files, completion: str) -> dict[str, str]:
    """The repository with the files of a completion in it, each whole, after the reasoning.

    Raises ValueError where there is none, or its path leaves the repository.

    >>> patched({"a.py": "x = 1"}, "Fixed:\\n```python a.py\\nx = 2\\n```")
    {'a.py': 'x = 2\\n'}
    """
    found: dict[str, list[str]] = {}
    path = ""
    for line in (after_reasoning(completion) or "").splitlines(keepends=True):
        opened = _OPENING.fullmatch(line)
        if path and line.strip() == "```":
            path = ""
        elif path:
            found[path].append(line)
        elif opened:
            path = opened[1]
            check_path(path)
            found[path] = []
    if not found:
        raise ValueError("no file: give each changed file whole, in a block ```python PATH")
    return {**files, **{each: "".join(lines) for each, lines in found.items()}}


def read_tests(tests: Sequence[str], modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """What the tests import from the repository's modules, and the tests without these imports.

    A test runs apart from the code that it tests, which it reaches through the imported names.
    Raises ValueError for a source that does not parse or whose imports cannot be taken over.
    """
    roots = {path.removesuffix(".py").split("/")[0] for path in modules}
    imports: dict[str, str] = {}
    rest: list[str] = []
    for number, source in enumerate(tests, start=1):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"test {number} does not parse: {error}") from error
        for node in list(tree.body):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] in roots for name in names):
                raise ValueError(
                    f"test {number}: {ast.unparse(node)!r}: write `from module import function`"
                )
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in roots:
                tree.body.remove(node)
                for each in node.names:
                    line = f"from {node.module} import {ast.unparse(each)}"
                    name = each.asname or each.name
                    if imports.setdefault(name, line) != line:
                        raise ValueError(
                            f"test {number}: another test has another {name!r}; import one of "
                            f"them under another name, with `as`"
                        )
        rest.append(ast.unparse(tree))
    return list(imports.values()), rest


def program(files: Files, imports: Sequence[str]) -> str:
    """One source that has the repository's modules and the names that the tests import."""
    texts = json.dumps(dict(files)).replace("`", "\\u0060").replace("<", "\\u003c")
    return _PROGRAM.format(texts=repr(texts), imports="\n".join(imports))
