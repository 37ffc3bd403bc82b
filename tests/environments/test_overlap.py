"""Held-out prompts in the training data, exact and near; the data set's own wording is neither."""

from __future__ import annotations

import json

import pytest

from groupwise.environments import load_environment
from groupwise.environments.overlap import (
    common_runs,
    exact_overlap,
    near_overlap,
    runs,
    words,
)
from groupwise.errors import RecipeError
from groupwise.types import Prompt

STORY = (
    "A farmer keeps {a} hens behind the old mill. Each hen lays one egg a day, and on Sundays he "
    "carries all of them to the market in a basket with a broken handle. How many eggs a week?"
)
OTHER = (
    "Seven trains leave the harbour at noon, each with {a} wagons of coal for the northern towns, "
    "and none of them stops before the bridge is reached. How many wagons cross the bridge?"
)


def prompts(*texts):
    return [Prompt(str(place), text=text) for place, text in enumerate(texts)]


def overlap(train, heldout, near=0.5):
    exact = exact_overlap(prompts(*train), prompts(*heldout))
    return exact, near_overlap(prompts(*train), prompts(*heldout), near, exact)


def test_words_and_runs() -> None:
    assert words("it's 1,5 - 2.25!") == ["it", "'", "s", "1,5", "-", "2.25", "!"]
    assert len(runs(words("a b c d e f g h i"))) == 2
    assert runs(["a"] * 7) == []


def test_exact_overlap_is_found_through_case_white_space_and_width() -> None:
    found = overlap(["What is  3+4?", "x"], ["what is 3+4?", "WHAT IS ３+4?\n", "y"])
    assert found == ([(0, 0), (0, 1)], [])


def test_a_changed_word_is_near_and_another_story_is_not() -> None:
    train = [STORY.format(a=12), OTHER.format(a=3)]
    changed = STORY.format(a=12).replace("basket", "cart").replace("Sundays", "Fridays")
    found = overlap(train, [changed, "What else? " * 9])
    assert found == ([], [(0, 0)])
    assert overlap(train, [changed], near=0.98) == ([], [])
    both = overlap(train, [STORY.format(a=12)])
    assert both == ([(0, 0)], [])


def test_a_part_of_a_long_prompt_is_near_only_from_the_share_on() -> None:
    mixed = "Tell me something else first. " * 12 + STORY.format(a=12)
    assert overlap([STORY.format(a=12)], [mixed]) == ([], [])
    assert overlap([STORY.format(a=12)], [mixed], near=0.3) == ([], [(0, 0)])


def test_common_wording_does_not_count() -> None:
    ending = " Think step by step, and end with the answer as a number on its own line."
    train = [f"Question {n}: {n} * {n + 3}?{ending}" for n in range(20)]
    found = overlap(train, [f"Question 99: 99 * 102?{ending}"])
    assert found == ([], [])
    run = ("a",) * 8
    assert common_runs([{run}] * 3, 1000) == set()
    assert common_runs([{run}] * 4, 100) == {run}
    assert common_runs([{run}] * 4, 1000) == set()
    assert common_runs([{run}] * 2, 3) == {run}
    assert common_runs([{run}], 1) == set()


def test_short_prompts_are_compared_to_the_letter_alone() -> None:
    found = overlap(["3 + 4 = ?", "what is 3 + 4 ?"], ["3 + 5 = ?", "what is 3 - 4 ?"])
    assert found == ([], [])


@pytest.fixture
def load(tmp_path):
    def make(train, heldout, **arguments):
        for name, texts in (("data.jsonl", train), ("eval.jsonl", heldout)):
            rows = [{"prompt": text, "answer": 7} for text in texts]
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_environment(
            "dataset",
            verifiers=[{"name": "number"}],
            path=str(tmp_path / "data.jsonl"),
            heldout_path=str(tmp_path / "eval.jsonl"),
            **arguments,
        )

    return make


def test_near_overlap_stops_the_run_unless_it_is_allowed_or_dropped(load) -> None:
    """Fault 49: evaluation rows taken from training rows."""
    train = [STORY.format(a=12), OTHER.format(a=3), "2+5="]
    heldout = [STORY.format(a=12).replace("basket", "cart"), "3+4=", "2+5="]
    with pytest.raises(RecipeError) as error:
        load(train, heldout)
    assert str(error.value) == (
        "environment 'dataset': 1 held-out prompts are also in the training data (eval.jsonl, line "
        "3 = data.jsonl, line 3) and 1 held-out prompts are nearly in the training data "
        '(eval.jsonl, line 1 = data.jsonl, line 1); set on_overlap = "drop" to take them out of '
        'training, or "allow"'
    )
    allowed = load(train, heldout, on_overlap="allow")
    assert allowed.describe()["splits"] == {"train": 3, "heldout": 3}
    assert allowed.notes == [
        "held-out prompts that are also in the training data: 1",
        "held-out prompts of which half or more is also in a training prompt: 1",
    ]
    dropped = load(train, heldout, on_overlap="drop")
    assert [prompt.last_text for prompt in dropped.prompts()] == [OTHER.format(a=3)]
    assert dropped.describe()["dropped_overlap"] == 2
    with pytest.raises(RecipeError, match="1 held-out prompts are also in"):
        load(train, heldout, near_overlap=0.0)
    assert len(load(train[:2], heldout, near_overlap=0.0)) == 2
