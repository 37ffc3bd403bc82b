"""reasoning-gym's tasks: usable ones judged without running answers here, others refused."""

import builtins
import importlib.metadata
import importlib.util
import re
from functools import partial
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.environments.reasoning_gym import tasks
from groupwise.errors import RecipeError
from groupwise.verifiers.answers.final_answer import last_line, stated_answer
from groupwise.verifiers.answers.reasoning_gym import REFUSED

EXECUTES = {
    "binary_matrix", "n_queens", "spiral_matrix", "string_insertion", "countdown", "puzzle24",
    "simple_integration", "intermediate_integration", "polynomial_multiplication",
}  # fmt: skip
TASKS = tasks()
USABLE = [name for name in TASKS if name not in REFUSED]
SAMPLE = ("gcd", "word_sorting")
NOTHING = ("", " \n", "I do not know.", "<answer></answer>", "<answer>?</answer>", "\\boxed{}")


def some_slow(names):
    return [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in names]


def made(name, num=4, **arguments):
    return gw.load_environment(
        f"reasoning_gym:{name}", num_train=num, num_heldout=1, **{"seed": 0, **arguments}
    )


def test_the_tasks_are_all_and_each_has_one_way():
    assert len(TASKS) == 106
    assert importlib.metadata.version("reasoning-gym") == "0.1.25"
    assert EXECUTES <= set(REFUSED) <= set(TASKS)
    assert len(USABLE) == 89


@pytest.mark.parametrize("name", some_slow(USABLE))
def test_gold_is_accepted_and_nothing_is_not(name):
    environment = made(name, num=19 if name not in SAMPLE else 9)  # loading puts all golds through
    for prompt in environment.prompts(4):
        gold = str(prompt.answer)
        assert environment.verify(prompt, f"Let me see.\n<answer>{gold}</answer>").value == 1
        for text in (*NOTHING, prompt.last_text):
            score = environment.verify(prompt, text)
            assert score.value == 0, (prompt.last_text, text, score)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_tasks_say_why(name):
    with pytest.raises(RecipeError) as error:
        made(name)
    assert REFUSED[name] in str(error.value)


def test_the_contract():
    environment = gw.load_environment("reasoning_gym:gcd", seed=0)
    prompts = environment.prompts(5)
    assert len(prompts) == 5
    again = gw.load_environment("reasoning_gym:gcd", seed=0)
    assert again.describe() == environment.describe()
    assert gw.load_environment("reasoning_gym:gcd", seed=1).prompts(5) != prompts
    assert len(environment.prompts(split="all")) == 600
    prompt = prompts[0]
    for text in (
        f"<answer>{prompt.answer}</answer>",
        f"The answer is {prompt.answer}.",
        f"So the divisors are few.\n{prompt.answer}",
        f"It is \\boxed{{{prompt.answer}}}",
        f"<think>The answer is 1.</think>The answer is {prompt.answer}",
    ):
        assert environment.verify(prompt, text).outcome == "correct", text
    assert environment.verify(prompt, f"<answer>{int(prompt.answer) + 1}</answer>").value == 0
    assert environment.verify(prompt, f"<think>{prompt.answer}").outcome == "no_answer"


@pytest.mark.parametrize("name", ["gcd", "word_sorting"])
def test_splits_are_disjoint_and_more_training_moves_no_heldout_prompt(name):
    few, many = made(name, num=5), made(name, num=9)
    ids = [{p.id for p in few.prompts(split=split)} for split in ("train", "heldout")]
    assert not ids[0] & ids[1]
    assert few.prompts(split="heldout") == many.prompts(split="heldout")
    assert few.prompts() == many.prompts()[:5]


def test_no_answer_is_executed_in_this_process(monkeypatch):
    environments = {name: made(name, num=2) for name in ("gcd", "word_sorting")}
    calls = []
    for function in ("eval", "exec"):
        monkeypatch.setattr(builtins, function, lambda *a, **k: calls.append(a))
    hostile = "<answer>__import__('os').system('true') or [0]</answer>"
    for environment in environments.values():
        prompt = environment.prompts()[0]
        assert environment.verify(prompt, hostile).value == 0
    assert not calls


def test_partial_credit_only_where_it_is_asked_for_and_above_the_threshold():
    text = "<answer>The answer is behind this</answer>"
    whole = made("word_sorting", num=2)
    assert whole.verify(whole.prompts()[0], text).value == 0
    gold = whole.prompts()[0].answer
    partly = made("word_sorting", num=2, partial=True, threshold=0.3)
    score = partly.verify(partly.prompts()[0], f"<answer>Words: {gold}</answer>")
    assert score.outcome == "partial"
    assert 0.3 < score.value < 1
    high = made("word_sorting", num=2, partial=True, threshold=0.999)
    assert high.verify(high.prompts()[0], f"<answer>Words: {gold}</answer>").value == 0


@pytest.mark.parametrize(
    ("text", "num_lines", "answer"),
    [
        ("<answer>1</answer> or <answer>2</answer>", 1, "2"),
        ("<answer>\n  3 4\n5\n</answer>", 2, "3 4\n5"),
        ("the answer is 3", 1, "3"),
        ("Answer: x\n1 2\n3 4", 2, "1 2\n3 4"),
        ("The answer is one of these.\nSo\n7", 1, "7"),
        ("", 1, None),
    ],
)
def test_where_the_answer_is_read(text, num_lines, answer):
    read = partial(last_line, num_lines=num_lines)
    assert stated_answer(text, unmarked=read) == answer


def test_arguments_and_names():
    with pytest.raises(RecipeError, match="did you mean 'gcd'"):
        made("gdc")
    with pytest.raises(RecipeError, match=r"config\.seed is set here"):
        made("gcd", config={"seed": 3})
    with pytest.raises(RecipeError, match="max_valeu"):
        made("gcd", config={"max_valeu": 3})
    with pytest.raises(RecipeError, match="distinct ones were found"):
        made("gcd", num=900, config={"min_value": 1, "max_value": 3})
    prompts = made("gcd", config={"max_value": 9}).prompts()
    assert all(max(p.columns["entry"]["metadata"]["numbers"]) <= 9 for p in prompts)


def test_without_the_package_there_is_one_message(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(RecipeError, match=r'pip install "groupwise\[reasoning-gym\]"'):
        made("gcd")


def test_the_page_says_of_every_task_what_the_code_does():
    docs = Path(__file__).parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("rg_page", docs / "reasoning_gym_page.py")
    renderer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(renderer)
    written = (docs / "reasoning_gym.md").read_text(encoding="utf-8")
    golds = {task: int(n) for task, n in re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", written, re.M)}
    assert set(golds) == set(USABLE)
    assert set(golds.values()) == {20}
    assert written == renderer.page(golds), "run: python docs/reasoning_gym_page.py"
