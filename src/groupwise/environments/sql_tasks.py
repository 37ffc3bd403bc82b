"""The `sql` environment: a question on two small tables, answered by a SQLite query.

Schema, rows and question are drawn by the seed. The prompt shows the schema, not the rows; the
query is judged by the rows it gives on databases of its own, several so that a lucky match is
unlikely. The same query is one family, on whatever rows.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from groupwise.environments.generated import DrawnSettings, Level, Task
from groupwise.environments.vocabulary import PEOPLE, WORDS, made_up_word
from groupwise.verifiers import VerifierSettings


@dataclass(frozen=True, slots=True)
class Theme:
    """Two linked tables: items with a category and two numbers, and who or what they belong to."""

    items: str
    category: str
    categories: tuple[str, ...]
    first: tuple[str, int, int]
    second: tuple[str, int, int]
    owners: str
    owner: str
    place: str
    places: tuple[str, ...]

    @property
    def schema(self) -> str:
        return (
            f"CREATE TABLE {self.owners} (id INTEGER PRIMARY KEY, name TEXT, {self.place} TEXT);\n"
            f"CREATE TABLE {self.items} (id INTEGER PRIMARY KEY, name TEXT, {self.category} TEXT, "
            f"{self.first[0]} INTEGER, {self.second[0]} INTEGER, {self.owner}_id INTEGER);"
        )


THEMES = (
    Theme("books", "genre", ("novel", "poetry", "history", "crime"), ("year", 1950, 2020),
          ("pages", 60, 900), "authors", "author", "country", ("Kenya", "Peru", "Norway")),
    Theme("players", "position", ("goal", "defence", "midfield", "attack"), ("age", 17, 38),
          ("goals", 0, 60), "teams", "team", "city", ("Lima", "Oslo", "Cairo")),
    Theme("recipes", "course", ("starter", "main", "dessert"), ("minutes", 5, 180),
          ("portions", 1, 12), "cooks", "cook", "town", ("Ulm", "Pisa", "Bath")),
    Theme("trips", "vehicle", ("bus", "train", "ferry", "bicycle"), ("distance", 1, 900),
          ("price", 1, 200), "drivers", "driver", "region", ("north", "south", "coast")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """A theme with everything drawn that a question may need."""

    theme: Theme
    value: str
    place: str
    number: str
    other: str
    low: int
    high: int


Form = Callable[[Choice], tuple[str, str]]
"""Words of a question, and the query that answers it."""


def _above(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the names of the {t.items} whose {c.number} is above {c.low}",
        f"SELECT name FROM {t.items} WHERE {c.number} > {c.low}",
    )


def _of_category(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"name and {c.number} of the {t.items} whose {t.category} is '{c.value}', the smallest "
        f"{c.number} first, equal ones by name",
        f"SELECT name, {c.number} FROM {t.items} WHERE {t.category} = '{c.value}' "
        f"ORDER BY {c.number}, name",
    )


def _count(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"how many {t.items} there are whose {c.number} is at most {c.high}",
        f"SELECT COUNT(*) FROM {t.items} WHERE {c.number} <= {c.high}",
    )


def _top(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the name of the one of the {t.items} with the largest {c.number} among those whose "
        f"{t.category} is not '{c.value}'; of equal ones the first by name",
        f"SELECT name FROM {t.items} WHERE {t.category} <> '{c.value}' "
        f"ORDER BY {c.number} DESC, name LIMIT 1",
    )


def _by_category(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"every {t.category} with the largest {c.other} of its {t.items} whose {c.number} is at "
        f"least {c.low}",
        f"SELECT {t.category}, MAX({c.other}) FROM {t.items} WHERE {c.number} >= {c.low} "
        f"GROUP BY {t.category}",
    )


def _having(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"every {t.category} whose {t.items} have an average {c.number} above {c.low}, with the "
        f"number of its {t.items}",
        f"SELECT {t.category}, COUNT(*) FROM {t.items} GROUP BY {t.category} "
        f"HAVING AVG({c.number}) > {c.low}",
    )


def _between(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the sum of the {c.other} of the {t.items} whose {c.number} is from {c.low} to {c.high}, "
        f"both included, and whose {t.category} is not '{c.value}'",
        f"SELECT SUM({c.other}) FROM {t.items} WHERE {c.number} BETWEEN {c.low} AND {c.high} "
        f"AND {t.category} <> '{c.value}'",
    )


def _joined(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the names of the {t.items} whose {c.number} is above {c.low} and whose {t.owner}'s "
        f"{t.place} is not '{c.place}'",
        f"SELECT i.name FROM {t.items} i JOIN {t.owners} o ON o.id = i.{t.owner}_id "
        f"WHERE i.{c.number} > {c.low} AND o.{t.place} <> '{c.place}'",
    )


def _per_owner(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"every {t.owner} with at least two {t.items} whose {c.number} is at most {c.high}: the "
        f"name, and the sum of the {c.other} of these {t.items}; the largest sum first, equal ones "
        "by name",
        f"SELECT o.name, SUM(i.{c.other}) FROM {t.owners} o JOIN {t.items} i "
        f"ON o.id = i.{t.owner}_id WHERE i.{c.number} <= {c.high} GROUP BY o.id "
        f"HAVING COUNT(*) >= 2 ORDER BY SUM(i.{c.other}) DESC, o.name",
    )


def _without(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the names of the {t.owners} that have none of the {t.items} whose {c.number} is above "
        f"{c.high}",
        f"SELECT name FROM {t.owners} WHERE id NOT IN "
        f"(SELECT {t.owner}_id FROM {t.items} WHERE {c.number} > {c.high})",
    )


def _above_average(c: Choice) -> tuple[str, str]:
    t = c.theme
    return (
        f"the names of the {t.items} whose {c.other} is above the average {c.other} of their "
        f"{t.category}, and whose {c.number} is at least {c.low}",
        f"SELECT name FROM {t.items} i WHERE {c.number} >= {c.low} AND {c.other} > "
        f"(SELECT AVG({c.other}) FROM {t.items} WHERE {t.category} = i.{t.category})",
    )


FORMS: dict[Level, tuple[Form, ...]] = {
    "easy": (_above, _of_category, _count, _top),
    "medium": (_by_category, _having, _between),
    "hard": (_joined, _per_owner, _without, _above_average),
}


class SqlSettings(DrawnSettings):
    """The arguments of `sql`; what is not set comes from the level."""

    environment_name: ClassVar = "sql"
    levels: ClassVar = {
        "easy": {"num_rows": 15},
        "medium": {"num_rows": 18},
        "hard": {"num_rows": 24},
    }

    num_train: int = Field(default=500, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=100, ge=0, description="Held-out prompts.")
    num_rows: int | None = Field(
        default=None, ge=9, le=500, description="Rows of the larger table; the other has a third."
    )
    num_databases: int = Field(
        default=2, ge=1, le=10, description="Databases that a query must give the right rows on."
    )

    @property
    def asks(self) -> str:
        return "Answer with one SQLite query in a block of SQL code."

    def reply(self, task: Task) -> str:
        return f"```sql\n{task.answer}\n```"

    def own_verifiers(self) -> list[VerifierSettings]:
        return [VerifierSettings(name="sql")]

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        choice = _choice(random)
        words, query = random.choice(FORMS[level])(choice)
        num_rows = self.bound("num_rows", level)
        scripts = [_script(random, choice, num_rows) for _ in range(self.num_databases)]
        results = [_rows(script, query) for script in scripts]
        # A query with no rows, or with the same rows everywhere, could be matched by luck.
        if not all(results) or (len(results) > 1 and all(each == results[0] for each in results)):
            return None
        if any(row == (None,) for result in results for row in result):
            return None
        schema = choice.theme.schema
        question = f"These tables are there:\n```sql\n{schema}\n```\nWanted: {words}."
        return Task(question, query, query, {"setup": scripts, "clauses": _clauses(query)})


def _clauses(query: str) -> int:
    """How much a query is made of: 2 for each JOIN and inner SELECT, 1 for each other clause."""
    found = re.findall(r"WHERE|AND|GROUP BY|HAVING|ORDER BY|JOIN|SELECT", query)
    return sum(2 if each in ("JOIN", "SELECT") else 1 for each in found)


def _choice(draw: random.Random) -> Choice:
    theme = draw.choice(THEMES)
    number, other = draw.sample([theme.first, theme.second], 2)
    low, high = sorted(draw.sample(range(number[1], number[2]), 2))
    return Choice(
        theme, draw.choice(theme.categories), draw.choice(theme.places), number[0], other[0], low,
        high,
    )  # fmt: skip


def _script(draw: random.Random, choice: Choice, num_rows: int) -> str:
    """Both tables with rows; some of them just at the question's bounds, on both sides.

    Without those, a query with a slightly wrong bound would often give the right rows.
    """
    theme = choice.theme
    num_owners = max(2, num_rows // 3)
    lines = [theme.schema]
    for number in range(1, num_owners + 1):
        name = draw.choice(PEOPLE) + " " + made_up_word(draw, 6).title()
        lines.append(
            f"INSERT INTO {theme.owners} VALUES ({number}, '{name}', '{draw.choice(theme.places)}')"
            ";"
        )
    bounds = [choice.low - 1, choice.low, choice.low + 1, choice.high, choice.high + 1]
    names = draw.sample(WORDS, num_rows) if num_rows <= len(WORDS) else None
    for number in range(1, num_rows + 1):
        name = names[number - 1] if names else f"{draw.choice(WORDS)} {number}"
        category = draw.choice(theme.categories)
        values = {each[0]: draw.randint(*each[1:]) for each in (theme.first, theme.second)}
        if number <= len(bounds):
            values[choice.number] = bounds[number - 1]
            category = draw.choice([each for each in theme.categories if each != choice.value])
        first, second = values[theme.first[0]], values[theme.second[0]]
        lines.append(
            f"INSERT INTO {theme.items} VALUES ({number}, '{name}', '{category}', {first}, "
            f"{second}, {draw.randint(1, num_owners)});"
        )
    return "\n".join(lines)


def _rows(script: str, query: str) -> list[tuple[Any, ...]]:
    """What one of this file's own queries gives."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(script)
        return connection.execute(query).fetchall()
    finally:
        connection.close()
