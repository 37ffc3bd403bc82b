"""The `code_package` verifier: several files that a completion writes, judged by hidden tests.

Each file stands in a fenced block whose first line is `# file: NAME`. The row's own files are there
as well, and a file that is written replaces the row's of that name. The files are modules inside
the sandbox; the tests are asserts that run in a process without them, as everywhere in
`groupwise.sandbox`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from groupwise.sandbox import Job
from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import bad_answer, no_answer
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.code.code import Code
from groupwise.verifiers.code.extraction import fenced_blocks
from groupwise.verifiers.code.rows import Task, read_task
from groupwise.verifiers.core.contract import Case

MAX_FILES = 20
"""Files that one completion may write."""

_HEADING = re.compile(r"\A\s*#[ \t]*file:[ \t]*(\S+)[ \t]*\n")
_NAME = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py")

LOADER = """\
import importlib.abc
import importlib.util
import sys

_FILES = {files}


class _Files(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        folder = base + "/"
        if base + ".py" in _FILES:
            return importlib.util.spec_from_loader(name, self)
        if any(file.startswith(folder) for file in _FILES):
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        base = module.__name__.replace(".", "/")
        name = base + ".py" if base + ".py" in _FILES else base + "/__init__.py"
        exec(compile(_FILES.get(name, ""), name, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, _Files())
{imports}
"""
"""The source that makes the files importable and names what the tests call."""


class CodePackage(Code):
    """A package of several files that passes its row's hidden tests.

    Columns: `files`, a table of names and sources that are there already; `exports`, a table of the
    names that the tests call and the modules they come from; `tests`, assert sources.
    """

    verifier_name: ClassVar[str] = "code_package"

    files_column: str = Field(
        default="files", min_length=1, description="The column with the files that are there."
    )

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.files_column, "exports", self.tests_column})

    def gold_completion(self, prompt: Prompt) -> str | None:
        return prompt.answer if isinstance(prompt.answer, str) else None

    def _prepared(self, case: Case) -> Job | Score:
        try:
            task = read_task(case.prompt, "tests", self.tests_column)
            given, exports = self._package(case.prompt)
        except ValueError as error:
            return bad_answer(str(error)[:300])
        text = after_reasoning(case.whole, self.reasoning_tag)
        written = written_files(text or "")
        if not written:
            return no_answer("no block that begins with `# file: NAME`")
        if len(written) > MAX_FILES:
            return Score(0.0, "limit", f"{len(written)} files; at most {MAX_FILES} are read")
        return self._job(loader({**given, **written}, exports), task)

    def _job(self, source: str, task: Task) -> Job | Score:
        if task.kind != "asserts":
            return bad_answer("the tests of a package are assert sources")
        return super()._job(source, task)

    def _package(self, prompt: Prompt) -> tuple[dict[str, str], dict[str, str]]:
        """The row's files and exports; `ValueError` where they are none."""
        files, exports = prompt.columns[self.files_column], prompt.columns["exports"]
        if not isinstance(files, Mapping) or not isinstance(exports, Mapping) or not exports:
            raise ValueError(f"{self.files_column} and exports must be tables, exports not empty")
        for name, source in files.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"file {name!r}: give a name as tools/first.py")
            if not isinstance(source, str):
                raise ValueError(f"file {name!r} = {source!r}: give its source as text")
        for name, module in exports.items():
            if (
                not isinstance(module, str)
                or not name.isidentifier()
                or not all(map(str.isidentifier, module.split(".")))
            ):
                raise ValueError(f"exports: {name!r} from {module!r} is no name of a module's")
        return dict(files), dict(exports)


def written_files(text: str) -> dict[str, str]:
    """Name and source of every file that a text writes; the last block of a name counts.

    >>> written_files("```python\\n# file: a/b.py\\nx = 1\\n```")
    {'a/b.py': 'x = 1\\n'}
    """
    found: dict[str, str] = {}
    for block in fenced_blocks(text, {"", "python", "py", "python3"}):
        heading = _HEADING.match(block)
        if heading and _NAME.fullmatch(heading[1]):
            found[heading[1]] = block[heading.end() :]
    return found


def loader(files: Mapping[str, str], exports: Mapping[str, str]) -> str:
    """One source that holds the files as modules and has every export under its own name."""
    imports = "\n".join(f"from {module} import {name}" for name, module in exports.items())
    table: Any = json.dumps(dict(files), ensure_ascii=True)
    source = LOADER.format(files=table, imports=imports)
    ast.parse(source)
    return source
