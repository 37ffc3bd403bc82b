"""`tiny_repository`: a file is five tokens, labels have their shares, most first tries fail."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.examples.tiny_repository import (
    HEADS,
    PIECES,
    RepositoryRecipe,
    lookup_row,
    repair_row,
    tokens,
)
from groupwise.policies.tiny import END, Row, _tokenizer, vocabulary
from groupwise.recipe import load_recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "repository.toml"


def environment(**arguments: Any) -> Any:
    given = load_recipe(RECIPE).environment.arguments
    return gw.load_environment("repository", **{**given, "num_heldout": 1, **arguments})


def test_the_recipes_texts_are_read_whole_and_fit() -> None:
    made, sampling = environment(num_train=6), load_recipe(RECIPE).sampling
    tokenizer, known = _tokenizer(PIECES), {*vocabulary(), *PIECES}
    for prompt in made.prompts():
        first, *_ = prompt.columns["files"]
        wrong = prompt.last_text.split("```\n")[0].replace("return x", "return 1 - x")
        (said,) = made.start(prompt).next(wrong + "```")
        for text in (prompt.last_text, prompt.answer, said["content"]):
            assert "".join(tokens(text)) == text
            assert set(tokens(text)) <= known
            assert tokenizer.encode(text).tokens == tokens(text)
        assert 2 * (len(tokens(prompt.answer)) + 1) <= sampling.max_tokens  # of both turns
        assert f"assert {first[0]}(" in said["content"]
        assert len(tokens(prompt.last_text)) == 3 * 5


def learned(row: Row) -> list[list[str]]:
    """The turns that are learned."""
    found: list[list[str]] = [[]]
    for token, weight in row:
        if weight:
            found[-1].append(token)
            if token == END:
                found.append([])
    return found[:-1]


def test_labels_have_the_shares_that_are_stated() -> None:
    recipe, draw = RepositoryRecipe(named=1.0), random.Random(0)
    followed = right = 0
    for _ in range(1000):
        row = repair_row(recipe, draw)
        _, second = learned(row)
        text = "".join(token for token, _ in row)
        followed += second[0] == HEADS["abcdefgh".index(text.split(": assert ")[1][0])]
        operations = dict(zip(("add", "subtract", "times", "divide by", "modulo"), "+-*/%"))
        right += operations[second[1][:-2]] == second[3][2]
    assert followed / 1000 == pytest.approx(recipe.follows + (1 - recipe.follows) / 3, abs=0.05)
    assert right / 1000 == pytest.approx(recipe.right + (1 - recipe.right) / 5, abs=0.05)


def test_a_name_is_looked_up_among_the_files() -> None:
    row = lookup_row(random.Random(0))
    texts = [token for token, _ in row]
    files = dict(zip(texts[2 : texts.index(END) : 2], texts[3 : texts.index(END) : 2]))
    asked = [(texts[at - 1], token) for at, (token, weight) in enumerate(row) if weight]
    assert len(asked) == 12
    assert all(files[head] == comment for head, comment in asked)


@pytest.mark.slow
def test_it_is_mostly_wrong_at_first_and_sometimes_right_in_the_second_turn(tmp_path: Path) -> None:
    run = gw.train(RECIPE, small=True, output=tmp_path / "run", overrides={
        "evaluation.max_prompts": 40, "evaluation.samples": 4, "environment.num_heldout": 40,
        "training.steps": 1,
    })  # fmt: skip
    rows = [r for r in run.evaluation_rollouts(0).to_pylist() if r["kind"] == "evaluation"]
    ended = [len(row["turn_ends"]) for row in rows if row["outcome"] == "correct"]
    assert 0.2 < len(ended) / len(rows) < 0.45
    assert 0.1 < ended.count(2) / len(ended) < 0.7
