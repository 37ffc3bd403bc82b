"""exact, number, tagged, boxed on whole completions. Faults 14, 15, 16, 17, 18 and 50."""

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify
from groupwise.verifiers.answers import answers as answers_module
from groupwise.verifiers.answers.judging import Judged


def outcome(name, completion, answer, **arguments):
    return verify(name, completion=completion, answer=answer, **arguments).outcome


@pytest.mark.parametrize(
    ("name", "completion", "answer", "expected"),
    [
        ("exact", "dog", "dog", "correct"),
        ("exact", " dog\n", "dog", "correct"),
        ("exact", "<think>cat</think>dog", "dog", "correct"),
        ("exact", "Dog", "dog", "incorrect"),
        ("exact", "cat dog bird", "dog", "incorrect"),
        ("exact", "d", "dog", "incorrect"),
        ("exact", "", "dog", "no_answer"),
        ("exact", " \n", "dog", "no_answer"),
        ("exact", "<think>dog", "dog", "no_answer"),
        ("exact", "7", 7, "correct"),
        ("exact", "dog", None, "bad_answer"),
        ("exact", "dog", "", "bad_answer"),
        ("number", "3 + 4 = 7.", "7", "correct"),
        ("number", "3 + 4 = 7.", 7, "correct"),
        ("number", "3 + 4 = 8.", "7", "incorrect"),
        ("number", "I do not know", "7", "no_answer"),
        ("number", "", "7", "no_answer"),
        ("number", "<think>it is 7", "7", "no_answer"),
        ("number", "<think>it is 7</think>", "7", "no_answer"),
        ("number", "<think>it is 8</think>7", "7", "correct"),
        ("number", "8</think>7", "7", "correct"),
        ("number", r"4\sqrt{2}", "2", "no_answer"),
        ("number", "-3", "3", "incorrect"),
        ("number", "7", "seven", "bad_answer"),
        ("number", "7", None, "bad_answer"),
        ("number", "7", "", "bad_answer"),
        ("number", "0.333", r"\frac13", "incorrect"),
        ("number", "1/3", "$\\frac{1}{3}$", "correct"),
        ("tagged", "so <answer>7</answer>", "7", "correct"),
        ("tagged", "so <answer>7.0</answer>", "7", "correct"),
        ("tagged", "7", "7", "no_answer"),
        ("tagged", "<answer></answer>", "7", "no_answer"),
        ("tagged", "<answer>8</answer> or <answer>7</answer>", "7", "correct"),
        ("tagged", "<answer>7 or 8</answer>", "7", "no_answer"),
        ("tagged", "<think><answer>7</answer></think>", "7", "no_answer"),
        ("tagged", "<answer>the dog</answer>", "The  Dog", "correct"),
        ("tagged", "<answer>Dog</answer>", "dog", "correct"),
        ("boxed", r"\boxed{\frac{1}{2}}", "0.5", "correct"),
        ("boxed", r"\boxed{5} no, \boxed{7}", "7", "correct"),
        ("boxed", r"\boxed{5} no, \boxed{7}", "5", "incorrect"),
        ("boxed", r"\boxed{\text{E}}", "E", "correct"),
        ("boxed", r"\boxed{1", "1", "no_answer"),
        ("boxed", r"\boxed{}", "", "bad_answer"),
        ("boxed", r"\boxed{}", "0", "no_answer"),
        ("boxed", r"<think>\boxed{7}</think> done", "7", "no_answer"),
        ("boxed", r"<think>\boxed{8}</think> \boxed{7}", "7", "correct"),
        ("boxed", r"\boxed{42}", r"\boxed{42}", "correct"),
        ("boxed", "\boxed{\frac12}", "0.5", "correct"),
        ("boxed", r"\boxed{41} or \boxed{42} or \boxed{43}", "42", "incorrect"),
        ("boxed", "42", "42", "no_answer"),
    ],
)
def test_outcomes(name, completion, answer, expected):
    assert outcome(name, completion, answer) == expected


def test_values_follow_outcomes():
    assert verify("number", completion="7", answer="7").value == 1.0
    assert verify("number", completion="8", answer="7").value == 0.0
    assert verify("number", completion="", answer="7").value == 0.0
    assert verify("number", completion="7", answer="x").value is None


def test_reasons_show_both_answers():
    assert verify("number", completion="8", answer="7").reason == "8 is not 7"
    assert verify("boxed", completion=r"\boxed{\frac12}", answer="0.5").reason == (
        r"\frac12 equals 0.5"
    )
    assert len(verify("number", completion="9" * 500, answer="7").reason) < 140


def test_arguments():
    assert outcome("exact", "DOG", "dog", ignore_case=True) == "correct"
    assert outcome("exact", "a  b", "a b", collapse_whitespace=False) == "incorrect"
    assert outcome("number", "3.1416", "3.14159", tolerance=1e-4) == "correct"
    assert outcome("number", "3.15", "3.14159", tolerance=1e-4) == "incorrect"
    assert outcome("number", "101", "100", relative_tolerance=0.01) == "correct"
    assert outcome("number", "50%", "0.5") == "incorrect"
    assert outcome("tagged", "<final>7</final>", "7", tag="final") == "correct"
    assert outcome("number", "<r>8</r>7", "7", reasoning_tag="r") == "correct"


@pytest.mark.parametrize("name", ["tagged", "boxed", "number"])
def test_gold_is_always_the_first_argument(name, monkeypatch):
    calls = []

    def recording(gold, given, **keywords):
        calls.append((gold, given))
        return Judged("different")

    monkeypatch.setattr(answers_module, "judge", recording)
    verify(name, completion=r"\boxed{8}<answer>8</answer>", answer="7")
    assert calls == [("7", "8")]


@pytest.mark.parametrize("name", ["exact", "number", "tagged", "boxed", "format"])
@pytest.mark.parametrize("answer", ["7", 7, -3, "1/2", 0.5, "8,000", r"\frac{1}{2}"])
def test_a_verifier_accepts_its_own_gold_answer(name, answer):
    assert load_verifier(name).check_answer(Prompt("p", text="q", answer=answer)) is None


def test_a_bad_gold_answer_is_named():
    number = load_verifier("number")
    reasons = number.check_answers(
        [Prompt(f"p{row}", text="q", answer=answer) for row, answer in enumerate([7, "x", None])]
    )
    assert reasons[0] is None
    assert "the answer 'x' is not a number" in reasons[1]
    assert "the answer is missing" in reasons[2]
    assert load_verifier("number").check_answer(Prompt("p", text="q", answer=r"\pm 2")) is not None


PROBES = ["", " ", "\n\t", "What is 3 + 4?", "0 1 2 3 4 5 6 8 9", "</answer>", "<answer>",
          "<think>7</think>", "<answer></answer>", r"\boxed{}", "\boxed{", "I cannot answer that.",
          "1 2 3 7 4", "<answer>1,2,3,7</answer>", r"\boxed{1,2,3,7}", "7" * 50]  # fmt: skip


@pytest.mark.parametrize("name", ["exact", "number", "tagged", "boxed"])
@pytest.mark.parametrize("text", PROBES)
def test_empty_and_hedging_completions_earn_nothing(name, text):
    prompt = Prompt("p", text="What is 3 + 4?", answer="7")
    (score,) = score_cases(load_verifier(name), [Case(prompt, text)])
    assert score.value == 0.0
