"""Generated tasks against solvers written here: right gold answers, splits by family."""

import ast
import re

import pytest

from groupwise.environments import load_environment
from groupwise.environments.generated import is_heldout
from groupwise.environments.registry import REMOVED
from groupwise.errors import RecipeError

LEVELS = ("easy", "medium", "hard")


def prompts(name, level, num=200, **arguments):
    environment = load_environment(name, level=level, num_train=num, num_heldout=20, **arguments)
    return environment.prompts()


@pytest.mark.parametrize("level", LEVELS)
def test_countdown_solutions_keep_the_rules(level):
    for prompt in prompts("countdown", level):
        numbers, target = list(prompt.columns["numbers"]), prompt.columns["target"]
        tree = ast.parse(prompt.answer, mode="eval")
        allowed = (ast.Expression, ast.BinOp, ast.Constant, ast.operator)
        assert all(isinstance(node, allowed) for node in ast.walk(tree))
        assert eval(prompt.answer) == target  # our own text, seen to be arithmetic
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                numbers.remove(node.value)
        assert len(numbers) <= 1
        assert target not in prompt.columns["numbers"]
        assert set(re.findall(r"[-+*/]", prompt.answer)) <= set(prompt.columns["operations"])


def test_countdown_with_all_numbers_and_partial_credit():
    environment = load_environment("countdown", use_all=True, legal=0.1, num_train=30)
    for prompt in environment.prompts():
        assert sorted(map(int, re.findall(r"\d+", prompt.answer))) == sorted(
            prompt.columns["numbers"]
        )
        assert "exactly once" in prompt.last_text
        numbers = " + ".join(map(str, prompt.columns["numbers"]))
        value = environment.verify(prompt, f"<answer>{numbers}</answer>").value
        assert value == (1 if sum(prompt.columns["numbers"]) == prompt.columns["target"] else 0.1)


def test_the_side_of_a_family_depends_on_seed_environment_and_family_alone():
    held = [is_heldout(0, "countdown", str(number)) for number in range(2000)]
    assert 330 < sum(held) < 470
    assert held != [is_heldout(1, "countdown", str(number)) for number in range(2000)]
    assert held != [is_heldout(0, "sql", str(number)) for number in range(2000)]


@pytest.mark.parametrize(("name", "replacement"), REMOVED.items())
def test_a_removed_environment_names_its_replacement(name, replacement):
    with pytest.raises(RecipeError) as error:
        load_environment(name)
    message = f"environment {name!r} was removed; use {replacement!r}"
    assert str(error.value).startswith(message)
    assert ("groupwise[reasoning-gym]" in str(error.value)) == (":" in replacement)


@pytest.mark.slow
@pytest.mark.parametrize("replacement", [each for each in REMOVED.values() if ":" in each])
def test_a_replacement_from_reasoning_gym_exists(replacement):
    pytest.importorskip("reasoning_gym")
    assert len(load_environment(replacement, num_train=2, num_heldout=1)) == 2
