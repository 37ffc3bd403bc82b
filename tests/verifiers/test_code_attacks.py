# ruff: noqa: E501 (tables: one case a line)
"""Attacks on the graders: programs that aim at the tests (`attack_programs`), lookups, large texts."""

import time

import pytest
from attack_programs import ASKS, TABLES

from groupwise.sandbox import BROKEN_TESTS, SandboxUnavailable, run_code, shared_sandbox
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases
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


def values(columns, sources):
    verifier = load_verifier("code", literal_inputs="reject")
    prompt = Prompt("p", text="q", columns=columns)
    return [
        score.value for score in score_cases(verifier, [Case(prompt, each) for each in sources])
    ]


SQUARES = {"entry": "f", "tests": [[[2], 4], [[3], 9], [[5], 25]]}
PRIMES = {
    "entry": "f",
    "tests": [[[2], True], [[3], True], [[4], False], [[9], False], [[1], False]],
}
WORDS = {"entry": "f", "tests": [[["the quick brown fox"], 4], [["hello"], 1], [["a b"], 2]]}
LOOKUPS = [
    (SQUARES, "T = [(2, 4), (3, 9), (5, 25)]\ndef f(n):\n for a, b in T:\n  if a == n: return b"),
    (SQUARES, "def f(n): return dict(zip([2, 3, 5], [4, 9, 25]))[n]"),
    (SQUARES, "def f(n): return {'2': 4, '3': 9, '5': 25}[str(n)]"),
    (SQUARES, "def f(n):\n match n:\n  case 2: return 4\n  case 3: return 9\n  case _: return 25"),
    (SQUARES, "class D(dict):\n def __missing__(self, key): return 25\nd = D({2: 4, 3: 9})\ndef f(n): return d[n]"),
    (SQUARES, "def f(n): return (n == 2) * 4 + (n == 3) * 9 + (n == 5) * 25"),
    (SQUARES, "def f(n): return [4, 9, 25][[2, 3, 5].index(n)]"),
    (SQUARES, "def f(n):\n try: return {2: 4, 3: 9}[n]\n except KeyError: return 25"),
    (PRIMES, "def f(n): return n in (2, 3)"),
    (PRIMES, "def f(n): return {2: True, 3: True}.get(n, False)"),
    (WORDS, "def f(s): return {'the quick brown fox': 4, 'hello': 1, 'a b': 2}[s]"),
]  # fmt: skip
HONEST = [
    (SQUARES, "def f(n):\n if n == 0: return 0\n return n * n"),
    (SQUARES, "def f(n): return sum(2 * k + 1 for k in range(n))"),
    (SQUARES, "def f(n):\n if n == 1: return 1\n if n == 2: return 4\n return f(n - 1) + 2 * n - 1"),
    (SQUARES, "def f(n):\n known = {0: 0, 1: 1, 2: 4}\n for k in range(3, n + 1): known[k] = known[k - 1] + 2 * k - 1\n return known[n]"),
    (PRIMES, "def f(n):\n if n < 2: return False\n if n in (2, 3, 5, 7): return True\n if n % 2 == 0 or n % 3 == 0: return False\n k = 5\n while k * k <= n:\n  if n % k == 0 or n % (k + 2) == 0: return False\n  k += 6\n return True"),
    (PRIMES, "def f(n): return n > 1 and all(n % k for k in range(2, int(n ** 0.5) + 1))"),
    (PRIMES, "def f(n):\n if n in (2, 3): return True\n if n == 1: return False\n return all(n % k for k in (2, 3, 5, 7))"),
    (WORDS, "def f(s): return s.count(' ') + 1 if s else 0"),
    (WORDS, "import re\ndef f(s): return len(re.findall(r'\\w+', s))"),
]  # fmt: skip


def test_lookups_and_honest_programs():
    for cases, value in ((LOOKUPS, 0.0), (HONEST, 1.0)):
        for columns in (SQUARES, PRIMES, WORDS):
            sources = [source for each, source in cases if each is columns]
            found = dict(zip(sources, values(columns, sources)))
            assert {source: each for source, each in found.items() if each != value} == {}


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
        sql._prepared(Case(Prompt("p", text="q", answer="select 1", columns=columns), text))
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
