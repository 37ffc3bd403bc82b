"""Prompt order from (seed, epoch, ids) alone. Faults 43 and 44."""

import pytest

from groupwise.environments import PromptCursor, prompt_order
from groupwise.errors import RecipeError

IDS = [f"p{index}" for index in range(10)]


def test_an_order_is_a_permutation_that_depends_on_seed_and_epoch_only():
    order = prompt_order(0, 0, IDS)
    assert sorted(order) == sorted(IDS)
    assert order == prompt_order(0, 0, list(reversed(IDS)))
    assert order != prompt_order(0, 1, IDS)
    assert order != prompt_order(1, 0, IDS)


def test_golden_order():
    assert prompt_order(0, 0, IDS) == GOLDEN


def test_losing_a_prompt_leaves_the_others_in_order():
    order = prompt_order(3, 2, IDS)
    assert prompt_order(3, 2, [each for each in IDS if each != "p4"]) == [
        each for each in order if each != "p4"
    ]


def test_a_resumed_run_visits_what_the_unbroken_one_does():
    unbroken = PromptCursor(IDS, seed=0)
    visits = [unbroken.at(index) for index in range(35)]
    for stop in (0, 6, 10, 13, 20, 29):
        resumed = PromptCursor(list(reversed(IDS)), seed=0)
        assert [resumed.at(index) for index in range(stop, 35)] == visits[stop:]
    assert [epoch for epoch, _ in visits] == [index // 10 for index in range(35)]
    for epoch in range(3):
        assert sorted(each for _, each in visits[epoch * 10 : epoch * 10 + 10]) == sorted(IDS)


def test_it_can_be_asked_in_any_order():
    cursor = PromptCursor(IDS, seed=0)
    late, early = cursor.at(25), cursor.at(3)
    assert (PromptCursor(IDS, 0).at(3), PromptCursor(IDS, 0).at(25)) == (early, late)
    assert len(cursor) == 10


def test_bad_ids():
    with pytest.raises(RecipeError, match="no prompts"):
        PromptCursor([], seed=0)
    with pytest.raises(ValueError, match="unique"):
        PromptCursor(["a", "a"], seed=0)


GOLDEN = ["p7", "p2", "p9", "p6", "p1", "p3", "p5", "p0", "p4", "p8"]
