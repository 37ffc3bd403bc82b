"""The `sql` verifier: a query is right if it returns the gold query's rows.

The queries run in killable workers (`sql_worker.py`) on databases in memory, read-only and bounded;
a query is data, so this works where the code sandbox does not. The rows are compared here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.code.extraction import blocks_of
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import TAG, bad_answer, no_answer
from groupwise.waiting.processes import Reply, shared_pool

WORKER = "groupwise.verifiers.code.sql_worker:make"
_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"
    r"|[()]|\w+",
    re.DOTALL,
)
_LANGUAGES = {"sql", "sqlite", "sqlite3", "postgresql", "postgres", "mysql"}
_ONE_LINE_FENCE = re.compile(
    r"```[ \t]*+(?:(?:sql|sqlite3?|postgres(?:ql)?|mysql)\b[ \t]*+)?+"
    r"((?:select|with|values)\b(?:[^`\n]|`(?!``))*+)```",
    re.IGNORECASE,
)
_INLINE = re.compile(r"(?<!`)`((?:select|with|values)\b[^`]*+)`(?!`)", re.IGNORECASE)
_DIGITS = 9


class Sql(SettingsVerifier):
    """A SQLite query that returns the gold query's rows on every database of its row.

    The gold answer is a query, or a list of rows. The column `setup` holds the script that makes
    the tables, or a list of scripts: several databases make a lucky match less likely. Column names
    do not count, column order does.
    """

    verifier_name: ClassVar[str] = "sql"

    setup_column: str = Field(
        default="setup", description="The column with one script that makes tables, or several."
    )
    order: Literal["auto", "ignore", "require"] = Field(
        default="auto",
        description="Whether the rows' order counts; auto: where the gold query has an ORDER BY "
        "outside parentheses.",
    )
    time_limit: float = Field(
        default=5.0,
        gt=0,
        description="Seconds for a query. One that overruns is tried again; twice is `timeout`.",
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @property
    def needs_answer(self) -> bool:
        return True

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.setup_column})

    def gold_completion(self, prompt: Prompt) -> str | None:
        return f"```sql\n{prompt.answer}\n```" if isinstance(prompt.answer, str) else None

    @property
    def judges_singly(self) -> bool:
        return True

    def score(self, cases: Sequence[Case]) -> list[Any]:
        prepared = [self._prepared(case) for case in cases]
        rows = [row for row, each in enumerate(prepared) if not isinstance(each, Score)]
        scores: list[Any] = list(prepared)
        if rows:
            jobs = [prepared[row] for row in rows]
            replies = shared_pool(WORKER).map(jobs, self.time_limit, tries=2)
            for row, reply in zip(rows, replies):
                scores[row] = self._score(cases[row].prompt, reply)
        return scores

    def _prepared(self, case: Case) -> tuple[list[str], str | None, str] | Score:
        gold = case.prompt.answer
        if gold is None or (isinstance(gold, str) and not gold.strip()):
            return bad_answer("the prompt has no gold query")
        if not isinstance(gold, str) and not _are_rows(gold):
            return bad_answer("the gold answer is neither a query nor a list of rows")
        setup = case.prompt.columns.get(self.setup_column)
        scripts = [setup] if isinstance(setup, str) and setup else setup
        if not isinstance(scripts, (list, tuple)) or not scripts:
            return bad_answer(f"no column {self.setup_column!r} with a script that makes tables")
        if not all(isinstance(each, str) for each in scripts):
            return bad_answer(f"column {self.setup_column!r} must hold scripts as text")
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        text = _ONE_LINE_FENCE.sub(r"\n```sql\n\1\n```\n", text)
        blocks = blocks_of(text, _LANGUAGES)
        blocks = blocks or _INLINE.findall(text)
        query = (blocks[-1] if blocks else text).strip()
        if not query or (not blocks and "```" in query):
            return no_answer("no query after the reasoning")
        return list(scripts), gold if isinstance(gold, str) else None, query

    def _score(self, prompt: Prompt, reply: Reply) -> Score:
        if reply.kind == "timeout":
            return Score(0.0, "timeout", f"no rows after {self.time_limit:g} s, twice")
        if reply.kind == "out_of_memory":
            return Score(0.0, "out_of_memory", "the query needs too much memory")
        if reply.kind == "died":
            return Score(0.0, "crash", "the query ended its worker, twice")
        if reply.kind != "ok":
            return Score(None, "infrastructure_error", str(reply.value)[:300])
        kind, value = reply.value
        reason = str(value)[:300]
        if kind in ("setup", "gold"):
            return bad_answer(f"{kind}: {reason}")
        if kind == "rows_limit":
            return Score(0.0, "limit", reason)
        if kind == "query":
            return Score(0.0, "incorrect", reason)
        return self._compared(prompt, value)

    def _compared(self, prompt: Prompt, pairs: Sequence[tuple[Any, Any]]) -> Score:
        gold = prompt.answer
        ordered = self.order == "require" or (
            self.order == "auto" and isinstance(gold, str) and orders_rows(gold)
        )
        for number, (wanted, (width, rows)) in enumerate(pairs):
            expected = [tuple(row) for row in (gold if wanted is None else wanted[1])]
            place = f"database {number + 1}"
            if wanted is not None and width != wanted[0]:  # no rows do not tell how wide they are
                reason = f"{place}: {width} columns, the gold query has {wanted[0]}"
                return Score(0.0, "incorrect", reason)
            if not same_rows(expected, rows, ordered):
                reason = f"{place}: {len(rows)} rows that are not the {len(expected)} of the gold"
                return Score(0.0, "incorrect", f"{reason} query")
        return Score(1.0, "correct", f"the same rows on {len(pairs)} databases")


def orders_rows(query: str) -> bool:
    """Whether the whole query has an ORDER BY: one outside parentheses, strings and comments.

    >>> orders_rows("select a from t order by length(a) -- (x)")
    True
    >>> orders_rows("select count(*) from (select a from t order by a)")
    False
    """
    depth = 0
    words: list[str] = []
    for token in _TOKEN.findall(query):
        if token in "()":
            depth += 1 if token == "(" else -1
        elif depth == 0 and not token.startswith(("--", "/*")):
            words.append(token.lower())
    return ("order", "by") in pairwise(words)


def _are_rows(gold: Any) -> bool:
    """Whether an answer is a list of rows of SQL values."""
    return isinstance(gold, (list, tuple)) and all(
        isinstance(row, (list, tuple))
        and all(value is None or isinstance(value, (str, int, float, bytes)) for value in row)
        for row in gold
    )


def same_rows(
    expected: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]], ordered: bool
) -> bool:
    """Whether two results are equal: as lists, or as bags of rows.

    Whole numbers are compared exactly, written as floats or not; other floats to 9 digits.

    >>> same_rows([(1, "a"), (2, "b")], [(2.0, "b"), (1, "a")], ordered=False)
    True
    >>> same_rows([(10000000001,)], [(10000000002.0,)], ordered=False)
    False
    """
    if len(expected) != len(rows):  # before the work that its size costs
        return False
    one, other = [_canonical(row) for row in expected], [_canonical(row) for row in rows]
    return one == other if ordered else sorted(one) == sorted(other)


def _canonical(row: tuple[Any, ...]) -> str:
    """Text that is the same for equal rows; text, so that no row can choose its hash."""
    return repr([_canonical_value(value) for value in row])


def _canonical_value(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        return value
    rounding = min(1e-9 + 1e-12 * abs(value), 1e-3)
    if math.isfinite(value) and abs(value - round(value)) <= rounding:
        return round(value)
    return f"{value:.{_DIGITS}g}", "float"
