# ruff: noqa: E501 (tables: one case a line)
"""Solutions that aim at the tests, and tests that judge nothing, in both tiers."""

import pytest

from groupwise.sandbox import BROKEN_TESTS, SandboxUnavailable, run_code, shared_sandbox


@pytest.fixture(params=["A", "B"])
def tier(request):
    try:
        shared_sandbox(request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"no tier {request.param} on this machine: {error}")
    return request.param


def some(tier, *each):
    """All of them in tier B, the first in tier A, where the same code runs in one more shell."""
    return each if tier == "B" else each[:1]


def judged(tier, source, *tests, **options):
    """`passed`, `refused` (the tests are not fit to judge), or how it failed."""
    result = run_code(source, tests=list(tests), kind="asserts", tier=tier, **options)
    refused = result.reason.startswith(BROKEN_TESTS)
    assert refused or result.outcome != "infrastructure_error", result.reason
    return "refused" if refused else result.outcome


FORGE = "import os, json; raw = json.dumps(['result', 0, True, '']).encode(); os.write(4, len(raw).to_bytes(4, 'big') + raw); os._exit(0)"
EVALUATE = {  # a test that runs what the solution returns
    "eval": "assert eval(f(3)) == 9",
    "eval in a function": "def run(x):\n return eval(x)\nassert run(f(3)) == 9",
    "another name": "e = eval\nassert e(f(3)) == 9",
    "eval by map": "assert list(map(eval, [f(3)])) == [9]",
    "exec": "space = {}\nexec(f(3), space)\nassert space['x'] == 9",
    "compile": "assert eval(compile(f(3), 'x', 'eval')) == 9",
    "import": "assert __import__(f(3)).x == 9",
    "pickle": "import pickle\nassert pickle.loads(f(3)) == 9",
    "pickle's function": "from pickle import loads\nassert loads(f(3)) == 9",
    "marshal": "import marshal\nassert marshal.loads(f(3)) == 9",
    "timeit": "import timeit\nassert timeit.timeit(f(3), number=1) >= 0",
    "an interpreter": "import code\ncode.InteractiveInterpreter().runsource(f(3))\nassert f(3)",
    "builtins": "from builtins import eval as e\nassert e(f(3)) == 9",
    "in a class of tests": "import unittest\nclass T(unittest.TestCase):\n def test(self): self.assertEqual(eval(f(3)), 9)",
}  # fmt: skip


@pytest.mark.parametrize("name", EVALUATE)
def test_tests_that_evaluate_the_reply_are_refused(tier, name):
    for source in some(tier, f"def f(x): return {FORGE!r}", "def f(x): return '9'", ""):
        assert judged(tier, source, EVALUATE[name]) == "refused"


HIDDEN = {  # ways to `eval` that no reader of the source can name
    "by subscript": "b = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)\nassert b['ev' + 'al'](f(3)) == 9",
    "by attribute": "import builtins\nassert getattr(builtins, 'ev' + 'al')(f(3)) == 9",
    "by a module of the library": "import collections as c\nassert c._sys.modules['builtins'].exec(f(3)) is None",
    "by pdb": "import pdb\npdb.Pdb().default(f(3))\nassert f(3)",
    "type hints": "import typing\nclass A: pass\nA.__annotations__ = {'x': f(3)}\nassert typing.get_type_hints(A)",
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_text_that_is_evaluated_all_the_same_fails(tier, name):
    for source in (f"def f(x): return {FORGE!r}", "def f(x): return '9'"):
        assert judged(tier, source, HIDDEN[name]) in ("failed", "refused")


HARMLESS = {
    "text of its own": "assert f(3) == eval('3 * 3')",
    "a named tuple": "from collections import namedtuple\nP = namedtuple('P', 'x y')\nassert f(3) == P(9, 0).x",
    "a data class": "from dataclasses import dataclass\ndef make():\n @dataclass\n class P:\n  x: int\n return P\nassert f(3) == make()(9).x",
    "a literal": "import ast\nassert f(3) == ast.literal_eval('9')",
    "an import inside": "def t():\n import colorsys, fractions\n return f(3)\nassert t() == 9",
    "json": "import json\nassert json.loads(json.dumps(f(3))) == 9",
    "a mock": "from unittest import mock\nm = mock.create_autospec(abs, return_value=9)\nassert f(3) == m(1)",
    "a pattern": "import re\nassert re.compile(r'\\d').match(str(f(3)))",
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_evaluation_runs(tier, name):
    assert judged(tier, "def f(x): return x * x", HARMLESS[name]) == "passed"


CASE = "import unittest\nclass T(unittest.TestCase):\n"
RUN_ELSEWHERE = {  # passed for the right solution, failed for a wrong one
    "a main guard": "if __name__ == '__main__':\n assert f(3) == 9",
    "a function behind a guard": "def main():\n assert f(3) == 9\nif __name__ == '__main__':\n main()",
    "an exit behind a guard": f"{CASE} def test(self): self.assertEqual(f(3), 9)\nif __name__ == '__main__':\n import sys\n sys.exit(unittest.main())",
    "a base class with tests": f"{CASE} def test(self): self.assertEqual(f(3), 9)\nclass U(T):\n def test(self): pass",
    "a mixin": f"class M:\n def test(self): self.assertEqual(f(3), 9)\n{CASE[:-1]}\n pass\nclass U(M, unittest.TestCase): pass",
    "class set-up of unittest": f"{CASE} @classmethod\n def setUpClass(cls): cls.want = 9\n def test(self): self.assertEqual(f(3), self.want)",
    "set-up of a method": "class TestIt:\n def setup_method(self): self.want = 9\n def test_it(self): assert f(3) == self.want",
    "set-up of a method that takes it": "class TestIt:\n def setup_method(self, method): self.want = 9\n def test_it(self): assert f(3) == self.want",
    "set-up of a class": "class TestIt:\n @classmethod\n def setup_class(cls): cls.want = 9\n def test_it(self): assert f(3) == self.want",
    "assertions in the tear-down": "class TestIt:\n def teardown_method(self): assert self.got == 9\n def test_it(self): self.got = f(3)",
    "set-up of a module": "def setup_module():\n global want\n want = 9\ndef test_it(): assert f(3) == want",
    "set-up of a function": "def setup_function(function):\n global want\n want = 9\ndef test_it(): assert f(3) == want",
    "a doctest of the module": '"""\n>>> f(3)\n9\n"""',
    "a doctest of a function": 'def helper():\n """\n >>> f(3)\n 9\n """',
    "doctest's own start": '"""\n>>> f(3)\n9\n"""\nimport doctest\nif __name__ == "__main__":\n doctest.testmod()',
    "async, run by asyncio": "import asyncio\nasync def test_it(): assert f(3) == 9\nasyncio.run(test_it())",
    "async in unittest": "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n async def test(self): self.assertEqual(f(3), 9)",
    "a generator that is read": "def cases():\n yield f(3) == 9\nassert all(cases())",
    "sub-tests": f"{CASE} def test(self):\n  for n in (2, 3):\n   with self.subTest(n=n): self.assertEqual(f(n), n * n)",
}  # fmt: skip
NEVER_RUN = {  # refused, or failed for every solution
    "async": "async def test_it():\n assert f(3) == 9",
    "async in a class": "class TestIt:\n async def test_it(self): assert f(3) == 9",
    "async called and not awaited": "async def test_it():\n assert f(3) == 9\nx = test_it()\nx.close()",
    "a generator": "def test_it():\n yield\n assert f(3) == 9",
    "a generator that is made": "def test_it():\n yield f(3) == 9\nx = test_it()",
    "a fixture": "def test_it(value): assert f(3) == 9",
    "another name": "def verify(): assert f(3) == 9",
    "a class of another name": "class Checks:\n def test_it(self): assert f(3) == 9",
    "a class with a constructor": "class TestIt:\n def __init__(self): pass\n def test_it(self): assert f(3) == 9",
    "a method of another name": "class TestIt:\n def verify(self): assert f(3) == 9",
    "a nested function": "def test_it():\n def inner(): assert f(3) == 9",
    "skipped": f"{CASE} @unittest.skip('later')\n def test(self): self.assertEqual(f(3), 9)",
    "skipped on a condition": f"{CASE} def test(self):\n  if True: self.skipTest('later')\n  self.assertEqual(f(3), 9)",
    "meant to fail": f"{CASE} @unittest.expectedFailure\n def test(self): self.assertEqual(f(3), 9)",
    "an exit before the end": "import sys\nassert f(3) is not None\nif True: sys.exit(0)\nassert f(3) == 9",
    "a module that is not here": "import pytest\ndef test_it(): assert f(3) == 9",
    "a comparison that is dropped": "f(3) == 9",
    "a comparison dropped in a function": "def test_it():\n f(3) == 9",
    "a truth dropped in a function": "def test_it():\n f(3) and f(2) == 4",
    "a doctest that is skipped": 'def helper():\n """\n >>> f(3)  # doctest: +SKIP\n 9\n """',
    "a function that is deleted": "def test_it(): assert f(3) == 9\ndel test_it",
    "a function that is replaced": "def test_it(): assert f(3) == 9\ndef test_it(): pass",
}  # fmt: skip
ASKS = "assert f(0) == 0"


@pytest.mark.parametrize("name", RUN_ELSEWHERE)
def test_what_another_harness_would_run_is_run(tier, name):
    for tests in some(tier, (RUN_ELSEWHERE[name],), (ASKS, RUN_ELSEWHERE[name])):
        assert judged(tier, "def f(x): return x * x", *tests) == "passed"
        assert judged(tier, "def f(x): return 4 * (x == 2)", *tests) == "failed"


@pytest.mark.parametrize("name", NEVER_RUN)
def test_what_was_not_run_never_counts_as_passed(tier, name):
    for source in some(tier, "def f(x): return x * x", "def f(x): return None"):
        for tests in some(tier, (ASKS, NEVER_RUN[name]), (NEVER_RUN[name],)):
            assert judged(tier, source, *tests) in ("failed", "refused")


SKIPPED = {
    "skipTest": f"{CASE} def test(self):\n  if f(3) != 9: self.skipTest('not supported')\n  self.assertEqual(f(3), 9)",
    "skipTest on an error": f"{CASE} def test(self):\n  try: f(3)\n  except Exception: self.skipTest('not supported')\n  self.assertEqual(f(3), 9)",
    "SkipTest": f"{CASE} def test(self):\n  if f(3) != 9: raise unittest.SkipTest",
    "SkipTest outside": "import unittest\nif f(3) != 9: raise unittest.SkipTest",
    "an exit": "import sys\nif f(3) != 9: sys.exit(0)\nassert f(3) == 9",
    "an exit in a function": "import sys\ndef test_it():\n if f(3) != 9: sys.exit()\n assert f(3) == 9",
    "a part left out": "def rest(x):\n assert x == 9 and f(2) == 4\nif f(3): rest(f(3))",
    "nothing to loop over": "def inner(x):\n assert x == f(3)\nfor x in f([9]): inner(x)",
    "left out in a class": f"{CASE} def test(self):\n  if f(3) == 9: self.more()\n def more(self): self.assertEqual(f(2), 4)",
    "an exit in the last statement": "import sys\nif True:\n r = f(3)\n if r != 9: sys.exit(0)\n assert r == 9",
    "an exit behind a guard": "import sys\ndef main():\n if f(3) != 9: sys.exit(0)\n assert f(3) == 9\nif __name__ == '__main__':\n main()",
    "nothing to compare": "for x, y in zip(f([3]), [9]): assert x == y",
    "nothing to compare in a class": f"{CASE} def test(self):\n  for x, y in zip(f([3]), [9]): self.assertEqual(x, y)",
    "an early return": "def test_it():\n if f(3) != 9: return\n assert f(3) == 9",
    "no exception": "try:\n f(-1)\nexcept KeyError as e:\n assert e.args == (1,)",
    "a condition": "if f(3) == 9:\n assert f(2) == 4",
    "skipped sub-test": f"{CASE} def test(self):\n  with self.subTest():\n   if f(3) != 9: self.skipTest('no')",
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_no_reply_can_skip_a_test(tier, name):
    for reply in some(tier, "return []", "return 0", "raise ValueError", "return None"):
        assert judged(tier, f"def f(x): {reply}", SKIPPED[name]) == "failed"


ERRORS_EXPECTED = {
    "try and assert False": "try:\n f(-1)\n assert False\nexcept ValueError: pass",
    "assertRaises": f"{CASE} def test(self):\n  with self.assertRaises(ValueError): f(-1)",
    "assertRaises of a comparison": f"{CASE} def test(self):\n  with self.assertRaises(ValueError): f(-1) < 3",
    "else": "try:\n f(-1)\nexcept ValueError: pass\nelse:\n raise AssertionError",
    "a returned truth": "def test_it():\n try: f(-1)\n except ValueError: return True\n return False",
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS_EXPECTED)
def test_errors_that_a_test_expects(tier, name):
    raises = "def f(x):\n if x < 0: raise ValueError\n return x"
    assert judged(tier, raises, ERRORS_EXPECTED[name]) == "passed"
    assert judged(tier, "def f(x): return x", ERRORS_EXPECTED[name]) == "failed"


CHANGED = {  # solutions that change what the test compares with
    "cleared": ("def f(d, k): d.clear()", "d = {'a': 1}\nassert f(d, 'a') == d.get('a')"),
    "cleared before": ("def f(d, k): d.clear()", "d = {'a': 1}\nr = f(d, 'a')\nassert r == d.get('a')"),
    "emptied list": ("def f(x): x.clear()", "x = [1]\nassert f(x) == (x[0] if x else None)"),
    "a list of None": ("def f(x): x[:] = [None] * 9", "x = [3, 1]\nassert f(x) == x[0]"),
    "emptied set": ("def f(x): x.clear()", "x = {1}\nassert f(x) == next(iter(x), None)"),
    "bytes": ("def f(x): x.clear()", "x = bytearray(b'a')\nassert f(x) == (x[0] if x else None)"),
    "nested": ("def f(x): x[0].clear()", "x = [[1], 2]\nassert f(x) == (x[0][0] if x[0] else None)"),
    "by keyword": ("def f(*, d): d.clear()", "d = {'a': 1}\nassert f(d=d) == d.get('a')"),
    "in unittest": ("def f(d): d.clear()", f"{CASE} def test(self):\n  d = {{1: 2}}\n  self.assertEqual(f(d), d.get(1))"),
    "in a comprehension": ("def f(d): d.clear()", "d = {1: 2}\nassert [f(d) for _ in [0]] == [d.get(1)]"),
    "through a name": ("def f(d): d.clear()", "d = {1: 2}\ng = f\nassert g(d) == d.get(1)"),
    "by map": ("def f(d): d.clear()", "d = {1: 2}\nassert list(map(f, [d])) == [d.get(1)]"),
}  # fmt: skip
IN_PLACE = {
    "alone": ("def f(x): x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]"),
    "is None": ("def f(x): x.sort()", "x = [2, 1]\nassert f(x) is None\nassert x == [1, 2]"),
    "is None, in one line": ("def f(x): x.sort()", "x = [2, 1]\nassert f(x) is None and x == [1, 2]"),
    "assertIsNone": ("def f(x): x.sort()", f"{CASE} def test(self):\n  x = [2, 1]\n  self.assertIsNone(f(x))\n  self.assertEqual(x, [1, 2])"),
    "in a loop": ("def f(x, n): x.append(n)", "x = []\nfor n in range(3): f(x, n)\nassert x == [0, 1, 2]"),
    "in the setup's words": ("def f(d): d[1] = 2", "def run(g):\n d = {}\n g(d)\n return d\nassert run(f) == {1: 2}"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_arguments_are_compared_as_they_were(tier, name):
    source, test = CHANGED[name]
    assert judged(tier, source, test) == "failed"


@pytest.mark.parametrize("name", IN_PLACE)
def test_changing_an_argument_counts_where_it_is_all_that_is_done(tier, name):
    source, test = IN_PLACE[name]
    assert judged(tier, source, test) == "passed"
    assert judged(tier, "def f(*x): pass", test) == "failed"


NOT_DATA = [
    "assert f(lambda x: x)", "assert f([lambda x: x])", "assert f(key=len)", "assert f(int)",
    "def g(x): return x\nassert f(g)", "class P: pass\nassert f(P())", "class P: pass\nassert f(P)",
    "def check(candidate):\n assert candidate(len) == 3\ncheck(f)", "assert f({'a': str})",
    "import datetime\nassert f(datetime.date(2020, 1, 2))", "import math\nassert f(math.sqrt)",
    "assert f(print, 1)", "assert f(object())",
]  # fmt: skip


@pytest.mark.parametrize("test", NOT_DATA)
def test_arguments_that_are_not_data_are_refused(tier, test):
    for source in some(tier, "def f(*a, **k): return True", ""):
        assert judged(tier, source, test) == "refused"


CHOOSE = {  # solutions that would rather not be scored
    "a missing module": ("def f(x): raise ModuleNotFoundError('no')", "assert f(3) == 9"),
    "raised again": ("def f(x): raise ModuleNotFoundError('no')", "try:\n f(3)\nexcept ImportError as e:\n raise ModuleNotFoundError(str(e))"),
    "raised from": ("def f(x): raise ModuleNotFoundError('no')", "try:\n f(3)\nexcept ImportError as e:\n raise type(e)('x') from e"),
    "an import by name": ("def f(x): return 'no_such_module'", "import importlib\nassert importlib.import_module(f(3)).x"),
    "many errors first": ("def f(x): raise ModuleNotFoundError(str(x))", "errors = []\nfor n in range(150):\n try: f(n)\n except ImportError as e: errors.append(e)\nraise errors[0]"),
    "while loading": ("import no_such_module\ndef f(x): return 9", "assert f(3) == 9"),
    "a generator given back": ("def f(x): return iter([1])", "assert f([f(3)]) == 9"),
    "an exception given back": ("def f(x): raise ValueError", "try: f(3)\nexcept ValueError as e: f(e)"),
    "digits given back": ("def f(x): return 10 ** 9999 if x == 3 else 9", "assert f(f(3) ** 3) == 9"),
    "surrogates": ("def f(x): return '\\ud800'", "assert f(3) == 9"),
    "surrogates in the source": ("def f(x): return '\ud800'", "assert f(3) == 9"),
    "surrogates in an error": ("def f(x): raise ValueError('\\ud800')", "assert f(3) == 9"),
    "in the setup": ("def f(x): raise ModuleNotFoundError('no')", "assert f(3) == 9", "from solution import f\ny = f(3)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOOSE)
def test_no_solution_chooses_to_be_left_out(tier, name):
    source, test, *setup = CHOOSE[name]
    assert judged(tier, source, test, setup=setup[0] if setup else "") in ("failed", "crash")
