"""The `sql` environment: a question about two small tables, answered by a SQLite query.

Schema, rows and question are drawn by the seed. The prompt shows the schema, not the rows. The
query is judged by the rows it returns on several databases, so that a lucky match is unlikely. The
same query is one family, on whatever rows.
"""

from __future__ import annotations

import random
import re
import sqlite3
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


FORMS: dict[Level, tuple[tuple[str, str], ...]] = {
    "easy": (
        ("the names of the {items} whose {number} is above {low}",
         "SELECT name FROM {items} WHERE {number} > {low}"),
        ("name and {number} of the {items} whose {category} is '{value}', the smallest {number} "
         "first, equal ones by name",
         "SELECT name, {number} FROM {items} WHERE {category} = '{value}' ORDER BY {number}, name"),
        ("how many {items} there are whose {number} is at most {high}",
         "SELECT COUNT(*) FROM {items} WHERE {number} <= {high}"),
        ("the name of the one of the {items} with the largest {number} among those whose "
         "{category} is not '{value}'; of equal ones the first by name",
         "SELECT name FROM {items} WHERE {category} <> '{value}' "
         "ORDER BY {number} DESC, name LIMIT 1"),
    ),
    "medium": (
        ("every {category} with the largest {other} of its {items} whose {number} is at least "
         "{low}",
         "SELECT {category}, MAX({other}) FROM {items} WHERE {number} >= {low} "
         "GROUP BY {category}"),
        ("every {category} whose {items} have an average {number} above {low}, with the number of "
         "its {items}",
         "SELECT {category}, COUNT(*) FROM {items} GROUP BY {category} "
         "HAVING AVG({number}) > {low}"),
        ("the sum of the {other} of the {items} whose {number} is from {low} to {high}, both "
         "included, and whose {category} is not '{value}'",
         "SELECT SUM({other}) FROM {items} WHERE {number} BETWEEN {low} AND {high} "
         "AND {category} <> '{value}'"),
    ),
    "hard": (
        ("the names of the {items} whose {number} is above {low} and whose {owner}'s {where} is "
         "not '{place}'",
         "SELECT i.name FROM {items} i JOIN {owners} o ON o.id = i.{owner}_id "
         "WHERE i.{number} > {low} AND o.{where} <> '{place}'"),
        ("every {owner} with at least two {items} whose {number} is at most {high}: the name, and "
         "the sum of the {other} of these {items}; the largest sum first, equal ones by name",
         "SELECT o.name, SUM(i.{other}) FROM {owners} o JOIN {items} i ON o.id = i.{owner}_id "
         "WHERE i.{number} <= {high} GROUP BY o.id HAVING COUNT(*) >= 2 "
         "ORDER BY SUM(i.{other}) DESC, o.name"),
        ("the names of the {owners} that have none of the {items} whose {number} is above {high}",
         "SELECT name FROM {owners} WHERE id NOT IN "
         "(SELECT {owner}_id FROM {items} WHERE {number} > {high})"),
        ("the names of the {items} whose {other} is above the average {other} of their "
         "{category}, and whose {number} is at least {low}",
         "SELECT name FROM {items} i WHERE {number} >= {low} AND {other} > "
         "(SELECT AVG({other}) FROM {items} WHERE {category} = i.{category})"),
    ),
}  # fmt: skip
"""Questions by level, each with the query that answers it."""


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
        theme = random.choice(THEMES)
        names = _drawn(random, theme)
        words, query = (text.format(**names) for text in random.choice(FORMS[level]))
        num_rows = self.bound("num_rows", level)
        scripts = [_script(random, theme, names, num_rows) for _ in range(self.num_databases)]
        results = [_rows(script, query) for script in scripts]
        # A query with no rows, or with the same rows everywhere, could be matched by luck.
        if not all(results) or (len(results) > 1 and all(each == results[0] for each in results)):
            return None
        if any(row == (None,) for result in results for row in result):
            return None
        question = f"These tables are there:\n```sql\n{theme.schema}\n```\nWanted: {words}."
        return Task(question, query, query, {"setup": scripts, "clauses": _clauses(query)})


def _clauses(query: str) -> int:
    """How much a query is made of: 2 for each JOIN and inner SELECT, 1 for each other clause."""
    found = re.findall(r"WHERE|AND|GROUP BY|HAVING|ORDER BY|JOIN|SELECT", query)
    return sum(2 if each in ("JOIN", "SELECT") else 1 for each in found)


def _drawn(draw: random.Random, theme: Theme) -> dict[str, Any]:
    """The names and values that a question may need."""
    number, other = draw.sample([theme.first, theme.second], 2)
    low, high = sorted(draw.sample(range(number[1], number[2]), 2))
    return {
        "items": theme.items, "category": theme.category, "owners": theme.owners,
        "owner": theme.owner, "where": theme.place, "value": draw.choice(theme.categories),
        "place": draw.choice(theme.places), "number": number[0], "other": other[0], "low": low,
        "high": high,
    }  # fmt: skip


def _script(draw: random.Random, theme: Theme, chosen: dict[str, Any], num_rows: int) -> str:
    """Both tables with rows; some of them just at the question's bounds, on both sides.

    Without those, a query with a slightly wrong bound would often give the right rows.
    """
    num_owners = max(2, num_rows // 3)
    lines = [theme.schema]
    for number in range(1, num_owners + 1):
        name = draw.choice(PEOPLE) + " " + made_up_word(draw, 6).title()
        lines.append(
            f"INSERT INTO {theme.owners} VALUES ({number}, '{name}', '{draw.choice(theme.places)}')"
            ";"
        )
    low, high = chosen["low"], chosen["high"]
    bounds = [low - 1, low, low + 1, high, high + 1]
    names = draw.sample(WORDS, num_rows) if num_rows <= len(WORDS) else None
    for number in range(1, num_rows + 1):
        name = names[number - 1] if names else f"{draw.choice(WORDS)} {number}"
        category = draw.choice(theme.categories)
        values = {each[0]: draw.randint(*each[1:]) for each in (theme.first, theme.second)}
        if number <= len(bounds):
            values[chosen["number"]] = bounds[number - 1]
            category = draw.choice([each for each in theme.categories if each != chosen["value"]])
        first, second = values[theme.first[0]], values[theme.second[0]]
        lines.append(
            f"INSERT INTO {theme.items} VALUES ({number}, '{name}', '{category}', {first}, "
            f"{second}, {draw.randint(1, num_owners)});"
        )
    return "\n".join(lines)


def _rows(script: str, query: str) -> list[tuple[Any, ...]]:
    """The rows of one of this file's own queries."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(script)
        return connection.execute(query).fetchall()
    finally:
        connection.close()
