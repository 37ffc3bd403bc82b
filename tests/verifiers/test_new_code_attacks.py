# ruff: noqa: E501 (tables: one case a line)
"""Attacks by someone who did not write the graders: tests that judge nothing, lookups, large texts."""

import time

import pytest

from groupwise.sandbox import BROKEN_TESTS, SandboxUnavailable, run_code, shared_sandbox
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases
from groupwise.verifiers.code.extraction import python_source
from groupwise.verifiers.code.sql import orders_rows, same_rows


@pytest.fixture(params=["A", "B"])
def tier(request):
    try:
        shared_sandbox(request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"no tier {request.param} on this machine: {error}")
    return request.param


def judged(tier, source, test, **options):
    result = run_code(source, tests=[test], kind="asserts", tier=tier, **options)
    refused = result.reason.startswith(BROKEN_TESTS)
    assert refused or result.outcome != "infrastructure_error", result.reason
    return "refused" if refused else result.outcome


RIGHT, WRONG = "def f(x): return x * x", "def f(x): return 4"
CASE = "import unittest\nclass T(unittest.TestCase):\n"
NOTHING = {  # asserts nothing, whatever the solution
    "a printed comparison": "print(f(3) == 9)",
    "a call": "f(3)",
    "a printed value": "print(f(3))",
    "a truth that is kept": "ok = f(3) == 9",
    "truths that are printed": "results = [f(n) == n * n for n in (2, 3)]\nprint(all(results))",
    "a pair": "assert (f(3) == 9, 'message')",
    "a list": "assert [f(3) == 9]",
    "a generator": "assert (f(n) == n * n for n in (2, 3))",
    "a function": "assert lambda: f(3) == 9",
    "a warning": "import warnings\nif f(3) != 9: warnings.warn('wrong')",
    "a line in a log": "import logging\nif f(3) != 9: logging.error('wrong')",
    "a function of that name": "def assert_equal(a, b): return a == b\nassert_equal(f(3), 9)",
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_what_asserts_nothing_is_refused(tier, name):
    assert judged(tier, RIGHT, NOTHING[name]) == "refused"
    assert judged(tier, WRONG, NOTHING[name]) == "refused"


PASSED_OVER = {  # an assertion fails, and the test goes on
    "printed": "try:\n assert f(3) == 9\n print('ok')\nexcept AssertionError:\n print('failed')",
    "ignored": "try:\n assert f(3) == 9\nexcept Exception:\n pass",
    "bare, behind another": "assert f(2) == 4\ntry:\n assert f(3) == 9\nexcept:\n print('failed')",
    "suppressed": "import contextlib\nwith contextlib.suppress(AssertionError):\n assert f(3) == 9",
    "returned over": "def test_it():\n try:\n  assert f(3) == 9\n finally:\n  return",
    "in an executor": "from concurrent.futures import ThreadPoolExecutor\ndef t(): assert f(3) == 9\nwith ThreadPoolExecutor() as p: p.submit(t)",
    "gathered": "import asyncio\nasync def t(): assert f(3) == 9\nasync def m(): await asyncio.gather(t(), return_exceptions=True)\nasyncio.run(m())",
    "in a task": "import asyncio\nasync def t(): assert f(3) == 9\nasync def m():\n x = asyncio.create_task(t())\n await asyncio.sleep(0)\nasyncio.run(m())",
    "in a finalizer": "class A:\n def __del__(self): assert f(3) == 9\nA()",
    "a result of check": "def check(candidate): return candidate(3) == 9",
    "a result of a method": "class TestIt:\n def test_it(self): return f(3) == 9",
    "a result that is 0": "def test_it(): return int(f(3) == 9)",
}  # fmt: skip


@pytest.mark.parametrize("name", PASSED_OVER)
def test_a_failure_that_is_passed_over_is_a_failure(tier, name):
    assert judged(tier, RIGHT, PASSED_OVER[name], entry="f") == "passed"
    assert judged(tier, WRONG, PASSED_OVER[name], entry="f") == "failed"


ALTERNATIVES = {  # failures that the test judges further on
    "another assertion": "try:\n assert f(3) == 8\nexcept AssertionError:\n assert f(3) == 9",
    "a loop": "for want in (8, 9):\n try:\n  assert f(3) == want\n  break\n except AssertionError:\n  continue\nelse:\n raise AssertionError",
    "a helper": "def ok(x, y):\n try:\n  assert f(x) == y\n  return True\n except AssertionError:\n  return False\nassert ok(3, 9) and not ok(3, 8)",
    "any": "assert any(f(3) == want for want in (8, 9))",
    "printed as well": "print('got', f(3))\nassert f(3) == 9, 'message'\nprint('ok')",
    "a helper that asserts": "def equal(a, b): assert a == b\nequal(f(3), 9)",
    "raised": "if f(3) != 9: raise ValueError",
    "an exit": "import sys\nsys.exit(0 if f(3) == 9 else 1)",
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_failure_that_is_judged_further_on_is_none(tier, name):
    assert judged(tier, RIGHT, ALTERNATIVES[name]) == "passed"
    assert judged(tier, WRONG, ALTERNATIVES[name]) == "failed"


FORGE = "import os, json; raw = json.dumps(['result', 0, True, '']).encode(); os.write(4, len(raw).to_bytes(4, 'big') + raw); os._exit(0)"
EVALUATED = {
    "a doctest": "\"\"\"\n>>> vars(__import__('builtins'))['ev' + 'al'](f(3))\n9\n\"\"\"",
    "a loader": "import importlib.abc, types\ntext = f(3)\nclass L(importlib.abc.InspectLoader):\n def get_source(self, name): return text\n def is_package(self, name): return False\nL().exec_module(types.ModuleType('m'))\nassert text",
    "source to code": "import importlib.abc\nassert importlib.abc.InspectLoader.source_to_code(f(3))",
    "a profile": "import cProfile\ncProfile.run(f(3))\nassert f(3)",
    "a trace": "import trace\ntrace.Trace().run(f(3))\nassert f(3)",
    "a forward reference": "import typing\nassert typing.ForwardRef(f(3))._evaluate({}, {}, frozenset())",
    "a plural form": "import gettext\nassert gettext.c2py(f(3))(1) == 9",
    "fields": "import dataclasses\nassert dataclasses.make_dataclass('A', [f(3)])(9)",
    "a name of a tuple": "import collections\nassert collections.namedtuple(f(3), 'x')(9).x == 9",
    "a pickle in C": "import _pickle\nassert _pickle.loads(f(3)) == 9",
    "an interpreter": "m = __import__('co' 'de')\nassert m.InteractiveInterpreter().runsource(f(3)) is False",
}  # fmt: skip


@pytest.mark.parametrize("name", EVALUATED)
def test_a_reply_is_never_run(tier, name):
    for source in (f"def f(x): return {FORGE!r}", "def f(x): return '9'"):
        assert judged(tier, source, EVALUATED[name]) in ("failed", "refused")


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
    (PRIMES, "def f(n):\n if n < 2: return False\n if n == 2 or n == 3: return True\n if n % 2 == 0 or n % 3 == 0: return False\n k = 5\n while k * k <= n:\n  if n % k == 0 or n % (k + 2) == 0: return False\n  k += 6\n return True"),
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
