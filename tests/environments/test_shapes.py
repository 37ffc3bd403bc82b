"""Rows in the shape of GSM8K, MATH, MMLU, ARC, IFEval, HumanEval and MBPP become prompts."""

import json

import pytest

from groupwise.environments import load_environment
from groupwise.errors import RecipeError

GSM8K = {
    "question": "Ann has 3 boxes of 400 nails and 34 loose ones. How many nails has she?",
    "answer": "3 * 400 = <<3*400=1200>>1200\n1200 + 34 = <<1200+34=1234>>1234\n#### 1,234",
}
MATH = {
    "problem": "What is $\\frac14 + \\frac14$?",
    "solution": "We add: $\\frac24 = \\boxed{\\frac{1}{2}}$.",
    "level": "Level 1",
}
MMLU = {"question": "Which is a metal?", "choices": ["oak", "iron", "wool", "salt"], "answer": 1}
ARC = {
    "id": "A1",
    "question": "Which is a metal?",
    "choices": {"text": ["oak", "iron", "wool", "salt"], "label": ["1", "2", "3", "4"]},
    "answerKey": "2",
}
IFEVAL = {
    "key": 1,
    "prompt": "Write two sentences on rain, without commas.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_sentences"],
    "kwargs": [{}, {"relation": "at least", "num_sentences": 2, "keywords": None}],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n    assert candidate(-1) == -2\n",
}
MBPP = {
    "task_id": 1,
    "text": "Write a function to add two numbers.",
    "code": "def add(a, b):\n    return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, -4) == -4"],
    "test_setup_code": "",
}


@pytest.fixture
def load(tmp_path):
    def with_rows(name, *rows, **arguments):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return load_environment(name, path=str(path), **arguments)

    return with_rows


def test_gsm8k(load):
    environment = load("gsm8k", GSM8K)
    (prompt,) = environment.prompts()
    assert environment.describe()["name"] == "gsm8k"
    assert prompt.answer == "1,234"
    assert prompt.messages[0]["content"].startswith("Ann has 3 boxes")
    assert prompt.last_text.endswith("end with the answer as a number.")
    assert environment.verify(prompt, "So she has 1234 nails.").value == 1
    assert environment.verify(prompt, "So she has 1200.").value == 0
    assert load("gsm8k", GSM8K, suffix="").prompts()[0].last_text == GSM8K["question"]
    assert load("gsm8k", GSM8K, chat=False).prompts()[0].text.startswith("Ann")
    own = load("gsm8k", GSM8K, template="Q: {question} A:").prompts()[0]
    assert own.last_text == f"Q: {GSM8K['question']} A:"


def test_a_row_without_its_answer_is_refused_with_its_place(load):
    with pytest.raises(RecipeError, match=r"environment 'gsm8k'.*gsm8k.jsonl, line 2"):
        load("gsm8k", GSM8K, {"question": "2 + 2?", "answer": "4"})
    with pytest.raises(RecipeError, match="did you mean 'suffix'"):
        load("gsm8k", GSM8K, sufix="")
    with pytest.raises(RecipeError, match=r"line 1: no column 'question'; it has q"):
        load("gsm8k", {"q": 1})
    with pytest.raises(RecipeError, match=r"line 1: the answer 'E' is none of the options"):
        load("mmlu", {**MMLU, "answer": "E"})


def test_math(load):
    environment = load("math", MATH)
    (prompt,) = environment.prompts()
    assert prompt.answer == r"\frac{1}{2}"
    assert prompt.columns["level"] == "Level 1"
    assert environment.verify(prompt, r"It is \boxed{0.5}").value == 1
    assert environment.verify(prompt, r"It is \boxed{2}").value == 0
    assert environment.verify(prompt, prompt.last_text).value == 0
    assert load("math", {**MATH, "answer": "0.5"}).prompts()[0].answer == "0.5"
    with pytest.raises(RecipeError, match="line 1"):
        load("math", {**MATH, "solution": "no box"})


@pytest.mark.parametrize("row", [MMLU, ARC, {**MMLU, "answer": "B"}, {**MMLU, "answer": "iron"}])
def test_options_are_shuffled_by_the_seed_and_the_answer_moves_along(load, row):
    letters = set()
    for seed in range(8):
        environment = load("mmlu", row, seed=seed)
        (prompt,) = environment.prompts()
        options = prompt.columns["choices"]
        assert sorted(options) == ["iron", "oak", "salt", "wool"]
        assert options["ABCD".index(prompt.answer)] == "iron"
        assert f"{prompt.answer}) iron" in prompt.last_text
        assert environment.verify(prompt, f"<answer>{prompt.answer}</answer>").value == 1
        assert environment.verify(prompt, prompt.last_text).value == 0
        letters.add(prompt.answer)
    assert len(letters) > 1
    assert load("mmlu", row, shuffle=False).prompts()[0].answer == "B"
    same = load("mmlu", row, seed=3).prompts(), load("mmlu", row, seed=3).prompts()
    assert same[0] == same[1]


@pytest.mark.parametrize("written", [lambda value: value, json.dumps])
def test_ifeval(load, written):
    row = {**IFEVAL, "kwargs": written(IFEVAL["kwargs"])}
    environment = load("ifeval", row)
    (prompt,) = environment.prompts()
    assert prompt.last_text == IFEVAL["prompt"]
    assert environment.verify(prompt, "Rain falls. It is wet.").value == 1
    assert environment.verify(prompt, "Rain, and wet.").value == 0
    with pytest.raises(RecipeError, match=r"line 1.*did you mean"):
        load("ifeval", {**IFEVAL, "instruction_id_list": ["punctuation:no_coma", "x"]})


def test_humaneval(load):
    environment = load("humaneval", HUMANEVAL)
    (prompt,) = environment.prompts()
    assert "return 2 * x" not in prompt.last_text
    assert prompt.last_text.startswith("```python\ndef double(x):")
    for good in ("```python\ndef double(x):\n    return x + x\n```", "    return x * 2\n"):
        assert environment.verify(prompt, good).value == 1
    for bad in ("", prompt.last_text, "```python\ndef double(x):\n    return 6\n```"):
        assert environment.verify(prompt, bad).value == 0
    with pytest.raises(RecipeError, match="line 1"):
        load("humaneval", {**HUMANEVAL, "canonical_solution": "    return x\n"})


@pytest.mark.parametrize("column", ["text", "prompt"])
def test_mbpp(load, column):
    row = dict(MBPP)
    row[column] = row.pop("text")
    environment = load("mbpp", row)
    (prompt,) = environment.prompts()
    assert prompt.last_text == (
        "Write a function to add two numbers.\nIt must pass this test:\nassert add(1, 2) == 3\n"
        "Answer with one block of Python code."
    )
    assert environment.verify(prompt, "```python\ndef add(a, b):\n    return b + a\n```").value == 1
    assert environment.verify(prompt, "```python\ndef add(a, b):\n    return 3\n```").value == 0
    assert environment.verify(prompt, prompt.last_text).value == 0
    assert "assert" not in load("mbpp", row, tests_shown=0).prompts()[0].last_text


def test_heldout_rows_and_other_verifiers_as_in_a_data_set(load):
    rows = [{**GSM8K, "question": f"{n} + 0?", "answer": f"#### {n}"} for n in range(10)]
    environment = load(
        "gsm8k", *rows, heldout_share=0.3, verifiers=[{"name": "boxed"}], system="Be brief."
    )
    assert environment.describe()["splits"] == {"train": 7, "heldout": 3}
    assert environment.verifier.name == "boxed"
    assert [m["role"] for m in environment.prompts(1)[0].messages] == ["system", "user"]
