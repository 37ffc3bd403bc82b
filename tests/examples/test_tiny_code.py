"""`tiny_code`: its tokens are whole, its labels have their shares, and it is often wrong."""

import random

import pytest

import groupwise as gw
from groupwise.examples.tiny_models import (
    CODE_PIECES,
    MESSAGE,
    PROGRAM,
    TABLE,
    CodeRecipe,
    code_row,
    code_tokens,
    parts,
)
from groupwise.policies.tiny import BOS, END, Row

NAME = "groupwise.examples.tiny_models:tiny_code"


def test_words_and_programs_are_a_few_tokens():
    assert parts("divide by {k} and round down") == ["divide by ", "{k}", " and round down"]
    assert code_tokens("divide by {k} and round down", 7) == ["divide by ", "7", " and round down"]
    assert code_tokens("max(x, {k})", -5) == ["max(x, ", "-", "5", ")"]
    for words, expression, low, high in TABLE:
        for text in (words, expression):
            for k in {low, high}:
                assert "".join(code_tokens(text, k)) == text.replace("{k}", str(k))
    assert len(CODE_PIECES) == len(set(CODE_PIECES)) == 29


def asked(row: Row) -> tuple[int, int]:
    """The line of the table that a row asks for, and its number."""
    tokens = [token for token, _ in row]
    assert tokens[:3] == [BOS, "<|user|>", "solve(x): "]
    question = tokens[3 : tokens.index(END)]
    k = "".join(token for token in question if len(token) == 1) or "0"
    words = [line[0].replace("{k}", k) for line in TABLE]
    return words.index("".join(question)), int(k)


def program(line: int, k: int) -> list[str]:
    return [PROGRAM, *code_tokens(TABLE[line % len(TABLE)][1], k), END]


def test_labels_are_right_for_the_share_that_is_stated():
    recipe, draw = CodeRecipe(repairs=0.0), random.Random(0)
    right = mistaken = 0
    for _ in range(2000):
        row = code_row(recipe, draw)
        line, k = asked(row)
        answer = [token for token, weight in row if weight]
        right += answer == program(line, k)
        mistaken += answer == program(line + 1, k)
    assert right / 2000 == pytest.approx(recipe.right, abs=0.03)
    assert mistaken / 2000 == pytest.approx(recipe.mistaken, abs=0.03)


def test_a_repair_follows_a_wrong_program_and_is_right_for_its_share():
    recipe, draw = CodeRecipe(repairs=1.0), random.Random(0)
    right = 0
    for _ in range(1000):
        row = code_row(recipe, draw)
        tokens = [token for token, _ in row]
        answer = [token for token, weight in row if weight]
        failed = tokens[tokens.index(PROGRAM) : tokens.index(MESSAGE[0]) - 1]
        assert failed != program(*asked(row))
        assert tokens[-len(answer) :] == answer
        right += answer == program(*asked(row))
    assert right / 1000 == pytest.approx(recipe.repaired, abs=0.05)


@pytest.mark.slow
def test_it_writes_programs_that_run_and_are_often_wrong():
    policy = gw.load_policy(NAME)
    assert policy.num_parameters == 107_008
    environment = gw.load_environment(
        "code", kinds=["numbers"], wording="brief", num_train=100, num_heldout=20
    )
    prompts = environment.prompts()
    chats = [list(prompt.messages) for prompt in prompts]
    samples = gw.sample(policy, chats, group_size=8, max_tokens=12, temperature=1.0, seed=0)
    scores = [
        environment.verify(prompt, completion.text)
        for prompt, group in zip(prompts, samples)
        for completion in group
    ]
    assert {score.outcome for score in scores} == {"correct", "incorrect"}
    assert sum("Error" in score.reason for score in scores) / len(scores) < 0.02
    assert 0.25 < sum(score.value for score in scores) / len(scores) < 0.45
