"""Multiple choice: one option, by letter or text. Fault 50."""

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases

OPTIONS = ["a cat", "the dog", "a bird", "42"]


def judged(text, answer="B", options=OPTIONS, **arguments):
    columns = {"choices": options} if options else {}
    prompt = Prompt("p", text="Which?", answer=answer, columns=columns)
    (score,) = score_cases(load_verifier("choice", **arguments), [Case(prompt, text)])
    return score


@pytest.mark.parametrize(
    "text",
    ["B", "(B)", "b", "B.", "B)", "[B]", "**B**", r"\boxed{B}", r"\boxed{\text{B}}", "$B$",
     "The answer is B.", "The answer is (B).", "Answer: B", "answer: B) the dog", "B. the dog",
     "The answer is (B) the dog.", "the dog", "The dog.", r"\boxed{\text{the dog}}",
     "<answer>B</answer>", "A is wrong.\nThe answer is B", "I think\nB", "Option B",
     "<think>A</think>B", "The answer is A. No, the answer is B.", r"\boxed{A} no \boxed{B}"],
)  # fmt: skip
def test_right(text):
    assert judged(text).outcome == "correct", text


@pytest.mark.parametrize(
    "text",
    ["A", "The answer is A.", "C", "D", "the dog and a cat", "A or B", "B or C", "(A), (B)", "A, B",
     "B and C", "A/B", "", " ", "E", "I do not know", "B. a cat", "(B) a bird", "<think>B</think>",
     "<think>B", r"\boxed{}", r"\boxed{A, B, C, D}", "Which?", "<answer></answer> B",
     "A a cat B the dog C a bird D 42", "The answer is A. Not B"],
)  # fmt: skip
def test_wrong(text):
    assert judged(text).value == 0.0, text


def test_without_texts_a_letter_counts():
    assert judged("The answer is (B) because dogs bark.", options=None).value == 1.0
    assert judged("B", options=None).value == 1.0
    assert judged("a dog", answer="A", options=None).value == 0.0
    assert judged("K", answer="A", options=None).outcome == "no_answer"
    assert judged("C", answer="C", options=None, num_choices=2).outcome == "bad_answer"


@pytest.mark.parametrize("answer", ["B", "b", "(B)", 1, "the dog", "The Dog."])
def test_forms_of_the_gold_answer(answer):
    assert judged("B", answer=answer).value == 1.0
    prompt = Prompt("p", text="q", answer=answer, columns={"choices": OPTIONS})
    assert load_verifier("choice").check_answer(prompt) is None


@pytest.mark.parametrize("answer", ["E", 4, -1, "a horse", None, "", True])
def test_bad_gold_answers(answer):
    assert judged("B", answer=answer).outcome == "bad_answer"


def test_options_from_arguments_and_from_an_object():
    assert judged("yes", answer="A", options=None, choices=["yes", "no"]).value == 1.0
    arc = {"text": ["yes", "no"], "label": ["A", "B"]}
    assert judged("no", answer="B", options=arc).value == 1.0
