"""In a worker process: a query on a database of its own, in memory, read-only and bounded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

MAX_ROWS = 10_000
MAX_BYTES = 1_000_000
"""Bytes of one value, and of a query."""
MAX_RESULT = 16_000_000
"""Bytes of all values of a result, 8 for a number."""
MAX_HEAP = 256 << 20
"""Bytes that SQLite may use for one query."""

Rows = tuple[int, list[tuple[Any, ...]]]
"""How many columns a result has, and its rows."""
Job = tuple[Sequence[str], str | None, str]
"""Set-up scripts, one a database; the gold query or None; the query."""

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_FAULTS = (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError)
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}


def make() -> Callable[[Job], tuple[str, Any]]:
    """The function that a worker runs."""
    return run


def run(job: Job) -> tuple[str, Any]:
    """("rows", pairs of gold and given rows, one a database), or what failed and why.

    Failures: ("setup", why) and ("gold", why) are the data's, ("query", why) and ("rows_limit",
    why) the completion's.
    """
    scripts, gold, query = job
    pairs: list[tuple[Rows | None, Rows]] = []
    for script in scripts:
        connection = sqlite3.connect(":memory:")
        try:
            try:
                connection.executescript(script)
            except _FAULTS as error:
                return "setup", str(error) or "out of memory"
            _make_read_only(connection)
            wanted: Rows | None = None
            if gold is not None:
                try:
                    wanted = _rows(connection, gold)
                except _FAULTS as error:
                    return "gold", str(error) or "out of memory"
            try:
                pairs.append((wanted, _rows(connection, query)))
            except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
                return "query", str(error)
            except ValueError as error:
                return "rows_limit", str(error)
        finally:
            connection.close()
    return "rows", pairs


def _make_read_only(connection: sqlite3.Connection) -> None:
    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    connection.commit()
    connection.execute(f"pragma hard_heap_limit={MAX_HEAP}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(authorize)


def _rows(connection: sqlite3.Connection, query: str) -> Rows:
    cursor = connection.execute(query)
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
        if len(rows) > MAX_ROWS or size > MAX_RESULT:
            raise ValueError(f"more than {MAX_ROWS} rows or {MAX_RESULT} bytes")
    return len(cursor.description or ()), rows
