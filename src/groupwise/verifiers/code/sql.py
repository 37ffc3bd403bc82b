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
from groupwise.verifiers.code.sql_worker import Job
from groupwise.verifiers.core.contract import BatchVerifier, Case
from groupwise.verifiers.core.scores import TAG, BadAnswer, bad_answer, no_answer
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

Question = tuple[Any, Job]
"""The gold answer, and what a worker does."""


class Sql(BatchVerifier):
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

    def prepare(self, case: Case) -> Question | Score:
        gold = case.prompt.answer
        if gold is None or (isinstance(gold, str) and not gold.strip()):
            raise BadAnswer("the prompt has no gold query")
        if not isinstance(gold, str) and not _are_rows(gold):
            raise BadAnswer("the gold answer is neither a query nor a list of rows")
        setup = case.prompt.columns.get(self.setup_column)
        scripts = [setup] if isinstance(setup, str) and setup else setup
        if not isinstance(scripts, (list, tuple)) or not scripts:
            raise BadAnswer(f"no column {self.setup_column!r} with a script that makes tables")
        if not all(isinstance(each, str) for each in scripts):
            raise BadAnswer(f"column {self.setup_column!r} must hold scripts as text")
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        text = _ONE_LINE_FENCE.sub(r"\n```sql\n\1\n```\n", text)
        blocks = blocks_of(text, _LANGUAGES) or _INLINE.findall(text)
        query = (blocks[-1] if blocks else text).strip()
        if not query or (not blocks and "```" in query):
            return no_answer("no query after the reasoning")
        return gold, (list(scripts), gold if isinstance(gold, str) else None, query)

    def run(self, jobs: Sequence[Question]) -> list[Score]:
        replies = shared_pool(WORKER).map([job for _, job in jobs], self.time_limit, tries=2)
        return [self._score(gold, reply) for (gold, _), reply in zip(jobs, replies)]

    def _score(self, gold: Any, reply: Reply) -> Score:
        match reply.kind:
            case "timeout":
                return Score(0.0, "timeout", f"no rows after {self.time_limit:g} s, twice")
            case "out_of_memory":
                return Score(0.0, "out_of_memory", "the query needs too much memory")
            case "died":
                return Score(0.0, "crash", "the query ended its worker, twice")
            case "ok":
                kind, value = reply.value
            case _:
                return Score(None, "infrastructure_error", str(reply.value)[:300])
        if kind == "rows":
            return self._compared(gold, value)
        reason = str(value)[:300]
        if kind in ("setup", "gold"):
            return bad_answer(f"{kind}: {reason}")
        return Score(0.0, "limit" if kind == "rows_limit" else "incorrect", reason)

    def _compared(self, gold: Any, pairs: Sequence[tuple[Any, Any]]) -> Score:
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
