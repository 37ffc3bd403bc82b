"""The verifiers of short final answers: text, sequence, assignment, moment, countdown, sudoku."""

from fractions import Fraction

import pytest

from groupwise.verifiers import verify
from groupwise.verifiers.answers.expressions import parse_expression

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
        ("2(3)+4", "no_answer"),
        ("4.5*2", "no_answer"),
        ("__import__('os')", "no_answer"),
        ("2+3+4)", "no_answer"),
        ("(" * 60 + "2" + ")" * 60, "no_answer"),
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
    assert parse_expression(text).value == value


GRID = "1234\n3412\n2143\n4321"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (GRID, "correct"),
        ("Here it is:\n\n" + GRID, "correct"),
        ("<answer>\n1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1\n</answer>", "correct"),
        (r"\boxed{[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]}", "correct"),
        ("3412\n1234\n2143\n4321", "incorrect"),  # a given has moved
        ("1234\n1234\n2143\n4321", "incorrect"),
        ("1243\n3412\n2134\n4321", "incorrect"),
        ("12..\n3412\n2143\n4321", "no_answer"),
        ("1234\n3412\n2143", "no_answer"),
        ("1234\n3412\n2143\n4325", "no_answer"),
        (GRID + "\n1234", "incorrect"),  # the last four lines are read
    ],
)
def test_sudoku(text, outcome):
    columns = {"puzzle": ["12..", "....", "..4.", "...1"]}
    assert verify("sudoku", completion=text, columns=columns).outcome == outcome


def test_sudoku_of_nine_and_a_broken_puzzle():
    rows = [
        "".join(str((3 * row + row // 3 + col) % 9 + 1) for col in range(9)) for row in range(9)
    ]
    columns = {"puzzle": ["0" * 9] * 9}
    assert verify("sudoku", completion="\n".join(rows), columns=columns).value == 1.0
    swapped = "\n".join([rows[3], *rows[1:3], rows[0], *rows[4:]])
    assert verify("sudoku", completion=swapped, columns=columns).reason == "box 1 repeats a digit"
    assert verify("sudoku", completion=GRID, columns={"puzzle": ["1"]}).outcome == "bad_answer"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3, 10, 21", 1), ("[3, 10, 21]", 1), ("Sorted: 3 < 10 < 21.", 1), ("3 10 21", 1),
     ("3, 10 and 21", 1), ("<answer>3\n10\n21</answer>", 1), ("3.0, 10, 21", 1), ("21, 10, 3", 0),
     ("3, 10", 0), ("3, 10, 21, 22", 0), ("10, 3, 21", 0), ("", 0), ("<answer>,</answer>", 0)],
)  # fmt: skip
def test_sequence(text, value):
    assert verify("sequence", completion=text, answer="3, 10, 21").value == value
    assert verify("sequence", completion=text, answer=[3, 10, 21]).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("Anna: knight, Ben: knave", 1), ("Ben is a knave and Anna is a knight.", 1),
     ("<answer>anna = knight\nben = knave</answer>", 1), ("Anna: knight", 0), ("knight, knave", 0),
     ("Anna: knight, Ben: knight", 0), ("Anna: knight, Ben: knave, Cy: knave", 0),
     ("Anna: knight, Ben: knave, Ben: knight", 0), ("Anna and Ben: knight", 0), ("", 0)],
)  # fmt: skip
def test_assignment(text, value):
    assert verify("assignment", completion=text, answer="Anna: knight, Ben: knave").value == value
    gold = {"Anna": "knight", "Ben": "knave"}
    assert verify("assignment", completion=text, answer=gold).value == value


def test_assignment_of_numbers():
    assert verify("assignment", completion="y = -2, x = 6/4", answer="x = 1.5, y = -2").value == 1
    assert verify("assignment", completion="x = 2, y = 1", answer="x = 1, y = 2").value == 0
    assert verify("assignment", completion=r"\boxed{7}", answer="x = 7").value == 1
    assert verify("assignment", completion="y = 7", answer="x = 7").value == 0
    assert verify("assignment", completion="7 or 8", answer="x = 7").value == 0


@pytest.mark.parametrize(
    ("answer", "text", "value"),
    [("15:05", "15:05", 1), ("15:05", "3:05 PM", 1), ("15:05", "3:05 p.m.", 1),
     ("09:05", "9:05", 1),
     ("15:05", "3:05", 0), ("12:00", "1:00", 0), ("00:30", "12:30 AM", 1), ("15:05", "15:05 PM", 0),
     ("2024-03-05", "5 March 2024", 1), ("2024-03-05", "March 5th, 2024", 1),
     ("2024-03-05", "2024-05-03", 0), ("2024-03-05", "05/03/2024", 0),
     ("2024-02-29", "29 Feb 2024", 1),
     ("2024-02-29", "2024-02-30", 0), ("Tuesday", "tue", 1), ("Tuesday", "Thursday", 0),
     ("Tuesday", "Tuesday or Friday", 0), ("Tuesday", "T", 0), ("45", "45 minutes", 1),
     ("45", "-45", 0), ("45", "The answer is 45.", 1), ("45", "45 46", 0),
     ("45", "45.0", 1), ("45", "45.5", 0)],
)  # fmt: skip
def test_moment(answer, text, value):
    assert verify("moment", completion=text, answer=answer).value == value


def test_moment_refuses_what_it_cannot_read():
    assert verify("moment", completion="x", answer="soon").outcome == "bad_answer"


def test_text():
    assert verify("text", completion='"olleh"', answer="olleh").value == 1
    assert verify("text", completion="The answer is **olleh**.", answer="olleh").value == 1
    assert verify("text", completion="Olleh", answer="olleh").value == 0
    assert verify("text", completion="Olleh", answer="olleh", ignore_case=True).value == 1
    assert verify("text", completion="hello olleh", answer="olleh").value == 0
    assert verify("text", completion="3.0", answer="3").value == 1
    assert verify("text", completion="''", answer="olleh").outcome == "no_answer"
