# ruff: noqa: E501 (tables: one case a line)
"""Graded runs of each kind: what passes, what does not, and with which outcome."""

from fractions import Fraction

import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import CodeResult, Job, Limits, run_code


def graded(sandbox, source, tests, **options):
    return sandbox.grade(Job(source, tests, **options))


CALLS = {
    "int": ("def f(n): return 2 * n + 1", ((2,), 5)),
    "several arguments": ("def f(a, b): return a - b", ((5, 3), 2)),
    "keyword": ("def f(a, b=1): return a - b", {"args": [5], "kwargs": {"b": 2}, "expected": 3}),
    "not a tuple": ("def f(a): return a", (7, 7)),
    "nested": ("def f(a): return {k: (v, None) for k, v in a}", (([("x", 1.5)],), {"x": (1.5, None)})),
    "set": ("def f(a): return set(a)", (([3, 1, 3],), {1, 3})),
    "big integer": ("def f(n): return 10 ** n", ((300,), 10**300)),
    "complex": ("def f(): return 1 + 2j", ((), 1 + 2j)),
    "bytes": ("def f(): return b'\\x00a'", ((), b"\x00a")),
    "many keys": ("def f(x): return len(x)", (({n: n for n in range(20000)},), 20000)),
    "nan": ("def f(): return float('nan')", ((), float("nan"))),
    "fraction": ("from fractions import Fraction\ndef f(): return Fraction(2, 4)", ((), Fraction(1, 2))),
    "Solution": ("class Solution:\n def f(self, n): return n + 1", ((1,), 2)),
    "subclass": ("from collections import Counter\ndef f(s): return Counter(s)", (("aab",), {"a": 2, "b": 1})),
    "named tuple": ("from collections import namedtuple\ndef f(): return namedtuple('P', 'x y')(1, 2)", ((), (1, 2))),
    "dataclass inside": ("from dataclasses import dataclass\n@dataclass\nclass P:\n x: int\ndef f(): return P(3).x", ((), 3)),
    "standard library": ("import heapq, re, math, itertools, bisect\ndef f(): return math.comb(5, 2)", ((), 10)),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)", ((20000,), 20000)),
    "a thread for its stack": ("import threading\nout = []\ndef f():\n threading.stack_size(2**26)\n t = threading.Thread(target=lambda: out.append(7)); t.start(); t.join()\n return out", ((), [7])),
    "an event loop": ("import asyncio\nasync def g(n):\n await asyncio.sleep(0.001)\n return n\ndef f(n): return asyncio.run(g(n))", ((5,), 5)),
    "tasks": ("import asyncio\nasync def g(n):\n await asyncio.sleep(0)\n return n * n\nasync def h(n): return await asyncio.gather(*map(g, range(n)))\ndef f(n): return asyncio.run(h(n))", ((4,), [0, 1, 4, 9])),
    "a queue of tasks": ("import asyncio\nasync def h(n):\n q = asyncio.Queue()\n async def put():\n  for k in range(n): await q.put(k)\n t = asyncio.create_task(put())\n out = [await q.get() for _ in range(n)]\n await t\n return out\ndef f(n): return asyncio.run(h(n))", ((3,), [0, 1, 2])),
    "a timeout of a task": ("import asyncio\nasync def h():\n try:\n  async with asyncio.timeout(0.01): await asyncio.sleep(9)\n except TimeoutError: return 'late'\ndef f(): return asyncio.run(h())", ((), "late")),
    "an old event loop": ("import asyncio\nasync def g(): return 7\ndef f():\n loop = asyncio.new_event_loop()\n asyncio.set_event_loop(loop)\n try: return loop.run_until_complete(g())\n finally: loop.close()", ((), 7)),
    "a lock and an event": ("import asyncio\nasync def h():\n e, l = asyncio.Event(), asyncio.Lock()\n asyncio.get_running_loop().call_later(0.001, e.set)\n async with l: await e.wait()\n return e.is_set()\ndef f(): return asyncio.run(h())", ((), True)),
    "a thread for a task": ("import asyncio\nasync def h(): return await asyncio.to_thread(pow, 2, 5)\ndef f(): return asyncio.run(h())", ((), 32)),
    "a wake-up": ("import asyncio\nasync def h():\n loop = asyncio.get_running_loop(); x = loop.create_future()\n loop.call_soon_threadsafe(x.set_result, 3)\n return await x\ndef f(): return asyncio.run(h())", ((), 3)),
    "an asynchronous generator": ("import asyncio\nasync def g(n):\n for k in range(n): yield k\nasync def h(n): return [k async for k in g(n)]\ndef f(n): return asyncio.run(h(n))", ((3,), [0, 1, 2])),
    "twice": ("import asyncio\nasync def g(n): return n\ndef f(n): return asyncio.run(g(n)) + asyncio.run(g(n))", ((2,), 4)),
    "an executor": ("from concurrent.futures import ThreadPoolExecutor\ndef f(n):\n with ThreadPoolExecutor(4) as pool: return list(pool.map(lambda k: k + 1, range(n)))", ((3,), [1, 2, 3])),
    "an executor's errors": ("from concurrent.futures import ThreadPoolExecutor, as_completed\ndef f():\n with ThreadPoolExecutor() as pool: return [type(each.exception()).__name__ for each in as_completed([pool.submit(int, 'x')])]", ((), ["ValueError"])),
    "a module that few import": ("import colorsys, http.client, xml.dom.minidom, ssl, sched\ndef f(): return 1", ((), 1)),
    "its own identity": ("import os, threading\ndef f(): return os.getpid() == os.getpid() and threading.get_ident() > 0", ((), True)),
    "no file": ("import os\ndef f():\n try: open('input.txt')\n except FileNotFoundError: return os.path.exists('input.txt')", ((), False)),
    "prints": ("def f(n):\n print('x' * n)\n return n", ((100,), 100)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_pass(tier_b, name):
    source, test = CALLS[name]
    assert graded(tier_b, source, [test], entry="f") == CodeResult(
        "passed", 1, 1, "1 of 1 cases", ("passed",)
    )


FAILING_CALLS = {
    "wrong": ("def f(n): return n", "failed", "gave 2"),
    "wrong type": ("def f(n): return '5'", "failed", "gave '5'"),
    "bool": ("def f(n): return True", "failed", "gave True"),
    "raises": ("def f(n): return 1 // 0", "failed", "ZeroDivisionError"),
    "syntax": ("def f(n) return 5", "failed", "SyntaxError"),
    "no such function": ("def g(n): return 5", "failed", "NameError"),
    "raises while loading": ("raise ValueError('no')\ndef f(n): return 5", "failed", "ValueError: no"),
    "exit while loading": ("import sys; sys.exit(0)", "failed", "SystemExit"),
    "recursion": ("def f(n): return f(n)", "failed", "RecursionError"),
    "generator": ("def f(n): yield 5", "failed", "generator"),
    "nested too deep": ("def f(n):\n x = 5\n for _ in range(99): x = [x]\n return x", "failed", "too deep"),
    "too many digits": ("def f(n): return 1 << 200000", "failed", "digits"),
    "endless": ("def f(n):\n while True: pass", "timeout", "0.5 s"),
    "endless while loading": ("while True:\n try:\n  while True: pass\n except BaseException: pass", "timeout", "0.5 s"),
    "sleeps": ("import time\ndef f(n): time.sleep(60)", "timeout", "0.5 s"),
    "exits": ("import os\ndef f(n): os._exit(0)", "crash", "exit code 0"),
    "aborts": ("import ctypes\ndef f(n): ctypes.string_at(0)", "crash", "SIGSEGV"),
    "memory": ("def f(n): return len(bytearray(8 << 30))", "out_of_memory", "MemoryError"),
    "a huge value": ("def f(n): return 'x' * (2 << 20)", "limit", "bytes"),
    "a new thread": ("import _thread\ndef f(n): _thread.start_new_thread(f, (n,)); return 5", "failed", "can't start"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING_CALLS)
def test_calls_that_do_not_pass(tier_b, name):
    source, outcome, reason = FAILING_CALLS[name]
    result = graded(tier_b, source, [((2,), 5)], entry="f", limits=Limits(time=0.5))
    assert (result.outcome, result.passed, result.total) == (outcome, 0, 1)
    assert reason in result.reason


def test_a_fraction_of_the_cases(sandbox):
    tests = [((n,), n * n) for n in range(6)]
    result = graded(sandbox, "def f(n): return n * n if n < 4 else 0", tests, entry="f")
    assert (result.outcome, result.passed, result.total) == ("failed", 4, 6)
    assert result.reason == "case 5 of 6: gave 0"
    early = graded(sandbox, "def f(n): return 0 if n < 1 else 9", tests, entry="f", stop_early=True)
    assert early.cases == ("passed", "failed")


def test_a_crash_costs_one_case_and_a_timeout_the_rest(sandbox):
    source = "import os, time\ndef f(n):\n {n == 1 and os._exit(3), n == 3 and time.sleep(60)}\n return n"
    tests = [((n,), n) for n in range(6)]
    result = graded(sandbox, source, tests, entry="f", limits=Limits(time=0.6))
    assert result.cases == ("passed", "crash", "passed", "timeout")
    assert (result.outcome, result.passed, result.total) == ("crash", 2, 6)


def test_state_is_shared_by_a_runs_cases_unless_they_are_fresh(sandbox):
    source = "seen = []\ndef f():\n seen.append(1)\n return len(seen)"
    tests = [((), 1), ((), 1)]
    assert graded(sandbox, source, tests, entry="f").cases == ("passed", "failed")
    assert graded(sandbox, source, tests, entry="f", fresh=True).cases == ("passed", "passed")


def test_the_total_time_bounds_a_run(tier_b):
    source = "import time\ndef f(): time.sleep(0.4)"
    limits = Limits(time=5.0, total_time=1.0)
    result = graded(tier_b, source, [((), None)] * 50, entry="f", limits=limits)
    assert result.outcome == "timeout"
    assert 1 <= result.passed <= 3


def test_random_numbers_and_sets_are_the_same_in_every_run(sandbox):
    source = "import random\ndef f(): return [random.random(), list({'a', 'b', 'c', 'd'})]"
    results = {graded(sandbox, source, [((), 0)], entry="f").reason for _ in range(3)}
    assert len(results) == 1


PROGRAMS = {
    "input": ("print(int(input()) + 1)", ("1", "2\n"), "passed"),
    "all of stdin": ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", ("1 2\n3", "6"), "passed"),
    "descriptor 0": ("import os\nos.write(1, os.read(0, 100))", ("hello", "hello"), "passed"),
    "main guard": ("def main(): print('x')\nif __name__ == '__main__': main()", ("", "x"), "passed"),
    "exit 0": ("import sys\nprint(1)\nsys.exit()", ("", "1"), "passed"),
    "lines given": ("print(input()); print(input())", (["a", "b"], ["a", "b"]), "passed"),
    "trailing blanks": ("print('1 ')\nprint()", ("", "1"), "passed"),
    "written at exit": ("import atexit, os\natexit.register(lambda: os.write(1, b'7'))", ("", "7"), "passed"),
    "a large input": ("print(len(open(0).read()))", ("x" * 3_000_000, "3000000"), "passed"),
    "an input file that is not there": ("import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\nprint(input())", ("7", "7"), "passed"),
    "fast input": ("import io, os\nprint(sum(map(int, io.BytesIO(os.read(0, os.fstat(0).st_size)).read().split())))", ("1 2\n3", "6"), "passed"),
    "fast input in blocks": ("import os\nread = b''\nwhile chunk := os.read(0, max(os.fstat(0).st_size, 8192)): read += chunk\nprint(len(read))", ("x" * 300_000, "300000"), "passed"),
    "a fast output": ("import io, os, sys\nout = io.BytesIO()\nsys.stdout = io.TextIOWrapper(out)\nprint(os.fstat(1).st_size)\nsys.stdout.flush()\nos.write(1, out.getvalue())", ("", "0"), "passed"),
    "an asynchronous program": ("import asyncio\nasync def main(): print(await asyncio.sleep(0, input()))\nasyncio.run(main())", ("7", "7"), "passed"),
    "wrong": ("print(3)", ("", "2"), "failed"),
    "nothing": ("", ("", "2"), "failed"),
    "right and exit 1": ("import sys\nprint(2)\nsys.exit(1)", ("", "2"), "failed"),
    "right and raises": ("print(2)\nraise ValueError", ("", "2"), "failed"),
    "right and crashes": ("print(2, flush=True)\nimport ctypes\nctypes.string_at(0)", ("", "2"), "crash"),
    "no input": ("input()", ("", ""), "failed"),
    "endless": ("while True: pass", ("", "2"), "timeout"),
    "closes its output": ("import os, time\nos.close(1)\ntime.sleep(60)", ("", ""), "timeout"),
    "endless output": ("while True: print('x' * 1000)", ("", "2"), "limit"),
    "memory": ("x = bytearray(8 << 30)", ("", "2"), "out_of_memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(tier_b, name):
    source, test, outcome = PROGRAMS[name]
    limits = Limits(time=1.0 if outcome in ("timeout", "limit") else 5.0)
    result = graded(tier_b, source, [test], kind="stdio", limits=limits)
    assert result.outcome == outcome, result.reason


def test_programs_on_both_tiers_are_fresh_for_each_case(sandbox):
    tests = [("1", "1.5"), ("2", "2.5"), ("3", "9")]
    result = graded(sandbox, "print(float(input()) + 0.50001)", tests, kind="stdio", tolerance=1e-3)
    assert result.cases == ("passed", "passed", "failed")
    assert result.reason == "case 3 of 3: printed '3.50001\\n'"


def test_asserts_in_the_writing_of_mbpp_and_humaneval(sandbox):
    source = "def add(a, b): return a + b\ndef broken(a): return None"
    tests = ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'", "assert broken(1) == 1"]
    result = graded(sandbox, source, tests, kind="asserts")
    assert result.cases == ("passed", "passed", "failed")
    assert result.reason == "case 3 of 3: assert broken(1) == 1: AssertionError"
    check = "def check(candidate):\n    assert candidate(2, 3) == 5\ncheck(add)"
    assert graded(sandbox, source, [check], kind="asserts", entry="add").passed_all


ASSERTS = {
    "raises": ("def f(x): raise ValueError('no')", "try:\n f(1)\nexcept ValueError as e:\n assert str(e) == 'no'", "passed"),
    "its own exception": ("class Odd(KeyError): pass\ndef f(x): raise Odd('no')", "try:\n f(1)\nexcept KeyError:\n pass", "passed"),
    "changed in place": ("def f(x): x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]", "passed"),
    "changed in place and given": ("def f(x): x.sort(); return x", "x = [2, 1]\nf(x)\nassert x == [1, 2]", "passed"),
    "changed through a name": ("def f(x): x.sort(); return x", "def check(g):\n x = [2, 1]\n g(x)\n assert x == [1, 2]\ncheck(f)", "passed"),
    "changed by keyword": ("def f(a, k): k.update({a})", "x = {1}\nf(2, k=x)\nassert x == {1, 2}", "passed"),
    "nothing given and looked at": ("def f(x): x.reverse()", "x = [2, 1]\nassert f(x) is None\nassert x == [1, 2]", "passed"),
    "an exception's arguments": ("def f(x): raise KeyError('no', 3)", "try:\n f(1)\nexcept KeyError as e:\n assert e.args == ('no', 3)", "passed"),
    "an exception's text": ("def f(x): raise KeyError('no')", "try:\n f(1)\nexcept KeyError as e:\n assert str(e) == repr('no')", "passed"),
    "its own exception's text": ("class Odd(ValueError): pass\ndef f(x): raise Odd('no')", "try:\n f(1)\nexcept ValueError as e:\n assert str(e) == 'no'", "passed"),
    "an exception of many arguments": ("def f(x): return b'\\xff'.decode()", "try:\n f(1)\nexcept UnicodeDecodeError as e:\n assert e.start == 0", "passed"),
    "emptied, then looked at": ("def f(x):\n x.clear()\n return []", "x = [2, 1]\nr = f(x)\nassert r == sorted(x)", "failed"),
    "emptied by keyword": ("def f(x):\n x.clear()\n return []", "x = [2, 1]\nassert f(x=x) == sorted(x)", "failed"),
    "emptied and returned": ("def f(x):\n x.clear()\n return []", "x = [2, 1]\nassert f(x) == sorted(x)", "failed"),
    "a set emptied": ("def f(x):\n x.clear()\n return True", "x = {2, 1}\nassert f(x) and not x", "failed"),
    "ends a map": ("def f(x): raise StopIteration", "assert all(map(lambda c: f(c) == 3, [1, 2]))", "failed"),
    "ends a zip": ("class S(StopIteration): pass\ndef f(x): raise S", "for x, y in zip([1], map(f, [1])):\n assert y == 3", "failed"),
    "ends an iter": ("def f(): raise StopIteration", "for x in iter(f, 0):\n assert x == 3", "failed"),
    "ends a next": ("def f(x): raise StopIteration", "assert next(map(f, [1]), 3) == 3", "failed"),
    "ends an async for": ("def f(x): raise StopAsyncIteration", "class A:\n def __aiter__(s): return s\n async def __anext__(s): return f(1)\nasync def m():\n async for x in A(): assert x == 3\ntry: m().send(None)\nexcept StopIteration: pass", "failed"),
    "ends a generator": ("def f(x): raise GeneratorExit", "def g():\n yield f(1)\nassert all(g())", "failed"),
    "an interruption": ("def f(x): raise KeyboardInterrupt", "try:\n assert f(1) == 3\nexcept KeyboardInterrupt:\n pass", "failed"),
    "an exit": ("def f(x): raise SystemExit(0)", "import sys\ntry:\n assert f(1) == 3\nexcept SystemExit:\n pass", "failed"),
    "a cancelled task": ("import asyncio\ndef f(x): raise asyncio.CancelledError", "try:\n assert f(1) == 3\nexcept BaseException as e:\n assert type(e).__name__ == 'CancelledError'", "failed"),
    "a skipped test": ("import unittest\ndef f(x): raise unittest.SkipTest('no')", "import unittest\nclass T(unittest.TestCase):\n def test(s): s.assertEqual(f(1), 3)\nr = unittest.TestResult()\nT('test').run(r)\nassert not r.errors and not r.failures", "failed"),
    "a failed assertion": ("def f(x): raise AssertionError", "assert f(1) == 3", "failed"),
    "an exception group": ("def f(x): raise BaseExceptionGroup('no', [StopIteration(), SystemExit()])", "assert all(map(lambda c: f(c) == 3, [1]))", "failed"),
    "a group of arguments": ("class S(StopIteration, ValueError): pass\ndef f(x): raise S", "assert all(map(lambda c: f(c) == 3, [1]))", "failed"),
    "a name that lies": ("S = type('ValueError', (StopIteration,), {})\ndef f(x): raise S", "assert all(map(lambda c: f(c) == 3, [1]))", "failed"),
    "setup": ("def f(x): return x + 1", "assert f(two) == 3", "passed"),
    "entry over setup": ("def helper(x): return 100\ndef f(x): return 7", "assert helper(1) == 2 and f(1) == 7", "passed"),
    "always equal": ("class E:\n def __eq__(s, o): return True\ndef f(x): return E()", "assert f(1) == 3", "failed"),
    "an int that is always equal": ("class E(int):\n def __eq__(s, o): return True\ndef f(x): return E(7)", "assert f(1) == 3", "failed"),
    "patched assert": ("import builtins\nbuiltins.AssertionError = None\ndef f(x): return 0", "assert f(1) == 3", "failed"),
    "system exit": ("def f(x): raise SystemExit(0)", "assert f(1) == 3", "failed"),
    "os exit": ("import os\ndef f(x): os._exit(0)", "assert f(1) == 3", "crash"),
    "endless": ("def f(x):\n while True: pass", "assert f(1) == 3", "timeout"),
    "memory": ("def f(x): return bytearray(8 << 30)", "assert f(1) == 3", "out_of_memory"),
    "no function": ("x = 1", "assert f(1) == 3", "failed"),
    "a generator": ("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 2]", "passed"),
    "a wrong generator": ("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 3]", "failed"),
    "a generator is no list": ("def f(n): yield from range(n)", "assert f(3) == [0, 1, 2]", "failed"),
    "an iterator": ("def f(x): return map(str, x)", "assert next(f([1])) == '1'", "passed"),
    "endless and not read to its end": ("import itertools\ndef f(): return itertools.count()", "from itertools import islice\nassert list(islice(f(), 3)) == [0, 1, 2]", "passed"),
    "endless and read": ("import itertools\ndef f(): return itertools.repeat(1)", "assert all(n == 1 for n in f())", "failed"),
    "raises as it goes": ("def f():\n yield 1\n raise ValueError", "assert list(f()) == [1]", "failed"),
    "keys": ("def f(x): return x.keys()", "assert f({1: 2}) == {1: 3}.keys() and len(f({1: 2})) == 1", "passed"),
    "keys are no list": ("def f(x): return x.keys()", "assert f({1: 2}) == [1]", "failed"),
    "values": ("def f(x): return x.values()", "assert sorted(f({1: 2, 3: 2})) == [2, 2]", "passed"),
    "items": ("def f(x): return x.items()", "assert f({1: 2}) == {(1, 2)}", "passed"),
    "a deque": ("def f(x):\n x.append(4)\n return x", "from collections import deque\nassert f(deque([1, 2], 2)) == deque([2, 4])", "passed"),
    "an iterator as argument": ("def f(x): return sum(x)", "assert f(n for n in range(4)) == 6", "passed"),
    "no data is no exception": ("def f(x): return object()", "try:\n f(1)\n assert False\nexcept Exception:\n pass", "failed"),
    "no data in its arguments": ("def f(x): x.append(object())", "try:\n f([1])\n assert False\nexcept Exception:\n pass", "failed"),
    "its module": ("def f(x): return x + 1", "from solution import f as g\nimport solution\nassert g(1) == 2 == solution.f(1)", "passed"),
    "its module, wrong": ("def f(x): return x + 2", "from solution import f\nassert f(1) == 2", "failed"),
    "its module without it": ("def g(x): return x + 2", "from solution import f\nassert f(1) == 3", "failed"),
    "a module that it misses": ("def f(x): import no_such", "try:\n f(1)\nexcept ValueError:\n pass", "failed"),
    "a parameter of its name": ("def f(x): return x + 1", "def call(f): return f(1)\nassert call(f) == 2 and [f for f in [3]] == [3]", "passed"),
    "a keyword of its name": ("def g(f): return f + 1", "assert g(f=1) == 2", "passed"),
    "many keys": ("def f(x):\n x.update(x)\n return {n: n for n in x}", "x = {n: n for n in range(20000)}\nassert f(x) == x", "passed"),
    "colliding keys": ("def f(x): return {n * (2**61 - 1): 0 for n in range(20000)}", "assert len(f(1)) == 3", "timeout"),
    "a function as argument": ("def f(g): return g(1)", "assert f(lambda x: x) == 1", "infrastructure_error"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASSERTS)
def test_asserts(tier_b, name):
    source, test, outcome = ASSERTS[name]
    setup = "two = 2\ndef helper(x): return x + 1"
    limits = Limits(time=0.7 if outcome == "timeout" else 5.0)
    result = graded(tier_b, source, [test], kind="asserts", setup=setup, limits=limits)
    assert result.outcome == outcome, result.reason


CASE = "import unittest\nclass Base(unittest.TestCase):\n n = 1\nclass T(Base):\n def test_it(self): self.assertEqual(f(self.n), 2)\n"
LEFT_TO_OTHERS = {
    "pytest": "def test_it():\n assert f(1) == 2\ndef test_more(n=2):\n assert f(n) == 3",
    "a second one": "def test_it():\n assert f(1) in (2, 3)\ndef test_more():\n assert f(1) == 2",
    "a class of pytest's": "class TestIt:\n def test_it(self): assert f(1) == 2",
    "a class beside an assertion": "assert f(0) in (1, 3)\nclass TestIt:\n def test_it(self): assert f(1) == 2",
    "HumanEval": "def check(candidate):\n assert candidate(1) == 2",
    "unittest": CASE,
    "unittest's own end": f"{CASE}unittest.main()",
    "unittest behind a guard": f"{CASE}if __name__ == '__main__':\n unittest.main()",
    "unittest run and not looked at": f"{CASE}unittest.defaultTestLoader.loadTestsFromTestCase(T).run(unittest.TestResult())",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_TO_OTHERS)
def test_what_a_test_leaves_to_others_to_run_is_run(tier_b, name):
    for source, outcome in (
        ("def f(x): return x + 1", "passed"),
        ("def f(x): return 3", "failed"),
        ("no program", "failed"),
        ("def f(x): raise __import__('unittest').SkipTest", "failed"),
    ):
        result = graded(tier_b, source, [LEFT_TO_OTHERS[name]], kind="asserts", entry="f")
        assert result.outcome == outcome, result.reason


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("assert 1 + 1 == 2", "none calls the solution"),
        ("def helper(): assert f(1) == 2", "nothing runs the function helper"),
        ("def check(candidate): assert candidate(1) == 2", "nothing runs the function check"),
        ("import no_such_module\nassert f(1) == 2", "No module named 'no_such_module'"),
    ],
)
@pytest.mark.parametrize("source", ["def f(x): return 3", "no program", "def f(x): import other"])
def test_tests_that_judge_nothing_are_never_a_one_nor_a_zero(tier_b, test, reason, source):
    result = graded(tier_b, source, [test], kind="asserts")
    assert result.outcome == "infrastructure_error"
    assert result.reason == f"the tests' own source does not run: {reason}"


def test_a_test_may_prepare_what_another_one_asks(tier_b):
    assert graded(
        tier_b, "def f(x): return 3", ["x = 1", "assert f(x) == 3"], kind="asserts"
    ).passed_all


def test_entry_replaces_what_setup_defined(tier_b):
    job = {"kind": "asserts", "setup": "def f(x): return 5"}
    unasked = graded(tier_b, "def f(x): return 6", ["assert f(1) == 5"], **job)
    assert unasked.outcome == "infrastructure_error"
    assert not graded(
        tier_b, "def f(x): return 6", ["assert f(1) == 5"], entry="f", **job
    ).passed_all


def test_tests_that_do_not_run_are_never_a_zero(tier_b):
    result = graded(tier_b, "def f(): return 1", ["assert f( == 1"], kind="asserts")
    assert result.outcome == "infrastructure_error"
    assert "SyntaxError" in result.reason


@pytest.mark.parametrize(
    ("tests", "options", "message"),
    [
        ([], {"entry": "f"}, "at least one test"),
        ([((1,), 2)], {}, "entry"),
        ([((1,), 2)], {"kind": "nothing"}, "calls, stdio, asserts"),
        ([1], {"entry": "f"}, r"tests\[0\]"),
        ([((1,), 2), {"args": [1]}], {"entry": "f"}, r"tests\[1\]"),
        ([7], {"kind": "asserts"}, r"tests\[0\]"),
        ([((object(),), 2)], {"entry": "f"}, "object cannot be sent"),
    ],
)
def test_tests_that_cannot_be_read_are_refused(tests, options, message):
    with pytest.raises(RecipeError, match=message):
        Job("def f(): pass", tests, **options)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"seconds": 1},
            r"unknown field 'seconds' \(= 1\); the fields are time, total_time, memory",
        ),
        ({"time": 1, "Memory": 5}, "unknown field 'Memory'"),
        ({"memory": 0}, "memory = 0: give a number above 0"),
        ({"time": float("nan")}, "time = nan"),
        ({"time": float("inf")}, "time = inf"),
        ({"time": "1"}, "time = '1'"),
        ({"output": True}, "output = True"),
        ({"threads": True}, "unknown field 'threads'"),
        ([1], r"limits = \[1\]: give fields by name"),
        ("time=5", "limits = 'time=5': give fields by name"),
    ],
)
def test_limits_are_known_fields_above_0(limits, message):
    with pytest.raises(RecipeError, match=message):
        run_code("def f(): return 1", tests=[((), 1)], entry="f", limits=limits)


def test_text_that_is_not_text_is_refused():
    with pytest.raises(RecipeError, match=r"tests\[0\].*surrogates not allowed"):
        Job("print(1)", [("\ud800", "1")], kind="stdio")
    with pytest.raises(RecipeError, match="source = None"):
        Job(None, [((), 1)], entry="f")
