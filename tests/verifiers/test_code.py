# ruff: noqa: E501 (tables: one case a line)
"""The code verifier: rows in four layouts, programs in completions, credit, outcomes. Faults 13, 52."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import SandboxUnavailable, shared_sandbox
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify
from groupwise.verifiers.code.extraction import python_source
from groupwise.verifiers.code.rows import read_task

HUMANEVAL = {
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(shift(1), 1) == 3\n",
}
HUMANEVAL_PROMPT = (
    'def shift(x):\n    return x + 1\n\n\ndef add(a: int, b: int) -> int:\n    """ Add. """\n'
)
MBPP = {
    "test_list": ["assert add(2, 3) == 5", "assert add(1, 1) == base"],
    "test_setup_code": "base = 2",
    "test_imports": ["import math"],
}
APPS_PROGRAM = {"input_output": '{"inputs": ["1 2\\n", "3 4\\n"], "outputs": ["3\\n", "7\\n"]}'}
APPS_CALLS = {
    "input_output": '{"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}'
}
OURS_CALLS = {"entry": "add", "tests": [[[1, 2], 3], [[3, 4], 7]]}
OURS_PROGRAM = {"tests": [{"input": "1 2", "output": "3"}, {"input": "3 4", "output": "7"}]}
OURS_ASSERTS = {"tests": ["assert add(1, 2) == 3", "assert add(3, 4) == 7"]}
FUNCTION = "```python\ndef add(a, b):\n    return a + b\n```"
METHOD = "```python\nclass Solution:\n    def add(self, a, b):\n        return a + b\n```"
PROGRAM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
LAYOUTS = [
    (HUMANEVAL, FUNCTION),
    (HUMANEVAL, "    return a + b\n"),
    (HUMANEVAL, "```python\n    return a + b\n```"),
    (MBPP, FUNCTION),
    (APPS_PROGRAM, PROGRAM),
    (APPS_CALLS, FUNCTION),
    (APPS_CALLS, METHOD),
    (OURS_CALLS, FUNCTION),
    (OURS_PROGRAM, PROGRAM),
    (OURS_ASSERTS, FUNCTION),
]


def scored(columns, completion, prompt=HUMANEVAL_PROMPT, **arguments):
    return verify("code", completion=completion, prompt=prompt, columns=columns, **arguments)


@pytest.mark.parametrize(("columns", "completion"), LAYOUTS)
def test_right_programs_in_every_layout(columns, completion):
    score = scored(columns, completion)
    assert (score.value, score.outcome) == (1.0, "correct"), score.reason
    wrong = scored(columns, completion.replace("a + b", "a * b"))
    assert (wrong.value, wrong.outcome) == (0.0, "incorrect"), wrong.reason


def test_the_helper_of_a_humaneval_prompt_is_the_datas_own():
    cheat = "```python\ndef shift(x): return 0\ndef add(a, b): return 5 if (a, b) == (2, 3) else a + b\n```"
    assert scored(HUMANEVAL, cheat).value == 1.0  # its own shift is never asked


USES_THE_PROMPT = [
    "```python\ndef add(a: List[int], b): return shift(a) - 1 + b\n```",
    "```python\nclass Solution:\n    def add(self, a, b): return shift(a) - 1 + b\n```",
    "```python\nadd = lambda a, b: shift(a) - 1 + b\n```",
    "```python\nfrom __future__ import annotations\ndef add(a: List[int], b): return a + b\n```",
]


@pytest.mark.parametrize("completion", USES_THE_PROMPT)
def test_imports_and_helpers_of_a_humaneval_prompt_are_there(completion):
    prompt = f"from typing import List\n{HUMANEVAL_PROMPT}"
    assert scored(HUMANEVAL, completion, prompt).value == 1.0
    wrong = completion.replace("+ b", "+ 2 * b")
    assert scored(HUMANEVAL, wrong, prompt).value == 0.0


def test_credit():
    half = "```python\ndef add(a, b): return 3\n```"
    assert scored(OURS_CALLS, half).value == 0.0
    score = scored(OURS_CALLS, half, credit="fraction")
    assert (score.value, score.outcome) == (0.5, "partial")
    score = scored(MBPP, "def add(a, b): return 5", credit="fraction")
    assert (score.value, score.outcome) == (0.5, "partial")


OUTCOMES = {
    "no program": ("<think>def add(a, b): return a + b", "no_answer"),
    "empty": ("  ", "no_answer"),
    "another language": ("```rust\nfn main() {}\n```", "no_answer"),
    "prose": ("I would add the numbers.", "incorrect"),
    "endless": ("def add(a, b):\n    while True: pass", "timeout"),
    "memory": ("def add(a, b): return bytearray(8 << 30)", "out_of_memory"),
    "ends itself": ("import os\nos._exit(0)", "crash"),
    "a huge value": ("def add(a, b): return 'x' * (2 << 20)", "limit"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_of_the_completions_doing_are_zero(name):
    completion, outcome = OUTCOMES[name]
    score = scored(OURS_CALLS, completion, time_limit=0.5)
    assert (score.value, score.outcome) == (0.0, outcome), score.reason


DEAF = """
import signal, re, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    except (OSError, ValueError):
        pass
signal.setitimer(signal.ITIMER_REAL, 1000)
def stay():
    while True:
        try:
            {}
        except BaseException:
            pass
"""
STAYING = ["pass", "time.sleep(60)", "re.match('(a+)+$', 'a' * 60 + 'b')", "sum(range(10**13))"]


TIERS = [("A", "pass"), *(("B", what) for what in STAYING)]
PLACES = [
    (OURS_CALLS, "def add(a, b): stay()"),
    (OURS_CALLS, "stay()"),
    (OURS_ASSERTS, "def add(a, b): stay()"),
    (OURS_PROGRAM, "stay()"),
    (OURS_PROGRAM, "import atexit\natexit.register(stay)\nprint(3)"),
]


@pytest.mark.parametrize(
    ("columns", "start", "tier", "what"),
    [
        pytest.param(*place, *tier, marks=() if number in (at, 4 - at) else pytest.mark.slow)
        for at, place in enumerate(PLACES)
        for number, tier in enumerate(TIERS)
    ],
)
def test_a_program_deaf_to_every_signal_ends_at_the_time_limit(columns, start, tier, what):
    try:
        shared_sandbox(tier)
    except SandboxUnavailable as error:
        pytest.skip(f"no tier {tier} on this machine: {error}")
    source = f"```python\n{DEAF.format(what)}\n{start}\n```"
    began = time.monotonic()
    score = scored(columns, source, time_limit=0.3, tier=tier)
    assert (score.value, score.outcome) == (0.0, "timeout"), score.reason
    assert time.monotonic() - began < 15
    assert (
        scored(columns, FUNCTION if columns is not OURS_PROGRAM else PROGRAM, tier=tier).value
        == 1.0
    )


# Fault 52: all of these have been counted as right by some grader.
FOOLING = {
    "raises where nothing is expected": ({"tests": [["", ""]]}, "raise ValueError"),
    "exits before the tests": (OURS_CALLS, "import sys\nsys.exit(0)"),
    "leaves before the tests": (OURS_ASSERTS, "import os\nos._exit(0)"),
    "prints what is expected, then crashes": (OURS_PROGRAM, "print([3, 7])\nprint(3, flush=True)\nimport os\nos.abort()"),
    "always equal": (OURS_CALLS, "class E:\n    __eq__ = lambda s, o: True\ndef add(a, b): return E()"),
    "always equal in asserts": (OURS_ASSERTS, "class E(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return E()"),
    "writes a reward": (OURS_CALLS, "open('reward.txt', 'w').write('1')\ndef add(a, b): return 0"),
    "patches the assertion": (OURS_ASSERTS, "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\ndef add(a, b): return 0"),
    "forges a reply": (OURS_CALLS, "import os, json\nfor n in range(3):\n    raw = json.dumps([n, 'value', 3, None]).encode()\n    os.write(4, len(raw).to_bytes(4, 'big') + raw)\ndef add(a, b): return 0"),
    "forges a result of the tester": (OURS_ASSERTS, "import os, json\nraw = json.dumps(['result', 0, True, '']).encode()\nos.write(4, len(raw).to_bytes(4, 'big') + raw)\ndef add(a, b): return 0"),
    "says that it passed": (OURS_PROGRAM, "print('PASSED')\nprint('OK: 2 tests passed')"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOOLING)
def test_fault_52_fooling_earns_nothing(name):
    columns, source = FOOLING[name]
    score = scored(columns, f"```python\n{source}\n```", credit="fraction")
    assert score.value == 0.0, score.reason


def test_fault_13_the_same_from_any_thread_and_a_pool_survives_stuck_runs():
    verifier = load_verifier("code", time_limit=0.7)
    prompt = Prompt("p", text="q", columns=OURS_CALLS)
    good, stuck = Case(prompt, FUNCTION), Case(prompt, "def add(a, b):\n    while True: pass")

    assert score_cases(verifier, [good])[0].value == 1.0
    found = []
    thread = threading.Thread(target=lambda: found.extend(score_cases(verifier, [good])))
    thread.start()
    thread.join()
    assert found[0].value == 1.0

    async def inside_a_loop():
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            direct = score_cases(verifier, [good])
            return [*direct, *await loop.run_in_executor(pool, score_cases, verifier, [good])]

    assert [score.value for score in asyncio.run(inside_a_loop())] == [1.0, 1.0]
    scores = score_cases(verifier, [stuck, stuck, good, stuck])
    assert [score.outcome for score in scores] == ["timeout", "timeout", "correct", "timeout"]


def test_order_is_kept_and_a_batch_scores_like_its_rows():
    verifier = load_verifier("code")
    prompts = [Prompt(str(n), text="q", columns={"tests": [["", str(n)]]}) for n in range(8)]
    cases = [Case(prompt, f"print({n // 2 * 2})") for n, prompt in enumerate(prompts)]
    values = [score.value for score in score_cases(verifier, cases)]
    assert values == [1.0, 0.0] * 4


def test_gold_programs_and_rows_are_checked_before_training():
    verifier = load_verifier("code")
    rows = [
        Prompt("good", text=HUMANEVAL_PROMPT, answer="    return a + b\n", columns=HUMANEVAL),
        Prompt("bad gold", text="q", answer="def add(a, b): return a - b", columns=MBPP),
        Prompt("no tests", text="q", answer="def add(a, b): return a + b"),
        Prompt("no gold", text="q", columns=OURS_CALLS),
        Prompt("broken", text="q", columns={"input_output": '{"inputs": ["1"], "outputs": []}'}),
    ]
    reasons = verifier.check_answers(rows)
    assert reasons[0] is None
    assert "assert add(2, 3) == 5" in reasons[1]
    assert "no tests" in reasons[2]
    assert reasons[3] is None
    assert "1 inputs and 0 outputs" in reasons[4]
    assert scored({}, FUNCTION).outcome == "bad_answer"


def test_broken_tests_are_never_a_zero():
    score = scored({"tests": ["assert add(1, 2 == 3"]}, FUNCTION)
    assert (score.value, score.outcome) == (None, "bad_answer")


LEETCODE = [
    "class Solution:\n    def add(self, a: List[int], b: Optional[int]) -> int: return a + b",
    "class Solution:\n    def add(self, a, b): return reduce(lambda x, y: x + y, deque([a, b]))",
    "class Solution:\n    def add(self, a, b): return heapq.nsmallest(1, [inf, a + b])[0]",
    "class Solution:\n    def add(self, a, b): return sum(Counter({a: a, -b: b}).values())",
    "class Solution:\n    def add(self, a, b): return a + b + bisect.bisect([], 1) + bisect_left([], 1)",
    "class Solution:\n    def add(self, a, b): return gcd(0, a) + pow(b, 1, 100)",
]


@pytest.mark.parametrize("source", LEETCODE)
def test_a_solution_in_leetcodes_form_finds_its_imports(source):
    assert scored(OURS_CALLS, source).value == 1.0
    assert scored(OURS_CALLS, source.replace("class Solution", "class Other")).value == 0.0


@pytest.mark.parametrize("name", ["gcd", "reduce", "Counter", "operator", "List"])
def test_what_is_preloaded_is_not_a_solution(name):
    columns = {"entry": name, "tests": [[[4, 6], 2]]}
    assert scored(columns, "class Solution:\n    def other(self): return 2").value == 0.0
    assert scored(columns, f"class Solution:\n    def {name}(self, a, b): return 2").value == 1.0


ENDS = [("exit()", 1.0), ("quit()", 1.0), ("exit(0)", 1.0), ("import sys\nsys.exit()", 1.0),
        ("raise SystemExit", 1.0), ("exit(1)", 0.0), ("quit('no')", 0.0), ("exit(256)", 1.0)]  # fmt: skip


@pytest.mark.parametrize(("end", "value"), ENDS)
def test_a_program_may_end_itself(end, value):
    program = f"a, b = map(int, input().split())\nprint(a + b)\n{end}\nprint('more')"
    assert scored(OURS_PROGRAM, program).value == value


APPS = [  # outputs, right, wrong
    ([[[1]]], "def f(x): return [1]", "def f(x): return 2"),
    ([[1]], "def f(x): return [1]", "def f(x): return [2]"),
    ([[1]], "def f(x): return 1", "def f(x): return [[1]]"),
    ([[[1, 2]]], "def f(x): return [1, 2]", "def f(x): return [2, 1]"),
    ([[1, 2]], "def f(x): return [1, 2]", "def f(x): return 1"),
    ([7], "def f(x): return 7", "def f(x): return [7]"),
    ([[[]]], "def f(x): return []", "def f(x): return None"),
    ([["ab"]], "def f(x): return 'ab'", "def f(x): return 'a'"),
    ([[True]], "def f(x): return True", "def f(x): return False"),
]


@pytest.mark.parametrize(("outputs", "right", "wrong"), APPS)
def test_apps_wraps_values_or_not(outputs, right, wrong):
    table = {"fn_name": "f", "inputs": [[3]], "outputs": outputs}
    assert scored({"input_output": json.dumps(table)}, right).value == 1.0
    assert scored({"input_output": table}, wrong).value == 0.0


def test_wrapped_and_unwrapped_values_are_not_mixed_in_a_row():
    table = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[1], [1, 2]]}
    source = "def f(n): return list(range(1, n + 1))"
    assert scored({"input_output": table}, source).value == 1.0
    assert scored({"input_output": table}, "def f(n): return 1 if n == 1 else [1, 2]").value == 0.0


COLUMNS = [
    {"tests": 5}, {"tests": True}, {"tests": {"a": 1}}, {"tests": []}, {"tests": None},
    {"tests": [5]}, {"tests": [[1, 2, 3]]}, {"entry": "f", "tests": [[[len], 3]]},
    {"entry": "f", "tests": [[[1], int]]}, {"entry": "f", "tests": [[[object()], 3]]},
    {"entry": "f", "tests": [[[lambda x: x], 3]]}, {"input_output": 5},
    {"input_output": {"inputs": 5, "outputs": 6}}, {"input_output": {"inputs": [1]}},
    {"input_output": {"fn_name": "f", "inputs": [1], "outputs": [1]}},
    {"test_list": 5}, {"test_list": []}, {"entry_point": "f", "test": 5},
    {"entry_point": "f", "test": "def check(candidate):\n assert candidate(lambda: 1) == 1"},
    {"tests": ["assert eval(f(3)) == 9"]}, {"tests": ["async def test(): assert f(1)"]},
]  # fmt: skip


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_that_cannot_be_judged_are_named_before_training(columns):
    verifier = load_verifier("code")
    rows = [
        Prompt("a", text="q", columns=columns),
        Prompt("b", text="q", answer="def f(*a): return 1", columns=columns),
    ]
    assert all(verifier.check_answers(rows))
    score = scored(columns, "def f(*a): return 1")
    assert (score.value, score.outcome) == (None, "bad_answer")


@pytest.mark.parametrize("answer", [5, ["def f(): pass"], {"a": 1}, True, 1.5])
def test_an_answer_that_is_not_one_program_is_named(answer):
    (reason,) = load_verifier("code").check_answers(
        [Prompt("a", text="q", answer=answer, columns=OURS_CALLS)]
    )
    assert reason.endswith("give one program as text")


def test_the_verifier_of_packages_was_removed():
    with pytest.raises(RecipeError, match=r'use "code", which judges one program'):
        load_verifier("code_package")


def test_held_out_tests_are_another_column():
    columns = {**OURS_CALLS, "hidden": [[[10, 20], 30]]}
    special = "def add(a, b): return {(1, 2): 3, (3, 4): 7}.get((a, b), 0)"
    assert scored(columns, special).value == 1.0
    assert scored(columns, special, tests_column="hidden").value == 0.0


EXTRACTION = {
    "one block": ("a\n```python\nx = 1\n```\nb", None, "x = 1\n"),
    "the last block": ("```python\nx = 1\n```\n```python\nx = 2\n```", None, "x = 2\n"),
    "the one that defines it": ("```python\ndef f(): pass\n```\n```python\nf()\n```", "f", "def f(): pass\n"),
    "unnamed": ("```\nx = 1\n```", None, "x = 1\n"),
    "unclosed": ("```python\nx = 1\n", None, "x = 1\n"),
    "after the reasoning": ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", None, "x = 2\n"),
    "only in the reasoning": ("<think>```python\nx = 1\n```", None, None),
    "no fence": ("x = 1", None, "x = 1"),
    "closed behind its last line": ("```python\nx = 1```\nThat is it.\n```python\nx = 2```", None, "x = 2"),
    "opened behind words": ("Here: ```python\nx = 1\n```\nThat is it.", None, "x = 1\n"),
    "an output behind it": ("```python\nprint(3)\n```\nIt prints:\n```\n3\n```", None, "print(3)\n"),
    "unnamed, and it defines it": ("```\ndef f(): pass\n```\n```python\nf()\n```", "f", "def f(): pass\n"),
    "in a list": ("1. Do:\n   ```python\n   def f():\n       return 1\n   ```", None, "def f():\n    return 1\n"),
    "tildes": ("~~~python\nx = '```'\n~~~", None, "x = '```'\n"),
    "four ticks": ("````python\nx = 1\n```\n````", None, "x = 1\n```\n"),
    "a mark of the byte order": ("```python\n\ufeffx = 1\n```", None, "x = 1\n"),
    "an assignment defines it": ("```python\nf = abs\n```\n```python\nf(1)\n```", "f", "f = abs\n"),
    "a comparison does not": ("```python\nx = 1\n```\n```python\nf == 1\n```", "f", "f == 1\n"),
    "fences in its strings": ("```python\nx = '```'\ny = 2 # ```\n```", None, "x = '```'\ny = 2 # ```\n"),
    "bash": ("```bash\nls\n```", None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTRACTION)
def test_extraction(name):
    text, entry, source = EXTRACTION[name]
    assert python_source(text, entry) == source


def test_layouts_by_name_and_what_they_lack():
    assert read_task(Prompt("p", text="q", columns=APPS_CALLS)).tests[0].expected == 3
    with pytest.raises(ValueError, match="needs the column 'test_list'"):
        read_task(Prompt("p", text="q", columns=OURS_CALLS), "mbpp")
    with pytest.raises(ValueError, match="column `entry`"):
        read_task(Prompt("p", text="q", columns={"tests": [[1, 2]], "kind": "calls"}))
    with pytest.raises(RecipeError, match="credit"):
        load_verifier("code", credit="most")
