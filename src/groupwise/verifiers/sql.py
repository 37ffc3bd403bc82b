"""The `sql` verifier: a query is right where it gives the gold query's rows.

The queries run in killable workers (`sql_worker.py`) on databases in memory, read-only and bounded;
a query is data, so this works where the code sandbox does not. The rows are compared here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers import TAG, bad_answer, no_answer
from groupwise.verifiers.code_extraction import fenced_blocks
from groupwise.verifiers.contract import Case, SettingsVerifier
from groupwise.verifiers.extraction import after_reasoning
from groupwise.verifiers.workers import Reply, shared_pool

WORKER = "groupwise.verifiers.sql_worker:make"
_ORDERED = re.compile(r"\border\s+by\b[^)]*\Z", re.IGNORECASE)
_DIGITS = 9


class Sql(SettingsVerifier):
    """A SQLite query that gives the gold query's rows on every database of its row.

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
        description="Whether the rows' order counts; auto: where the gold query ends in ORDER BY.",
    )
    time_limit: float = Field(
        default=5.0,
        gt=0,
        description="Seconds for a query. One that overruns is tried again; twice is `timeout`.",
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.setup_column})

    def gold_completion(self, prompt: Prompt) -> str | None:
        return f"```sql\n{prompt.answer}\n```" if isinstance(prompt.answer, str) else None

    @property
    def judges_singly(self) -> bool:
        return True

    def score_case(self, case: Case) -> Score:
        score: Score = self.score([case])[0]
        return score

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
        setup = case.prompt.columns.get(self.setup_column)
        if setup is None or len(setup) == 0:
            return bad_answer(f"no column {self.setup_column!r} with a script that makes tables")
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        blocks = [each for each in fenced_blocks(text, {"sql", "sqlite", ""}) if each.strip()]
        query = (blocks[-1] if blocks else text).strip()
        if not query or (not blocks and "```" in query):
            return no_answer("no query after the reasoning")
        scripts = [setup] if isinstance(setup, str) else [str(each) for each in setup]
        return scripts, gold if isinstance(gold, str) else None, query

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
            self.order == "auto"
            and isinstance(gold, str)
            and _ORDERED.search(gold.rstrip().rstrip(";")) is not None
        )
        for number, (wanted, rows) in enumerate(pairs):
            expected = [tuple(row) for row in (gold if wanted is None else wanted)]
            if not same_rows(expected, rows, ordered):
                return Score(
                    0.0,
                    "incorrect",
                    f"database {number + 1}: {len(rows)} rows that are not the {len(expected)} "
                    "of the gold query",
                )
        return Score(1.0, "correct", f"the same rows on {len(pairs)} databases")


def same_rows(
    expected: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]], ordered: bool
) -> bool:
    """Whether two results are equal: as lists, or as bags of rows; floats to 9 digits.

    >>> same_rows([(1, "a"), (2, "b")], [(2.0, "b"), (1, "a")], ordered=False)
    True
    """
    one, other = [_plain(row) for row in expected], [_plain(row) for row in rows]
    return one == other if ordered else Counter(one) == Counter(other)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_plain_value(value) for value in row)


def _plain_value(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        value = float(f"{value:.{_DIGITS}g}")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
