r"""Write the labelled sets of the verifiers that judge by rules: answers, patterns, text, queries.

    python experiments/audit_rule_sets.py src/groupwise/verifiers/audit/sets

Nothing of groupwise is imported: a label follows from how the row was made, before any verifier has
seen it. Marks ⟦...⟧ are final answers, as in `audit_sets.py`, which writes the sets for numbers,
mathematics, choices and formats. Where a verifier has to be told what to look for, `arguments` say
with which the label holds; where a row brings it along, it stands in `columns`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from audit_sets import Row, row, write

WORDS = ("river", "stone", "cloud", "paper", "light", "green", "bread", "chair", "music", "night")


def exact(noise: random.Random) -> Iterator[Row]:
    """The whole text after the reasoning is the answer."""
    for word in noise.sample(WORDS, 6):
        other = noise.choice([each for each in WORDS if each != word])
        gold = f"{word} {other}"
        yield row(gold, gold, True, "as it is")
        yield row(gold, f"  {word}   {other}\n", True, "other white space")
        yield row(gold, f"<think>{other}?</think>\n{gold}", True, "behind the reasoning")
        yield row(gold, f"{other} {word}", False, "the words swapped")
        yield row(gold, gold.upper(), False, "another case")
        yield row(gold, f"{gold}.", False, "a character more")
        yield row(gold, f"{gold} or {other}", False, "two answers")
        yield row(gold, f"<think>{gold}</think>", False, "only in the reasoning")
        yield row(gold, f"<think>{gold}", False, "the reasoning never ends")
        yield row(gold, "", False, "nothing")
        yield row(gold, f"Not {gold}", False, "a word more in front")


PATTERN = r"\s*(?:The date is )?(?P<answer>\d{4}-\d{2}-\d{2})\.?\s*"


def regex(noise: random.Random) -> Iterator[Row]:
    """A date in one writing, alone or in one sentence."""
    for _ in range(6):
        year, month, day = noise.randint(1900, 2030), noise.randint(1, 11), noise.randint(10, 27)
        gold, other = f"{year}-{month:02d}-{day}", f"{year}-{month + 1:02d}-{day}"
        for text, accept, why in (
            (gold, True, "as it is"),
            (f"The date is {gold}.", True, "the sentence"),
            (f"<think>{other}?</think>\n{gold}\n", True, "behind the reasoning"),
            (other, False, "another month"),
            (f"{year}-{month:02d}-{day + 1}", False, "another day"),
            (f"{day}.{month}.{year}", False, "another writing"),
            (f"{gold} or {other}", False, "two answers"),
            (f"{other} {gold}", False, "two answers, the right one last"),
            (f"<think>{gold}</think>", False, "only in the reasoning"),
            ("", False, "nothing"),
            (PATTERN, False, "the pattern itself"),
        ):
            arguments = {"pattern": PATTERN, "full_match": True}
            yield row(gold, text, accept, why, arguments=arguments)


def json_schema(noise: random.Random) -> Iterator[Row]:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    for word in noise.sample(WORDS, 4):
        age = noise.randint(1, 90)
        for text, accept, why in (
            (f'{{"name": "{word}", "age": {age}}}', True, "the required keys"),
            (f'{{"age": {age}, "tags": ["{word}"], "name": "x"}}', True, "another order, more"),
            (f'```json\n{{"name": "{word}", "age": 0}}\n```', True, "fenced"),
            (f'<think>{{}}</think>{{"name": "{word}", "age": 1}}', True, "behind the reasoning"),
            (f'{{"name": "{word}"}}', False, "a key is missing"),
            (f'{{"name": "{word}", "age": "{age}"}}', False, "a text for a number"),
            (f'{{"name": "{word}", "age": -{age}}}', False, "below the minimum"),
            (f'{{"name": "{word}", "age": {age}.5}}', False, "no integer"),
            (f'{{"name": "", "age": {age}}}', False, "an empty text"),
            (f'{{"name": "{word}", "age": {age}, "more": 1}}', False, "a key too many"),
            (f'{{"name": "{word}", "age": {age}, "age": 1}}', False, "a key twice"),
            (f'{{"name": "{word}", "age": NaN}}', False, "not JSON's number"),
            (f'{{"name": "{word}", "age": {age}', False, "unclosed"),
            (f"{{'name': '{word}', 'age': {age}}}", False, "Python, not JSON"),
            (f'Here: {{"name": "{word}", "age": {age}}}', False, "words in front"),
            (f'{{"name": "{word}", "age": {age}, "tags": ["a", "b", "c"]}}', False, "too many"),
            ("[" * 200 + "]" * 200, False, "nested too deep"),
            ("", False, "nothing"),
            (f'<think>{{"name": "{word}", "age": 1}}</think>', False, "only in the reasoning"),
        ):
            yield row(None, text, accept, why, columns={"schema": schema})


PROSE = {
    "en": (
        "First we read the question carefully and write down what is given.",
        "Then we add the two numbers together and check the result once more.",
        "The train leaves the station every morning before the sun comes up.",
    ),
    "de": (
        "Zuerst lesen wir die Aufgabe genau und schreiben auf, was gegeben ist.",
        "Dann zählen wir die beiden Zahlen zusammen und prüfen das Ergebnis noch einmal.",
        "Der Zug verlässt den Bahnhof jeden Morgen, bevor die Sonne aufgeht.",
    ),
    "fr": (
        "D'abord nous lisons la question avec soin et nous notons ce qui est donné.",
        "Ensuite nous additionnons les deux nombres et nous vérifions encore le résultat.",
        "Le train quitte la gare chaque matin avant que le soleil se lève.",
    ),
    "es": (
        "Primero leemos la pregunta con cuidado y escribimos lo que se nos da.",
        "Luego sumamos los dos números y comprobamos el resultado una vez más.",
        "El tren sale de la estación todas las mañanas antes de que salga el sol.",
    ),
}


def language(noise: random.Random) -> Iterator[Row]:
    """Accepted where all of the reasoning (of the text, where there is none) is in the language."""
    for code, other in permutations(PROSE, 2):
        own, wrong = list(PROSE[code]), list(PROSE[other])
        noise.shuffle(own)
        for text, accept, why in (
            (" ".join(own), True, "all of it"),
            (f"<think>{own[0]}\n{own[1]}</think>\n{wrong[0]}", True, "the reasoning"),
            (f"{own[0]} $x^2 + 1$ `while True: pass` {own[1]}", True, "with code and formulas"),
            (" ".join(wrong), False, "another language"),
            (f"{own[0]} {wrong[1]}", False, "half and half"),
            (f"<think>{wrong[0]}</think>{own[0]}", False, "the reasoning in another"),
            (f"<think>{wrong[0]} {own[1]}</think>{own[0]}", False, "the reasoning mixed"),
        ):
            yield row(None, text, accept, why, columns={"language": code})


MAX_BYTES = 60


def length(noise: random.Random) -> Iterator[Row]:
    """Within so many tokens; in an audit without a model, a token is a byte."""
    for size in (0, 1, 10, 30, 59, 60, 61, 62, 75, 120, 500, 3000):
        text = "".join(noise.choice("abc de") for _ in range(size))
        arguments = {"max_tokens": MAX_BYTES}
        yield row(None, text, size <= MAX_BYTES, f"{size} bytes", arguments=arguments)
    yield row(None, "ä" * 30, True, "30 characters, 60 bytes", arguments={"max_tokens": MAX_BYTES})
    yield row(None, "ä" * 31, False, "31 characters, 62 bytes", arguments={"max_tokens": MAX_BYTES})


def repetition(noise: random.Random) -> Iterator[Row]:
    """Accepted where no four words in a row come up twice."""
    for _ in range(6):
        words = noise.sample(WORDS, 10)
        text = " ".join(words)
        yield row(None, text, True, "no word twice")
        yield row(
            None, f"{text}. {words[0]} {words[2]} {words[4]}", True, "words, no four in a row"
        )
        yield row(None, " ".join(words[:3]), True, "three words")
        yield row(None, f"{text} {text}", False, "said twice")
        yield row(None, f"{text} {' '.join(words[:4])}", False, "four words again")
        yield row(None, f"{' '.join(words[:4])} {text.upper()}", False, "again in capitals")
        yield row(None, f"{words[0]} " * 12, False, "one word twelve times")
        yield row(None, f"{text}\n\n{text}\n", False, "a paragraph twice")


def instructions(noise: random.Random) -> Iterator[Row]:
    """IFEval's ids; each label by how its text was put together."""
    for _ in range(3):
        one, two, three = noise.sample(WORDS, 3)
        asked: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
            ("keywords:existence", {"keywords": [one, two]},
             [f"The {one} and the {two}."], [f"The {one}.", f"{one}{two}", ""]),
            ("keywords:forbidden_words", {"forbidden_words": [one]},
             [f"The {two}."], [f"The {one}.", f"{one.upper()}!"]),
            ("keywords:frequency", {"keyword": one, "frequency": 3, "relation": "at least"},
             [f"{one} {one} {two} {one}"], [f"{one} {one}", f"{one}{one}{one}"]),
            ("length_constraints:number_words", {"num_words": 4, "relation": "less than"},
             [f"{one} {two} {three}"], [f"{one} {two} {three} {one}"]),
            ("punctuation:no_comma", {}, [f"{one} and {two}"], [f"{one}, {two}"]),
            ("change_case:english_lowercase", {},
             [" ".join(PROSE["en"]).lower()], [" ".join(PROSE["en"])]),
            ("detectable_format:title", {}, [f"<<{one} {two}>>\n{three}"], [f"<{one}>\n{three}"]),
            ("detectable_format:json_format", {}, [f'{{"{one}": 1}}'], [f"{{{one}: 1}}", one]),
            ("startend:end_checker", {"end_phrase": f"the {one} ends."},
             [f"{two}. The {one} ends."], [f"The {one} ends. {two}"]),
            ("startend:quotation", {}, [f'"{one} {two}"'], [f'"{one}" {two}', one]),
            ("detectable_format:number_bullet_lists", {"num_bullets": 2},
             [f"* {one}\n* {two}"], [f"* {one}", f"* {one}\n* {two}\n* {three}"]),
        ]  # fmt: skip
        for name, arguments, good, bad in asked:
            columns = {"instruction_id_list": [name], "kwargs": [arguments]}
            for text in good:
                yield row(None, text, True, f"follows {name}", columns=columns)
                yield row(
                    None, f"<think>{text}</think>", False, "in the reasoning", columns=columns
                )
            for text in bad:
                yield row(None, text, False, f"does not follow {name}", columns=columns)


SETUP = """
create table people (name text, age integer, city text);
insert into people values ('Ann', 30, 'Oslo'), ('Bo', 25, 'Oslo'), ('Cy', 41, 'Rome'),
  ('Di', 30, 'Bonn'), ('Ed', 19, 'Rome');
create table cities (city text, land text);
insert into cities values ('Oslo', 'Norway'), ('Rome', 'Italy'), ('Bonn', 'Germany');
"""
OTHER = SETUP + "insert into people values ('Flo', 27, 'Bonn'), ('Gus', 52, 'Oslo');"
QUERIES = (
    ("select name from people where age > 26",
     ["select name from people where age >= 27", "select p.name from people p where p.age > 26",
      "select name from people except select name from people where age <= 26"],
     ["select name from people", "select name, age from people where age > 26",
      "select name from people where age > 41", "select 'Ann' union all select 'Cy'"]),
    ("select city, count(*) from people group by city",
     ["select city, sum(1) from people group by city order by 2",
      "select c.city, count(p.name) from cities c join people p on p.city = c.city group by 1"],
     ["select count(*), city from people group by city", "select city from people group by city",
      "select distinct city, 1 from people"]),
    ("select name from people order by age desc, name limit 2",
     ["select name from (select * from people order by age desc, name limit 2)"
      " order by age desc, name"],
     ["select name from people order by age, name limit 2", "select name from people limit 2",
      "select name from people order by age desc, name limit 3"]),
    ("select p.name, c.land from people p join cities c on p.city = c.city",
     ["select name, land from people natural join cities",
      "select name, (select land from cities where city = people.city) from people"],
     ["select p.name, c.land from people p, cities c", "select name, city from people"]),
    ("select max(age) from people",
     ["select age from people order by age desc limit 1", "select max(age) + 0.0 from people"],
     ["select 41", "select max(name) from people", "select age from people", "select null"]),
)  # fmt: skip
HOSTILE = (
    ("drop table people", "drops"),
    ("delete from people", "deletes"),
    ("update people set age = 0", "writes"),
    ("attach database '/tmp/x.db' as x", "opens a file"),
    ("pragma writable_schema = 1", "a pragma"),
    ("select load_extension('x')", "loads a library"),
    ("select sql from sqlite_master", "reads the schema"),
    ("with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000)"
     " select x from n", "very many rows"),
    ("", "nothing"),
    ("The people above 26.", "no query"),
    ("<think>select 1", "the reasoning never ends"),
)  # fmt: skip


def sql() -> Iterator[Row]:
    """A query that gives the same rows on both databases, or does not."""
    columns = {"setup": [SETUP, OTHER]}
    for gold, same, different in QUERIES:
        yield row(gold, f"```sql\n{gold}\n```", True, "the query itself", columns=columns)
        for query in same:
            yield row(gold, f"```sql\n{query};\n```", True, "the same rows", columns=columns)
        for query in different:
            yield row(gold, f"```sql\n{query}\n```", False, "other rows", columns=columns)
        yield row(gold, f"<think>```sql\n{gold}\n```</think>", False, "reasoning", columns=columns)
        yield row(gold, f"```sql\n{gold}; drop table people\n```", False, "two", columns=columns)
    for query, why in HOSTILE:
        text = f"```sql\n{query}\n```" if query.startswith(("select", "with", "d")) else query
        yield row(QUERIES[0][0], text, False, why, columns=columns)


def main(folder: Path) -> None:
    noise = random.Random(21)
    folder.mkdir(parents=True, exist_ok=True)
    for make in (
        exact,
        regex,
        json_schema,
        language,
        length,
        repetition,
        instructions,
    ):
        if make is json_schema:
            for _ in range(6):
                noise.sample(WORDS, 5)  # what a removed set drew, so that the later ones stay
        write(folder, make.__name__, make(noise))
    write(folder, "sql", sql())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
