"""The sql verifier: rows, order, several databases, and what a query may not do."""

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify

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
