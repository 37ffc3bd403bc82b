"""Every group of a record in one small table, by which a page finds, filters and reads them.

A group's line is a few numbers, so a million rollouts fit in memory; the rollouts themselves stay
in their files until a page shows them. New steps of a running run are added as they appear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.records import Run

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

_TABLE = """
create table groups (step bigint, prompt_id varchar, visit bigint, kind varchar, members bigint,
  reward double, low double, high double, outcomes varchar[], finishes varchar[], place bigint)
"""
_ADD = """
insert into groups select step, prompt_id, {visit}, {kind}, count(*), avg(reward), min(reward),
  max(reward), list(distinct outcome), list(distinct finish_reason), min(file_row_number)
from read_parquet(?, file_row_number = true, union_by_name = true) group by all
"""
_SEARCH = """
create temp table matches as select distinct step, prompt_id, {visit} as visit, {kind} as kind
from read_parquet(?, union_by_name = true)
where contains(lower(text), lower(?)) {prompt}
"""
_KEY = "step, prompt_id, visit, kind"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which groups a page asks for; an empty value asks for all.

    `outcome` and `finish` hold of at least one rollout of the group, `text` is in a completion or
    the prompt, `signal` is "yes" or "no". `order` is "step", those that the doctor named first, or
    "random", the same at every call.
    """

    step: str = ""
    prompt_id: str = ""
    kind: str = ""
    outcome: str = ""
    finish: str = ""
    signal: str = ""
    text: str = ""
    order: str = "step"

    def __post_init__(self) -> None:
        legal = {"signal": ("", "yes", "no"), "order": ("step", "random")}
        for name, values in legal.items():
            if getattr(self, name) not in values:
                raise RecipeError(f"{name} = {getattr(self, name)!r}: one of {values}")
        if self.step and not self.step.isdecimal():
            raise RecipeError(f"step = {self.step!r} is not a whole number")

    def conditions(self) -> tuple[str, list[str]]:
        """As SQL over the table of groups, with its parameters."""
        equal = ("step", "prompt_id", "kind")
        found = {f"{name} = ?": getattr(self, name) for name in equal}
        found |= {"list_contains(outcomes, ?)": self.outcome}
        found |= {"list_contains(finishes, ?)": self.finish}
        kept = {sql: value for sql, value in found.items() if value}
        parts = ["true", *kept]
        if self.signal:
            test = "high - low > 1e-6 * greatest(abs(high), abs(low)) + 1e-7"
            parts.append(f"coalesce({test}, false) = {'true' if self.signal == 'yes' else 'false'}")
        if self.text:
            parts.append(f"({_KEY}) in (select ({_KEY}) from matches)")
        return " and ".join(parts), list(kept.values())


class GroupIndex:
    """The table of one run's groups. Safe to ask from several threads.

    Read when it is first asked for, and again for what is new where `stale` was set.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stale = True
        self._lock = RLock()
        self._known: dict[str, int] = {}
        self._searched: tuple[str, int] | None = None

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect()
        connection.execute(_TABLE)
        connection.execute("create temp table named (step bigint, prompt_id varchar)")
        return connection

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The table as of now, held. A file that changed or went makes it anew."""
        with self._lock:
            if self.stale:
                self.stale = False
                paths = self.run.rollout_files().values()
                now = {str(path): path.stat().st_mtime_ns for path in paths}
                kept = {path: time for path, time in self._known.items() if now.get(path) == time}
                if len(kept) < len(self._known):
                    self._ask("delete from groups")
                    kept = {}
                self._known = kept
                self._add([path for path in now if path not in kept])
                self._known = now
            yield

    def _add(self, paths: list[str]) -> None:
        if not paths:
            return
        self._ask(_ADD.format(**self._optional(paths[0])), [paths])
        if self._ask("select 1 from groups where step is null or prompt_id is null"):
            raise RecipeError(
                f"the record in {self.run.folder}/rollouts is damaged: step or prompt_id is null, "
                "and every rollout has one"
            )

    def name(self, samples: Sequence[tuple[int, str]]) -> None:
        """Groups that stand first from now on, by step and prompt."""
        with self._lock:
            self._ask("delete from named")
            for step, prompt_id in dict.fromkeys(samples):
                self._ask("insert into named values (?, ?)", [step, prompt_id])

    def find(self, wanted: Wanted, offset: int = 0, limit: int = 1) -> tuple[int, list[Row]]:
        """How many groups there are of those, and some of their lines, without rollouts."""
        with self._current():
            if not self._known:
                return 0, []
            if wanted.text:
                self._search(wanted.text)
            where, values = wanted.conditions()
            total = self._ask(f"select count(*) as n from groups where {where}", values)[0]["n"]
            order = "step, place" if wanted.order == "step" else "hash(step, prompt_id, visit)"
            rows = self._ask(
                f"select *, (step, prompt_id) in (select (step, prompt_id) from named) as named "
                f"from groups where {where} order by named desc, {order} limit ? offset ?",
                [*values, limit, offset],
            )
        return int(total), rows

    def facets(self) -> dict[str, list[Any]]:
        """The values that filters offer."""
        lists = {"outcome": "unnest(outcomes)", "finish": "unnest(finishes)"}
        with self._current():
            return {
                name: [
                    row["v"]
                    for row in self._ask(
                        f"select distinct {lists.get(name, name)} as v from groups order by v"
                    )
                ]
                for name in ("step", "kind", "outcome", "finish")
            }

    def visits(self, prompt_id: str) -> list[Row]:
        """Every group of one prompt, in step order."""
        return self.find(Wanted(prompt_id=prompt_id), limit=10_000)[1]

    def repeated(self, number: int) -> list[str]:
        """The prompts that were sampled in the most steps, at least two."""
        with self._current():
            rows = self._ask(
                "select prompt_id from groups group by prompt_id having count(distinct step) > 1 "
                "order by count(distinct step) desc, prompt_id limit ?",
                [number],
            )
        return [row["prompt_id"] for row in rows]

    def _search(self, text: str) -> None:
        key = (text, hash(tuple(self._known.items())))
        if key == self._searched:
            return
        self._ask("drop table if exists matches")
        paths = list(self._known)
        optional = self._optional(paths[0])
        values = [paths, text] + ([text] if optional["prompt"] else [])
        self._ask(_SEARCH.format(**optional), values)
        self._searched = key

    def _optional(self, path: str) -> Mapping[str, str]:
        """How the columns are read that a record may lack."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = pq.read_schema(path).names
        except (OSError, pa.ArrowException) as error:
            raise RecipeError(f"the record's {path} cannot be read: {error}") from error
        search = "or contains(lower(prompt), lower(?))" if "prompt" in names else ""
        found = {name: name if name in names else "null" for name in ("visit", "kind")}
        return {**found, "prompt": search}

    def _ask(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        import duckdb

        try:
            result = self._connection.execute(sql, values)
            names = [each[0] for each in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        except duckdb.Error as error:
            raise RecipeError(
                f"the record in {self.run.folder}/rollouts cannot be read: "
                f"{str(error).splitlines()[0]}"
            ) from error
