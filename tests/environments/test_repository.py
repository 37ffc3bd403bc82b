"""Repairing a repository: what tests see, what a turn is told, what is refused at load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.environments import load_environment
from groupwise.environments.repository_files import block, patched, read_tests
from groupwise.errors import RecipeError

SHOP: dict[str, Any] = {
    "issue": "Discounts are wrong.",
    "files": {
        "shop/cart.py": "from shop.rules import off\n\ndef total(xs):\n    return off(sum(xs))\n",
        "shop/rules.py": "def off(x):\n    return x\n",
    },
    "gold": {"shop/rules.py": "def off(x):\n    return x - 1 if x > 10 else x\n"},
    "tests": ["from shop.cart import total\nassert total([5, 7]) == 11"],
    "hidden_tests": ["from math import ceil\nfrom shop.cart import total\n"
                     "assert total([ceil(2.5), 1]) == 4"],
}  # fmt: skip


def repository(folder: Path, *tasks: dict[str, Any], **arguments: Any) -> Any:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in tasks), encoding="utf-8")
    return load_environment("repository", path=str(path), **arguments)


def fix(text: str) -> str:
    return block("shop/rules.py", text)


def test_a_message_names_the_failing_test_and_the_repair_passes(tmp_path: Path) -> None:
    environment = repository(tmp_path, SHOP)
    (prompt,) = environment.prompts()
    assert "```python shop/cart.py\nfrom shop.rules import off\n" in prompt.last_text
    assert "assert" not in prompt.last_text
    episode = environment.start(prompt)
    (told,) = episode.next(fix("def off(x):\n    return x + 1\n"))
    assert told["content"] == "case 1 of 1: assert total([5, 7]) == 11: AssertionError"
    (told,) = episode.next(fix("def off(x):\n    return y\n"))
    assert told["content"].endswith("NameError: name 'y' is not defined")
    assert episode.next(f"<think>{fix('x')}</think>{prompt.answer}") is None
    assert (episode.result().value, episode.result().outcome) == (1.0, "correct")


def test_what_passes_the_tests_alone_fails_the_hidden_ones(tmp_path: Path) -> None:
    environment = repository(tmp_path, SHOP)
    episode = environment.start(environment.prompts()[0])
    assert episode.next(fix("def off(x):\n    return 11\n")) is None
    assert (episode.result().value, episode.result().outcome) == (0.0, "incorrect")


def test_an_added_module_is_not_what_tests_import(tmp_path: Path) -> None:
    """A `math` of the policy's own must not be what the hidden test computes with."""
    environment = repository(tmp_path, SHOP)
    episode = environment.start(environment.prompts()[0])
    forged = block("math.py", "def ceil(x):\n    return 10\n")
    cheating = fix("def off(x):\n    return 11")
    assert episode.next(f"{cheating}\n{forged}") is None
    assert episode.result().value == 0.0


def test_what_cannot_be_applied_changes_nothing(tmp_path: Path) -> None:
    environment = repository(tmp_path, SHOP, feedback="verdict")
    episode = environment.start(environment.prompts()[0])
    assert episode.result().outcome == "no_answer"
    for text, words in (("I am done.", "no file"), (block("../x.py", "1"), "leaves the repo")):
        assert words in episode.next(text)[0]["content"]
    assert episode.counts["unusable_patches"] == 2
    assert episode.files == SHOP["files"]
    assert episode.next(fix("def off(x): return 0"))[0]["content"] == "The tests fail."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"files": {"../cart.py": "x = 1"}}, "path '../cart.py' leaves the repository"),
        ({"gold": {"/etc/x.py": "x = 1"}}, "path '/etc/x.py' leaves the repository"),
        ({"tests": []}, "tests"),
        ({"gold": {"shop/rules.py": "def off(x): return x + 1"}}, "its gold files fail its tests"),
        ({"files": {**SHOP["files"], **SHOP["gold"]}}, "nothing is to be repaired"),
        ({"tests": ["import shop.cart\nassert shop.cart.total([1]) == 1"]}, "write `from module"),
        ({"tests": ["assert 1 == 1"], "hidden_tests": []}, "none calls the solution"),
        ({"tests": ["assert ("]}, "test 1 does not parse"),
        ({"hint": "x"}, "hint"),
    ],
)
def test_bad_tasks_are_refused_by_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        repository(tmp_path, SHOP, {**SHOP, **change})
    assert words in str(caught.value)
    assert "tasks.jsonl, line 2" in str(caught.value)


def test_made_up_repositories_are_a_function_of_the_seed() -> None:
    one, two = (load_environment("repository", seed=3, num_train=6, num_heldout=2)
                for _ in range(2))  # fmt: skip
    assert one.describe() == two.describe()
    assert one.describe()["splits"] == {"train": 6, "heldout": 2}
    for prompt in one.prompts(split="all"):
        (broken,) = prompt.columns["gold"]
        assert prompt.columns["files"][broken] != prompt.columns["gold"][broken]
        assert len(prompt.columns["tests"]) == len(prompt.columns["hidden_tests"]) == 4


def test_two_names_that_are_the_same_are_refused() -> None:
    tests = ["from a import f\nassert f(1) == 1", "from b import f\nassert f(1) == 2"]
    with pytest.raises(ValueError, match="another test has another 'f'"):
        read_tests(tests, ["a.py", "b.py"])


def test_the_last_block_may_be_open() -> None:
    assert patched({}, "```python a.py\nx = 1") == {"a.py": "x = 1"}
