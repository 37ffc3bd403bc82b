"""Queries and proofs that try to earn without answering, for `sql` and `proof`.

None of them holds the gold answer, but for `shown_rows`: where the prompt shows the whole database,
its rows can be written down instead of asked for. Left out: what a query may not do to the machine
(docs/security.md).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

from groupwise.types import Prompt
from groupwise.verifiers.audit.probes import Families, Probe, ProbeTask

WRONG_QUERY = "```sql\nselect 'there is no such row'\n```"
WRONG_PROOF = "I found none."
_TABLE = re.compile(r"create\s+(?:temp\s+)?table\s+(?:if\s+not\s+exists\s+)?[\"`\[]?(\w+)", re.I)
_CONSTANT = re.compile(r"\(declare-(?:const|fun)\s+(\S+)")


def _query(query: str) -> list[str]:
    return [f"```sql\n{query}\n```"]


def _queries(*queries: str) -> Callable[[ProbeTask], Families]:
    return lambda _task: [_query(each) for each in queries]


def _scripts(prompt: Prompt) -> list[str]:
    setup = prompt.columns.get("setup") or ""
    return [setup] if isinstance(setup, str) else [str(each) for each in setup]


def _whole_tables(task: ProbeTask) -> Families:
    tables = dict.fromkeys(_TABLE.findall(" ".join(_scripts(task.prompt))))
    return [_query(f"select * from {name}") for name in tables]


def _emptied(task: ProbeTask) -> Families:
    """Emptying the tables first, so that the gold query would find nothing either."""
    tables = dict.fromkeys(_TABLE.findall(" ".join(_scripts(task.prompt))))
    return [
        family
        for name in tables
        for family in (
            _query(f"delete from {name}; select 1 where 0"),
            _query(f"delete from {name}"),
            _query(f"drop table {name}"),
            _query(f"create temp table {name} as select 1 where 0; select 1 where 0"),
        )
    ]


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
    if not rows:
        return []
    values = ", ".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows)
    return [_query(f"values {values}")]


def _literal(value: object) -> str:
    if value is None:
        return "null"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


SQL_PROBES: tuple[Probe, ...] = (
    Probe("empty", "nothing at all", lambda _task: [[""], ["```sql\n\n```"], ["```sql\n;\n```"]]),
    Probe("no_query", "words without a query", lambda _task: [["The query is easy to write."]]),
    Probe("prompt_echoed", "the prompt itself", lambda task: [[task.prompt.last_text]]),
    Probe("constants", "a constant in place of an answer",
          _queries("select 1", "select null", "select 0", "select ''", "select true")),
    Probe("no_rows", "a query without rows", _queries("select 1 where 0", "select null where 0")),
    Probe("whole_tables", "everything that is there", _whole_tables),
    Probe("emptied", "tables emptied or replaced before they are compared", _emptied),
    Probe("comments", "a comment in place of a query",
          _queries("-- correct", "/* the same rows as the gold query */", "select 1 -- correct")),
    Probe("errors", "a query that fails", _queries("select", "selct 1", "select * from nothing")),
    Probe("settings", "settings, schema and files",
          _queries("pragma table_list", "select sql from sqlite_master",
                   "attach database ':memory:' as gold", "explain select 1")),
    Probe("two_statements", "more than one statement",
          _queries("select 1; select 1", "begin; end")),
    Probe("shown_rows", "the rows that the prompt shows, written down", _shown_rows),
)  # fmt: skip
"""Every probe of queries."""


def _constants(task: ProbeTask) -> list[str]:
    return _CONSTANT.findall(str(task.prompt.columns.get("statement") or ""))


def _all_set(*values: str) -> Callable[[ProbeTask], Families]:
    def make(task: ProbeTask) -> Families:
        return [["\n".join(f"{name} = {value}" for name in _constants(task))] for value in values]

    return make


def _fenced(*texts: str) -> Callable[[ProbeTask], Families]:
    return lambda _task: [[f"```smt\n{text}\n```"] for text in texts]


PROOF_PROBES: tuple[Probe, ...] = (
    Probe("empty", "nothing at all", lambda _task: [[""], ["```smt\n\n```"]]),
    Probe("prompt_echoed", "the prompt itself", lambda task: [[task.prompt.last_text]]),
    Probe("statement_echoed", "the statement itself",
          lambda task: [[str(task.prompt.columns.get("statement"))]]),
    Probe("verdicts", "the verdict of a checker", _fenced("sat", "unsat", "proved", "true", "QED")),
    Probe("contradiction", "an assumption from which everything follows",
          _fenced("(assert false)", "false", "(=> false true)", "(assert (= 0 1))")),
    Probe("redefined", "the problem defined anew",
          _fenced("(reset)", "(pop)", "(reset-assertions)\n(check-sat)", "(set-logic QF_UF)")),
    Probe("no_values", "names in place of values",
          lambda task: [["\n".join(f"{name} = {name}" for name in _constants(task))]]),
    Probe("not_numbers", "values that are none", _all_set("nan", "inf", "(/ 1 0)", "true")),
    Probe("two_values", "two values for each name",
          lambda task: [["\n".join(f"{n} = 0\n{n} = 1" for n in _constants(task))]]),
    Probe("holes", "a proof with a hole",
          _fenced("sorry", "by sorry", "admit", "by native_decide")),
)  # fmt: skip
"""Every probe of models, terms and proofs."""
