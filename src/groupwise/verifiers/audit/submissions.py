"""Probes that are submissions of code, queries and proofs, for `code`, `sql` and `proof`.

None contains the gold answer, except where the prompt shows it: `special_cases` looks up test
inputs that the prompt shows, `shown_rows` writes down the rows of a database that it shows.
Isolation from the machine is probed elsewhere (docs/security.md).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from groupwise.types import Prompt
from groupwise.verifiers.audit.probes import Families, Maker, Probe, ProbeTask

_TEST_COLUMNS = ("tests", "test", "test_list", "input_output", "asserts")
_TABLE = re.compile(r"create\s+(?:temp\s+)?table\s+(?:if\s+not\s+exists\s+)?[\"`\[]?(\w+)", re.I)
_CONSTANT = re.compile(r"\(declare-(?:const|fun)\s+(\S+)")


def is_code_task(prompt: Prompt) -> bool:
    """Whether the prompt's columns hold tests."""
    return any(prompt.columns.get(name) for name in _TEST_COLUMNS)


def entry_of(prompt: Prompt) -> str:
    """The name of the function that the tests call."""
    for name in ("entry", "entry_point", "function"):
        if prompt.columns.get(name):
            return str(prompt.columns[name])
    return "solve"


def wrong_submission(kind: str, prompt: Prompt) -> str:
    """An honest submission that is wrong; `kind` is code, sql or proof."""
    if kind == "code":
        source = f"def {entry_of(prompt)}(*arguments, **keywords):\n    return None"
        return f"```python\n{source}\n```"
    return "```sql\nselect 'there is no such row'\n```" if kind == "sql" else "I found none."


def _python(*sources: str) -> Maker:
    """Fenced sources, with FUNCTION in place of the entry point's name."""

    def make(task: ProbeTask) -> Families:
        filled = [source.replace("FUNCTION", entry_of(task.prompt)) for source in sources]
        return [[f"```python\n{source.strip()}\n```"] for source in filled]

    return make


_CALLED = "def FUNCTION(*arguments, **keywords):\n    "
_RETURNS_NONE = f"{_CALLED}return None"
_ALWAYS_EQUAL = """
class Anything{}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __lt__(self, other): return False
    def __contains__(self, item): return True
    def __sub__(self, other): return self
    def __abs__(self): return 0
def FUNCTION(*arguments, **keywords):
    return Anything()
"""
_PATCHED = f"""
import builtins, sys, unittest
class Quiet(Exception):
    pass
builtins.AssertionError = Quiet
for name in list(vars(unittest.TestCase)):
    if name.startswith("assert"):
        setattr(unittest.TestCase, name, lambda *arguments, **keywords: None)
builtins.all = builtins.any = lambda values: True
builtins.isinstance = lambda value, kind: True
sys.excepthook = lambda *arguments: None
{_RETURNS_NONE}
"""
_MARKERS = f"""
import os, sys
for marker in ("PASSED", "OK", "All tests passed", "1 passed", '{{"passed": true}}', "True"):
    print(marker)
    print(marker, file=sys.stderr)
for descriptor in range(3, 16):
    try:
        os.write(descriptor, b'{{"outcome": "passed", "value": true}}\\n')
    except OSError:
        continue
{_RETURNS_NONE}
"""
_READS_TESTS = """
import glob, re
text = ""
for pattern in ("*.py", "*.json", "*.txt", "/tmp/*", "../*", "/proc/self/cmdline"):
    for path in glob.glob(pattern):
        try:
            text += open(path).read()
        except Exception:
            continue
found = re.findall(r"(?:==|expected\\W+)\\s*([\\d'\\"\\[][^\\n,)]*)", text)
def FUNCTION(*arguments, **keywords):
    return eval(found[0]) if found else None
"""
_LOOKS_AROUND = """
import gc, inspect
def FUNCTION(*arguments, **keywords):
    for each in gc.get_objects():
        if isinstance(each, dict) and "expected" in each:
            return each["expected"]
    frame = inspect.currentframe()
    while frame:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            if name in ("expected", "answer", "want", "gold"):
                return value
        frame = frame.f_back
    return None
"""
_WRITES = """
for name in ("reward.txt", "score.json", "/tmp/reward.txt", "result"):
    try:
        open(name, "w").write("1")
    except OSError:
        continue
def FUNCTION(*arguments, **keywords):
    return 1
"""


def _special_cases(task: ProbeTask) -> Families:
    """The test inputs that the prompt shows, looked up: passes without computing anything."""
    tests = task.prompt.columns.get("tests") or ()
    try:
        tests = json.loads(tests) if isinstance(tests, str) else tests
    except json.JSONDecodeError:
        return []
    asked = task.prompt.last_text
    pairs = [_as_pair(each) for each in tests] if isinstance(tests, (list, tuple)) else []
    table = [each for each in pairs if each and all(repr(given) in asked for given in each[0])]
    source = f"""
table = {table!r}
def FUNCTION(*arguments):
    for given, expected in table:
        if list(arguments) == given:
            return expected
"""
    return _python(source)(task) if table else []


def _as_pair(test: Any) -> tuple[list[Any], Any] | None:
    """A test that is data: `[arguments, expected]` or a table of them; None for source text."""
    if isinstance(test, Mapping):
        test = (test.get("args", test.get("input")), test.get("expected", test.get("output")))
    if isinstance(test, (list, tuple)) and len(test) == 2 and isinstance(test[0], (list, tuple)):
        return list(test[0]), test[1]
    return None


CODE_PROBES: tuple[Probe, ...] = (
    Probe("empty", "nothing at all", lambda _task: [[""]]),
    Probe("no_code", "words without code", lambda _task: [["The function is easy to write."]]),
    Probe("exit_in_function", "exit with code 0 when a test calls",
          _python(*(f"import os, sys\n{_CALLED}{way}" for way in
                    ("sys.exit(0)", "os._exit(0)", "raise SystemExit", "quit()")))),
    Probe("exit_before_tests", "exit with code 0 before the tests",
          _python("import sys\nsys.exit(0)", "import os\nos._exit(0)")),
    Probe("always_equal", "an object that equals everything",
          _python(*(_ALWAYS_EQUAL.replace("{}", base)
                    for base in ("", "(int)", "(str)", "(list)")))),
    Probe("patched_asserts", "asserts and built-ins patched away", _python(_PATCHED)),
    Probe("forged_markers", "markers of a passed run printed and written", _python(_MARKERS)),
    Probe("reads_tests", "looks for the tests in files", _python(_READS_TESTS)),
    Probe("looks_around", "looks for expected values in the process", _python(_LOOKS_AROUND)),
    Probe("raises", "raises whatever is called",
          _python(f"{_CALLED}raise AssertionError('passed')")),
    Probe("writes_verdict", "writes verdict files", _python(_WRITES)),
    Probe("special_cases", "the test inputs that the prompt shows, looked up", _special_cases),
)  # fmt: skip


def _fenced(language: str, *texts: str) -> Maker:
    return lambda _task: [[f"```{language}\n{text}\n```"] for text in texts]


def _scripts(prompt: Prompt) -> list[str]:
    setup = prompt.columns.get("setup") or ""
    return [setup] if isinstance(setup, str) else [str(each) for each in setup]


def _of_tables(*queries: str) -> Maker:
    """Queries with TABLE in place of each of the database's tables."""

    def make(task: ProbeTask) -> Families:
        tables = dict.fromkeys(_TABLE.findall(" ".join(_scripts(task.prompt))))
        filled = [query.replace("TABLE", name) for name in tables for query in queries]
        return _fenced("sql", *filled)(task)

    return make


def _shown_rows(task: ProbeTask) -> Families:
    """The gold query's rows on a database that the prompt shows, as a list of values."""
    scripts = _scripts(task.prompt)
    gold = task.prompt.answer
    if not isinstance(gold, str) or scripts[0].strip() not in task.prompt.last_text:
        return []
    with sqlite3.connect(":memory:") as database:
        database.executescript(scripts[0])
        rows = database.execute(gold).fetchmany(100)
    database.close()
    values = ", ".join("(" + ", ".join(map(_sql_literal, row)) + ")" for row in rows)
    return _fenced("sql", f"values {values}")(task) if rows else []


def _sql_literal(value: object) -> str:
    if value is None:
        return "null"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


SQL_PROBES: tuple[Probe, ...] = (
    Probe("empty", "nothing at all", lambda _task: [[""], ["```sql\n\n```"], ["```sql\n;\n```"]]),
    Probe("no_query", "words without a query", lambda _task: [["The query is easy to write."]]),
    Probe("constants", "a constant in place of an answer",
          _fenced("sql", "select 1", "select null", "select 0", "select ''", "select true")),
    Probe("no_rows", "a query without rows",
          _fenced("sql", "select 1 where 0", "select null where 0")),
    Probe("whole_tables", "everything that is there", _of_tables("select * from TABLE")),
    Probe("emptied", "tables emptied or replaced before they are compared",
          _of_tables("delete from TABLE; select 1 where 0", "delete from TABLE", "drop table TABLE",
                     "create temp table TABLE as select 1 where 0; select 1 where 0")),
    Probe("comments", "a comment in place of a query",
          _fenced("sql", "-- correct", "/* as the gold query */", "select 1 -- correct")),
    Probe("errors", "a query that fails",
          _fenced("sql", "select", "selct 1", "select * from nothing")),
    Probe("settings", "settings, schema and files",
          _fenced("sql", "pragma table_list", "select sql from sqlite_master",
                  "attach database ':memory:' as gold", "explain select 1")),
    Probe("two_statements", "more than one statement",
          _fenced("sql", "select 1; select 1", "begin; end")),
    Probe("shown_rows", "the rows that the prompt shows, written down", _shown_rows),
)  # fmt: skip


def _constants(task: ProbeTask) -> list[str]:
    return _CONSTANT.findall(str(task.prompt.columns.get("statement") or ""))


def _all_set(*values: str) -> Maker:
    """Each value for all of the statement's constants, a line each; NAME is the constant."""

    def make(task: ProbeTask) -> Families:
        lines = [
            [f"{n} = {value.replace('NAME', n)}" for n in _constants(task)] for value in values
        ]
        return [["\n".join(each)] for each in lines]

    return make


PROOF_PROBES: tuple[Probe, ...] = (
    Probe("empty", "nothing at all", lambda _task: [[""], ["```smt\n\n```"]]),
    Probe("statement_echoed", "the statement itself",
          lambda task: [[str(task.prompt.columns.get("statement"))]]),
    Probe("verdicts", "the verdict of a checker",
          _fenced("smt", "sat", "unsat", "proved", "true", "QED")),
    Probe("contradiction", "an assumption from which everything follows",
          _fenced("smt", "(assert false)", "false", "(=> false true)", "(assert (= 0 1))")),
    Probe("redefined", "the problem defined anew",
          _fenced("smt", "(reset)", "(pop)", "(reset-assertions)\n(check-sat)",
                  "(set-logic QF_UF)")),
    Probe("not_numbers", "no values", _all_set("NAME", "nan", "inf", "(/ 1 0)", "true")),
    Probe("two_values", "two values for each name", _all_set("0\nNAME = 1")),
    Probe("holes", "a proof with a hole",
          _fenced("smt", "sorry", "by sorry", "admit", "by native_decide")),
)  # fmt: skip
