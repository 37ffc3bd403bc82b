# ruff: noqa: E501 (tables: one case a line)
"""Attacks on the graders: programs that aim at the tests (`attack_programs`), large texts."""

import time

import pytest
from attack_programs import ASKS, TABLES

from groupwise.sandbox import BROKEN_TESTS, SandboxUnavailable, run_code, shared_sandbox
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier
from groupwise.verifiers.code.extraction import python_source
from groupwise.verifiers.code.sql import orders_rows, same_rows

TWICE = {"what another harness would run", "what is never run"}
"""Tables whose tests are tried behind another one too."""
ENTRY = {"failures that are passed over": "f"}


@pytest.fixture(params=["A", "B"])
def tier(request):
    try:
        shared_sandbox(request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"no tier {request.param} on this machine: {error}")
    return request.param


def judged(tier, source, *tests, **options):
    """`passed`, `refused` (the tests are not fit to judge), or how it failed."""
    result = run_code(source, tests=list(tests), kind="asserts", tier=tier, **options)
    refused = result.reason.startswith(BROKEN_TESTS)
    assert refused or result.outcome != "infrastructure_error", result.reason
    return "refused" if refused else result.outcome


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, (tests, _) in TABLES.items() for name in tests]
)
def test_a_program_gets_what_its_table_says(tier, table, name):
    programs, wanted = TABLES[table]
    entry = programs[name]
    own, test, *setup = (None, entry) if isinstance(entry, str) else entry
    for solution, outcomes in wanted.items():
        source = own if solution is None else solution
        for tests in ((test,), (ASKS, test)) if table in TWICE else ((test,),):
            options = {"entry": ENTRY.get(table), "setup": setup[0] if setup else ""}
            assert judged(tier, source, *tests, **options) in outcomes.split(), (source, tests)


def test_a_deque_is_changed_in_place_like_a_list(tier):
    test = "from collections import deque\nd = deque([1])\nf(d)\nassert d == deque([1, 2])"
    assert judged(tier, "def f(d): d.append(2)", test) == "passed"
    assert judged(tier, "def f(d): d.appendleft(2)", test) == "failed"
    emptied = "from collections import deque\nd = deque([1])\nassert f(d) == len(d)"
    assert judged(tier, "def f(d):\n d.clear()\n return 0", emptied) == "failed"


N = 100_000
TEXTS = [
    "`" * N, "~" * N, "```\n" * (N // 4), "```python\n" * (N // 10), "\t" * N + "```python\nx", " \n" * (N // 2),
    "\n".join(["async\tdef" + "\t" * 50] * 1500), "f:" * (N // 2), "f" + " " * N + "x", "<think>" * (N // 7),
    "<think></think>" * (N // 15), "```sql " * (N // 7), "`select " * (N // 8), "```select " * (N // 9),
    ("```sql" + " " * 1000) * 95, " " * 5000 + "```python\n" + (" " * 5000 + "x\n") * 19, "```" + "a+-" * (N // 3),
    "```x```" * (N // 7), "~~~`\n```~\n" * (N // 10),
]  # fmt: skip


def test_no_text_costs_more_than_its_length():
    sql = load_verifier("sql")
    columns = {"setup": "create table t(a)"}
    for text in TEXTS:
        began = time.process_time()
        python_source(text, "f")
        sql.prepare(Case(Prompt("p", text="q", answer="select 1", columns=columns), text))
        assert time.process_time() - began < 1.0, text[:20]


def test_a_large_result_costs_nothing_beside_a_small_one():
    began = time.process_time()
    assert not same_rows([(1,)], [(0.1,) * 200] * 10_000, ordered=False)
    for query in ("(" * N, "'" + "''" * N, "[" * N, "/*" * N, "\"`['" * N):
        assert not orders_rows(query)
    assert time.process_time() - began < 1.0


ROWS = [
    ([(1,)], [("1",)], False), ([(b"a",)], [("a",)], False), ([(None,)], [("None",)], False), ([(0,)], [(None,)], False),
    ([(1,), (1,)], [(1,)], False), ([(1, 2)], [(2, 1)], False), ([(2**53 + 1,)], [(float(2**53),)], False), ([("a",)], [("A",)], False),
    ([(0.1 + 0.2,)], [(0.3,)], True), ([(-0.0,)], [(0,)], True), ([(1e300,)], [(float("inf"),)], False), ([("a', 'b",)], [("a", "b")], False),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "rows", "equal"), ROWS)
def test_rows(expected, rows, equal):
    assert same_rows(expected, rows, ordered=False) == equal
