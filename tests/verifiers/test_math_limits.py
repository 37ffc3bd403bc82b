"""`math` and its kin on answers of unusual size or type: a verdict, in time, and no exception."""

import time

import pytest

import groupwise as gw

LARGE = [
    "1e9999", "7e-9999999", "9**9**9**9", "(" * 900 + "7" + ")" * 900, "7" + "!" * 1900,
    r"\{" + ",".join(map(str, range(400))) + r"\}", "7=" * 900 + "8", "1" * 1990, "(x+1)^{10000}",
    "10^{5000}", r"\begin}pmatrix}1\end{pmatrix}", r"\begin", "4 1/", r"\begin{pmatrix}",
]  # fmt: skip


@pytest.mark.parametrize("name", ["math", "number", "boxed"])
@pytest.mark.parametrize("gold", ["7", "1011_2"])
@pytest.mark.parametrize("given", LARGE)
def test_large_answers_are_wrong_in_time(name, gold, given):
    start = time.process_time()
    score = gw.verify(name, completion=rf"\boxed{{{given}}}", answer=gold)
    assert score.value == 0.0 or score.outcome == "bad_answer"
    assert score.outcome not in ("correct", "crash", "timeout")
    assert time.process_time() - start < 2


@pytest.mark.parametrize("gold", LARGE)
def test_large_gold_answers_are_judged_in_time(gold):
    start = time.process_time()
    assert gw.verify("math", completion=r"\boxed{6}", answer=gold).outcome != "correct"
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("answer", "completion"),
    [
        ("20", "Total = $5 + $15 = $20"),
        ("10", "Working 50 minutes, she earned 0.2 x 50 = $10."),
        ("12", "The price is $3 each + $9 = $12."),
        ("40", "He walks 25 minutes + 15 minutes = 40 minutes."),
        ("7", "So 3 apples + 4 apples = 7 apples"),
    ],
)
def test_the_result_of_a_calculation_in_prose(answer, completion):
    assert gw.verify("math", completion=completion, answer=answer).value == 1.0
