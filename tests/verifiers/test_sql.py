"""The sql verifier: rows, order, several databases, and what a query may not do."""

import resource
import time

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify
from groupwise.verifiers.code import sql
from groupwise.verifiers.code.extraction import python_source

SETUP = """
create table people (name text, age integer, city text);
insert into people values ('Ann', 30, 'Oslo'), ('Bo', 25, 'Oslo'), ('Cy', 41, 'Rome');
"""
OTHER = SETUP + "insert into people values ('Di', 25, 'Rome');"
GOLD = "select name from people where age > 26"


def scored(query, answer=GOLD, setup=SETUP, **arguments):
    return verify("sql", completion=query, answer=answer, columns={"setup": setup}, **arguments)


RIGHT = {
    "the gold query": (f"```sql\n{GOLD}\n```", GOLD),
    "another way": ("select name from people except select name from people where age<=26", GOLD),
    "another order": ("select name from people where age > 26 order by age desc", GOLD),
    "rows as the answer": ("select city, count(*) from people group by city",
                           [["Rome", 1], ["Oslo", 2]]),
    "floats": ("select 0.1 + 0.2", "select 0.3"),
    "recursive": ("with recursive n(x) as (select 1 union all select x + 1 from n where x < 5) "
                  "select max(x) from n", "select 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    query, answer = RIGHT[name]
    score = scored(query, answer)
    assert (score.value, score.outcome) == (1.0, "correct"), score.reason


WRONG = {
    "other rows": ("select name from people", "incorrect"),
    "more columns": ("select name, age from people where age > 26", "incorrect"),
    "not sql": ("the people above 26", "incorrect"),
    "two statements": (f"{GOLD}; drop table people", "incorrect"),
    "writes": ("insert into people values ('X', 1, 'Y')", "incorrect"),
    "drops": ("drop table people", "incorrect"),
    "attaches": ("attach database '/tmp/x.db' as x", "incorrect"),
    "pragma": ("pragma table_info(people)", "incorrect"),
    "loads": ("select load_extension('x')", "incorrect"),
    "nothing": ("<think>hm", "no_answer"),
    "endless": ("with recursive n(x) as (select 1 union all select x + 1 from n) "
                "select max(x) from n", "timeout"),
    "too many rows": ("with recursive n(x) as (select 1 union all select x + 1 from n "
                      "where x < 20000) select x from n", "limit"),
    "a huge value": ("select hex(zeroblob(100000000))", "incorrect"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    query, outcome = WRONG[name]
    score = scored(query, time_limit=1.0)
    assert (score.value, score.outcome) == (0.0, outcome), score.reason


def test_order_counts_where_the_gold_query_orders():
    gold = "select name from people order by age"
    assert scored("select name from people order by age", gold).value == 1.0
    assert scored("select name from people order by age desc", gold).value == 0.0
    assert scored("select name from people", gold, order="ignore").value == 1.0
    within = "select count(*) from (select name from people order by age)"
    assert scored("select 3", within).value == 1.0


ORDERED = [
    "select name from people order by length(name) desc, age",
    "select name from people order by (age) desc, lower(name)",
    "select name from people order by case when (age > 26) then 0 else 1 end, name",
    "select name from people order by age -- (x)",
    "select name from people order by age /* ) */;",
    "select name from people ORDER/**/BY age",
    "select name from (select * from people) order by age limit (2 + 1)",
]
UNORDERED = [
    "select name from people",
    "select name, row_number() over (order by age) from people",
    "select name from people where name != ' order by ' -- order by",
    'select name as "order by" from people',
    "with p as (select * from people order by age) select name from p",
]


@pytest.mark.parametrize("gold", [*ORDERED, *UNORDERED])
def test_order_counts_where_an_order_by_stands_outside_parentheses(gold):
    assert sql.orders_rows(gold) == (gold in ORDERED)


def test_a_reversed_order_is_wrong_where_the_gold_query_orders_by_a_call():
    gold = "select name from people order by length(city), abs(age) desc"
    assert scored("select name from people order by age desc", gold).value == 1.0
    assert scored("select name from people order by age", gold).value == 0.0


@pytest.mark.parametrize("language", ["sql", "SQL", "sqlite3", "postgresql", "postgres", "mysql"])
def test_fences_of_any_dialect_and_on_one_line(language):
    assert scored(f"Here:\n```{language}\n{GOLD}\n```\nThat is it.").value == 1.0
    assert scored(f"Here: ```{language} {GOLD}``` it is.").value == 1.0
    assert scored(f"```{language} {GOLD}```\nThat is it.").value == 1.0
    assert scored(f"```{GOLD}```").value == 1.0
    assert scored(f"```{language}\n{GOLD}\n```\n```{language} select 1```").value == 0.0


def test_a_fence_that_closes_behind_the_query_or_opens_behind_words():
    assert scored(f"```sql\n{GOLD}```").value == 1.0
    assert scored(f"```sql\n{GOLD}```\nThat is it.\n```sql\nselect 1\n```").value == 0.0
    assert scored(f"The query: ```sql\n{GOLD}\n```\nThat is it.").value == 1.0
    assert scored(f"```sql\n{GOLD}\n```\nIt gives:\n```\nAnn\n```").value == 1.0
    assert scored(f"The query is `{GOLD}`.").value == 1.0
    assert scored(f"`select 1` is too short; `{GOLD}`").value == 1.0
    assert scored(f"```sql\n{GOLD}\n```\nIt holds `select 1`.").value == 1.0
    assert scored("select `name` from `people`", "select name from people").value == 1.0
    assert scored(f"A ``` opens nothing.\n```sql\n{GOLD}\n```").value == 1.0


@pytest.mark.parametrize("language", ["python", "text", "json"])
def test_a_fence_of_another_language_is_no_query(language):
    assert scored(f"```{language}\n{GOLD}\n```").outcome == "no_answer"
    assert scored(f"```sql\n{GOLD}\n```\n```{language}\nselect 1\n```").value == 1.0


def test_two_queries_as_the_gold_answer_are_a_bad_answer():
    assert scored("select 1", "select 1; select 2").outcome == "bad_answer"


@pytest.mark.parametrize("setup", ["create table a (b);\0", "create table \ud800 (b)"])
def test_a_script_that_cannot_be_read_is_a_bad_answer(setup):
    assert scored("select 1", "select 1", setup=setup).outcome == "bad_answer"


@pytest.mark.parametrize("query", ["select '\ud800'", "select 1; select 1", "select 1\0"])
def test_a_query_that_cannot_be_read_is_wrong(query):
    assert scored(query, "select 1").value == 0.0


def test_without_rows_the_number_of_columns_tells():
    gold = "select name, age from people where age > 99"
    assert scored("select age, name from people where age > 99", gold).value == 1.0
    score = scored("select 1 where 0", gold)
    assert (score.value, score.reason) == (0.0, "database 1: 1 columns, the gold query has 2")


def test_whole_numbers_of_many_digits_are_compared_exactly_and_floats_to_nine():
    assert scored("select 1234567891.0", "select 1234567891").value == 1.0
    assert scored("select 1234567892", "select 1234567891").value == 0.0
    assert scored("select 0.1 + 0.2", "select 0.3").value == 1.0
    assert scored("select 0.30001", "select 0.3").value == 0.0
    assert scored("select 9e999", "select 9e999").value == 1.0
    assert scored("select 1.5", [[10**400]]).value == 0.0
    assert scored("select 'a', 1 union all select 2, 'b'", [[2.0, "b"], ["a", 1]]).value == 1.0


@pytest.mark.parametrize("answer", [5, [1], ["ab"], [[[1]]], {"a": 1}])
def test_an_answer_that_is_no_query_and_no_rows_is_a_bad_answer(answer):
    score = scored("select 1", answer)
    assert (score.value, score.outcome) == (None, "bad_answer")


@pytest.mark.parametrize("setup", [5, [5], "", [], {"a": 1}])
def test_a_setup_that_is_no_script_is_a_bad_answer(setup):
    score = scored("select 1", "select 1", setup=setup)
    assert (score.value, score.outcome) == (None, "bad_answer")


def test_no_rows_can_be_the_answer():
    assert scored("select name from people where age > 99", []).value == 1.0
    assert scored("select name from people", []).value == 0.0


def test_several_databases_unmask_a_lucky_query():
    lucky = "select name from people where age != 25"
    assert scored(lucky, "select name from people where age > 26").value == 1.0
    gold = "select name from people where city = 'Rome'"
    assert scored("select name from people where age > 40", gold).value == 1.0
    score = scored("select name from people where age > 40", gold, setup=[SETUP, OTHER])
    assert score.value == 0.0
    assert "database 2" in score.reason


def test_faults_of_the_data_are_not_scored_and_found_before_training():
    assert scored(GOLD, answer="select nothing from people").outcome == "bad_answer"
    assert scored(GOLD, setup="create tabel x").outcome == "bad_answer"
    assert scored(GOLD, answer=None).outcome == "bad_answer"
    verifier = load_verifier("sql")
    rows = [
        Prompt("good", text="q", answer=GOLD, columns={"setup": SETUP}),
        Prompt("bad", text="q", answer="select x from people", columns={"setup": SETUP}),
    ]
    good, bad = verifier.check_answers(rows)
    assert good is None
    assert "no such column: x" in bad


def test_a_batch_keeps_its_order():
    verifier = load_verifier("sql")
    prompt = Prompt("p", text="q", answer="select 1", columns={"setup": SETUP})
    cases = [Case(prompt, f"select {n}") for n in (0, 1, 2, 1)]
    assert [score.value for score in score_cases(verifier, cases)] == [0.0, 1.0, 0.0, 1.0]


EXACT = [  # gold, query, value
    ("select 10000000001", "select 10000000002.0", 0.0),
    ("select 10000000001", "select 10000000001.0", 1.0),
    ("select 10000000001.0", "select 10000000002", 0.0),
    ("select 10000000000", "select 10000000001.7", 0.0),
    ("select 1000000000001", "select 1000000000001.4", 0.0),
    ("select 9007199254740993", "select 9007199254740992", 0.0),
    ("select 3", "select 2.9999999999999996", 1.0),
    ("select avg(age) from people", "select sum(age) / 3.0 from people", 1.0),
    ("select 10000000001.25", "select 10000000001.25", 1.0),
    ("select 1.5", "select 1.50001", 0.0),
    ("select 1", "select '1'", 0.0),
]


@pytest.mark.parametrize(("gold", "query", "value"), EXACT)
def test_whole_numbers_are_exact_however_they_are_written(gold, query, value):
    assert scored(query, gold).value == value


MANY = (
    "with recursive n(x) as (select 1 union all select x + 1 from n where x < {}) select {} from n"
)
LARGE = {
    "blobs of a megabyte": (MANY.format(200, "zeroblob(1000000)"), "limit"),
    "texts of a megabyte": (MANY.format(200, "hex(zeroblob(499999))"), "limit"),
    "many columns": (MANY.format(9000, ", ".join("x" for _ in range(1500))), "limit"),
    "many short texts": (MANY.format(9999, "hex(zeroblob(1000))"), "limit"),
    "sorted blobs": (f"{MANY.format(400, 'zeroblob(400000) z')} order by z || x", "limit"),
    "a text that grows": ("select group_concat(hex(zeroblob(400000))) from people a, people b, "
                          "people c", "incorrect"),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_results_end_before_they_fill_the_memory(name):
    query, outcome = LARGE[name]
    pool = sql.shared_pool(sql.WORKER)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    score = scored(query, "select 1")
    assert (score.value, score.outcome) in ((0.0, outcome), (0.0, "out_of_memory")), score.reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64_000  # kilobytes
    assert pool is sql.shared_pool(sql.WORKER)


def test_rows_whose_hashes_collide_cost_nothing():
    step = (1 << 61) - 1
    values = " union all ".join(f"select {step * n} v" for n in (-4, -3, -2, -1, 1, 2, 3, 4))
    query = f"with t as ({values}) select a.v, b.v, c.v, d.v from t a, t b, t c, t d"
    rows = [[n, n, n, n] for n in range(8**4)]
    began = time.monotonic()
    assert scored(query, rows).value == 0.0
    assert time.monotonic() - began < 3.0


BLANK = 20_000
SLOW_TEXTS = {
    "blanks": " " * BLANK, "fence and blanks": "```" + " " * BLANK, "ticks": "`" * BLANK,
    "fences": "```\n" * BLANK, "named fences": "```sql " * BLANK, "lines of blanks": " \n" * BLANK,
    "an opened fence": "```sql\n" + "x`" * BLANK, "inline": "`select" * BLANK,
    "tildes": "~" * BLANK,
    "tabs and fences": "\t```" * BLANK, "fence, word, blanks": "```sql" + " " * BLANK + "x",
    "hyphens": "```" + "-" * BLANK, "quotes": '"""```' * BLANK, "reasoning": "<think " * BLANK,
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_finding_the_query_or_the_program_is_linear(name):
    text = SLOW_TEXTS[name]
    verifier = load_verifier("sql")
    prompt = Prompt("p", text="q", answer="select 1", columns={"setup": SETUP})
    began = time.monotonic()
    verifier.prepare(Case(prompt, text))
    python_source(text, "f")
    assert time.monotonic() - began < 1.0
