"""The verifiers of short final answers: text, countdown; where they are found."""

from fractions import Fraction

import pytest

from groupwise.verifiers import verify
from groupwise.verifiers.answers.arithmetic import value as value_of

NUMBERS = {"numbers": [2, 3, 4], "target": 9}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("2+3+4", "correct"),
        ("<answer>4 + 3 + 2</answer>", "correct"),
        (r"\boxed{(2 + 3) + 4 = 9}", "correct"),
        ("The answer is $4 + 3 + 2$.", "correct"),
        ("9", "incorrect"),  # fault 16: not offered
        ("5+4", "incorrect"),  # fault 16: 5 is not offered
        ("3+3+3", "incorrect"),  # offered once
        ("2*3+4", "incorrect"),  # 10
        ("23-4", "incorrect"),  # digits joined
        ("2+3+4 = 10", "incorrect"),
        ("2+3+4 = nine", "no_answer"),
        ("4/(2-2)", "incorrect"),
        ("3**2", "no_answer"),
        ("3^2", "no_answer"),
        ("-2+3+4*2", "no_answer"),
        ("2(3)+4", "incorrect"),  # 10
        ("4.5*2", "no_answer"),
        ("__import__('os')", "no_answer"),
        ("2+3+4)", "no_answer"),
        ("(" * 30 + "2" + ")" * 30, "incorrect"),
        ("(" * 250 + "2" + ")" * 250, "no_answer"),
        ("9" * 400, "no_answer"),
        ("<answer></answer> 2+3+4", "no_answer"),
        ("<think>2+3+4</think>", "no_answer"),
        ("<think>2+3+4", "no_answer"),
        ("<answer>2+3+4</answer> or <answer>2+3</answer>", "incorrect"),
    ],
)
def test_countdown(text, outcome):
    score = verify("countdown", completion=text, columns=NUMBERS)
    assert score.outcome == outcome, score.reason
    assert score.value == float(outcome == "correct")


def test_countdown_rules_and_partial_credit():
    near = verify("countdown", completion="2*3+4", columns=NUMBERS, legal=0.1)
    illegal = verify("countdown", completion="5+4", columns=NUMBERS, legal=0.1)
    assert (near.value, near.outcome, illegal.value) == (0.1, "partial", 0.0)
    columns = {"numbers": [2, 7, 1], "target": 9}
    assert verify("countdown", completion="2+7", columns=columns).value == 1.0
    assert verify("countdown", completion="2+7", columns=columns, use_all=True).value == 0.0
    assert verify("countdown", completion="(2+7)*1", columns=columns, use_all=True).value == 1.0
    only = {"numbers": [2, 7, 1], "target": 9, "operations": "+-"}
    assert verify("countdown", completion="(2+7)*1", columns=only).value == 0.0
    nothing = verify("countdown", completion="2+7", columns={"numbers": ["2"], "target": 9})
    assert nothing.outcome == "bad_answer"
    renamed = {"nums": [44, 19, 35], "goal": 98}
    right = verify(
        "countdown",
        completion="44 + 19 + 35",
        columns=renamed,
        numbers_column="nums",
        target_column="goal",
    )
    assert right.value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("8 / 4 / 2", 1), ("1/3 + 1/6", Fraction(1, 2)),
     ("2 × 3 − 1", 5), (r"7 \times (5 - 2) \div 3", 7), ("((5))", 5)],
)  # fmt: skip
def test_expressions(text, value):
    assert value_of(text) == value


def test_text():
    assert verify("text", completion='"olleh"', answer="olleh").value == 1
    assert verify("text", completion="The answer is **olleh**.", answer="olleh").value == 1
    assert verify("text", completion="Olleh", answer="olleh").value == 0
    assert verify("text", completion="Olleh", answer="olleh", ignore_case=True).value == 1
    assert verify("text", completion="hello olleh", answer="olleh").value == 0
    assert verify("text", completion="3.0", answer="3").value == 1
    assert verify("text", completion="''", answer="olleh").outcome == "no_answer"
