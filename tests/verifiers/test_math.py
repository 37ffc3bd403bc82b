"""The math verifier: the measured table from everywhere, hazards, gold answers."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from math_table import TABLE

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify
from groupwise.verifiers.answers import math as math_module
from groupwise.verifiers.answers.final_answer import last_formula
from groupwise.waiting.processes import Reply

CASES = [Case(Prompt(name, text="q", answer=gold), text) for name, gold, text, _ in TABLE]
EASY = list(range(len(TABLE)))


@pytest.fixture(scope="module")
def math():
    verifier = load_verifier("math")
    score_cases(verifier, [Case(Prompt("p", text="q", answer="x+1"), r"\boxed{1+x}")] * 4)
    return verifier


def check(verifier, rows):
    scores = score_cases(verifier, [CASES[row] for row in rows])
    wrong = [
        (TABLE[row], score)
        for row, score in zip(rows, scores)
        if score.value != (1.0 if TABLE[row][3] == "equal" else 0.0)
    ]
    assert wrong == []


def test_the_table_in_the_main_thread(math):
    check(math, EASY)


def test_the_table_in_a_thread(math):
    with ThreadPoolExecutor(1) as executor:
        executor.submit(check, math, EASY).result()


def test_the_table_in_an_event_loop_and_its_executor(math):
    async def run():
        check(math, EASY)
        await asyncio.get_running_loop().run_in_executor(None, check, math, EASY)

    asyncio.run(run())


@pytest.mark.parametrize(
    "given",
    ["9^{9^{9^{9}}}", r"\sum_{k=1}^{10^{9}} \frac{1}{k^2+1}", "10^{10^{10}}", "(10^9)!",
     r"\binom{10^8}{5\cdot 10^7}", r"e^{e^{e^{e}}}", r"\sqrt{9^{9^{9}}}",
     "2^{" * 30 + "2" + "}" * 30,
     r"\sin(10^{10^{6}})", "(x+1)^{1000}", r"\frac{1}{10^{10^{7}}}+x", "((((" * 100,
     r"\sqrt{" * 60 + "2" + "}" * 60, "x^{y^{x^{y^{x}}}}", "(x+y+z+u+v+w)^{50}"],
)  # fmt: skip
@pytest.mark.parametrize("gold", ["2", "x+\\sqrt{2}"])
def test_hazards_end_at_once_by_their_size(math, given, gold):
    start = time.monotonic()
    score = verify("math", completion=rf"\boxed{{{given}}}", answer=gold)
    assert score.value == 0.0
    assert score.outcome in ("limit", "no_answer", "incorrect")
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        (r"\boxed{}", "0", "no_answer"),
        ("", "0", "no_answer"),
        ("I do not know", "0", "no_answer"),
        (r"\boxed{1", "1", "no_answer"),
        (r"\boxed{" + "9" * 3000 + "}", "9", "limit"),
        (r"\boxed{5}", "", "bad_answer"),
        (r"\boxed{5}", None, "bad_answer"),
        (r"\boxed{5}", r"\frac{1", "bad_answer"),
        (r"\boxed{\frac{x}{}", "x", "no_answer"),
        (r"\boxed{\text{the dog}}", r"\text{the cat}", "incorrect"),
        (r"\boxed{\text{the dog}}", "x^2", "no_answer"),
        (r"\boxed{50\%}", "0.5", "incorrect"),
    ],
)
def test_outcomes(completion, answer, expected):
    assert verify("math", completion=completion, answer=answer).outcome == expected


def test_a_box_is_required_by_option():
    assert verify("math", completion="42", answer="42").value == 1.0
    assert verify("math", completion="42", answer="42", box="required").outcome == "no_answer"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 42.", "42"),
        ("The answer is 3.5. Good.", "3.5"),
        ("Answer: $x+1$", "x+1"),
        ("the final answer is: 7", "7"),
        ("The answer is Tuesday.", "Tuesday"),
        ("We get $2$, then $x^2$", "x^2"),
        (r"We get \(2\), then \[x^2\]", "x^2"),
        ("So we have 12 left.", "12"),
        ("28% of them", "28%"),
        ("no idea", None),
        ("", None),
    ],
)
def test_answers_without_a_box(text, answer):
    assert last_formula(text) == answer


def test_simple_answers_need_no_worker(monkeypatch):
    def fail(*_):
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(math_module, "shared_pool", fail)
    for gold, given in [("7", "7"), ("7", "8"), ("1/2", "0.5"), ("x+1", "x + 1"), ("dog", "Dog"),
                        (r"\text{east}", "seat"), ("10 cm", "10 m")]:  # fmt: skip
        assert verify("math", completion=rf"\boxed{{{given}}}", answer=gold).scored


def test_gold_goes_first(monkeypatch):
    jobs = []

    class Recording:
        def map(self, batch, limit, tries):
            jobs.extend(batch)
            return [Reply("ok", "different")] * len(batch)

    monkeypatch.setattr(math_module, "shared_pool", lambda *_: Recording())
    verify("math", completion=r"\boxed{\sin y}", answer=r"\sin x")
    assert jobs[-1][:2] == (r"\sin x", r"\sin y")


@pytest.mark.parametrize(
    ("reply", "value", "outcome"),
    [
        (Reply("timeout"), 0.0, "timeout"),
        (Reply("out_of_memory"), 0.0, "out_of_memory"),
        (Reply("died", -9), 0.0, "crash"),
        (Reply("error", "RecursionError"), 0.0, "crash"),
        (Reply("ok", "limit"), 0.0, "limit"),
        (Reply("ok", "different"), 0.0, "incorrect"),
        (Reply("ok", "equal"), 1.0, "correct"),
    ],
)
def test_what_a_worker_says_becomes_an_outcome(monkeypatch, reply, value, outcome):
    class Fixed:
        def map(self, batch, limit, tries):
            return [reply] * len(batch)

    monkeypatch.setattr(math_module, "shared_pool", lambda *_: Fixed())
    score = verify("math", completion=r"\boxed{\sin x}", answer=r"\cos x")
    assert (score.value, score.outcome) == (value, outcome)


def test_gold_answers_are_checked_in_one_batch(math):
    golds = ["7", r"\frac12", "x+1", "Tuesday", r"\{1,2\}", "(1,2)", r"\frac{1", "", None, "B"]
    reasons = math.check_answers([Prompt(str(g), text="q", answer=g) for g in golds])
    assert [reason is None for reason in reasons] == [True] * 6 + [False] * 3 + [True]
    assert "cannot be read: a bracket is not closed" in reasons[6]
