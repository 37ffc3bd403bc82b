"""Which prompts come next, how large their groups are, and which of their rollouts are kept."""

from __future__ import annotations

import doctest
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from groupwise.environments import Environment
from groupwise.errors import RecipeError
from groupwise.selection import (
    CurriculumSettings,
    History,
    PromptPicker,
    ReplayBuffer,
    ReplaySettings,
    SelectionSettings,
    curriculum,
    down_sample,
    from_plain,
    group_sizes,
    largest_variance,
    prompts,
    settings,
    signal_chance,
    sizes,
    to_plain,
)
from groupwise.types import Completion, Extras, Group, Prompt, Rollout, Score, StepReward, Turn
from groupwise.verifiers import compose
from record_helpers import group, prompt, rollout


def environment(names: Sequence[str], levels: Sequence[str] = ()) -> Environment:
    given = itertools.zip_longest(names, levels)
    rows = [
        Prompt(id=name, text=name, answer="7", columns={"level": level}) for name, level in given
    ]
    return Environment("own", compose([{"name": "number"}]), {"train": rows})


def anything(prompt_id: str) -> bool:
    return True


def picker(names: Sequence[str], levels: Sequence[str] = (), **table: Any) -> PromptPicker:
    return PromptPicker(environment(names, levels), SelectionSettings(**table), seed=3)


@pytest.mark.parametrize("module", [settings, prompts, sizes, curriculum])
def test_worked_examples(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted > 0


# --- prompts ------------------------------------------------------------------------------------


def test_epochs_visit_every_prompt_once_before_any_twice() -> None:
    """Seven prompts, four at a time: the second step straddles the epoch's edge."""
    names = [f"p{n}" for n in range(7)]
    own = picker(names)
    taken = [each for step in range(7) for each in own.take(4, step, anything)]
    for epoch in range(4):
        part = taken[7 * epoch : 7 * epoch + 7]
        assert sorted(name for name, _ in part) == names
        assert {visit for _, visit in part} == {epoch}


def test_a_visit_counts_how_often_the_prompt_was_sampled() -> None:
    """Refills of one step included: the pairs of a whole run are all different."""
    own = picker(["a", "b", "c"])
    taken = [own.take(2, 0, anything) for _ in range(6)]
    pairs = [pair for each in taken for pair in each]
    assert len(set(pairs)) == len(pairs)
    assert sorted(visit for name, visit in pairs if name == "a") == [0, 1, 2, 3]


def test_a_prompt_outside_the_pool_is_passed_over_and_comes_back() -> None:
    own = picker(["easy", "mixed"], pool={"low": 0.2, "high": 0.8, "revisit": 5})
    own.take(2, 0, anything)
    own.see([group("easy", [1.0, 1.0]), group("mixed", [1.0, 0.0])])
    for step in (1, 2, 3):
        assert [name for name, _ in own.take(2, step, anything)] == ["mixed", "mixed"]
        own.see([group("mixed", [1.0, 0.0])])
    assert {name for name, _ in own.take(2, 5, anything)} == {"easy", "mixed"}


def test_where_the_pool_is_empty_prompts_are_taken_as_they_come() -> None:
    own = picker(["a", "b"], pool={"low": 0.2, "high": 0.8, "revisit": 0})
    own.take(2, 0, anything)
    own.see([group("a", [1.0, 1.0]), group("b", [0.0, 0.0])])
    assert sorted(name for name, _ in own.take(2, 1, anything)) == ["a", "b"]


def test_weighted_draws_have_the_stated_odds() -> None:
    """p = 0.5 against p smoothed to 0.05 (weight 0.19): drawn alone, 0.84 of the time the first."""
    own = picker(["half", "easy"], order="weighted", window=4, floor=0.01)
    own.history.next_visit("half", 0)
    own.history.next_visit("easy", 0)
    own.see([group("half", [1.0, 0.0] * 9), group("easy", [1.0] * 18)])
    assert own.history.smoothed("half") == 0.5
    assert own.history.smoothed("easy") == pytest.approx(0.95)
    drawn = [own.take(1, step, anything)[0][0] for step in range(4000)]
    expected = 1.0 / (1.0 + 4 * 0.95 * 0.05)
    spread = 4 * (expected * (1 - expected) / 4000) ** 0.5
    assert abs(drawn.count("half") / 4000 - expected) < spread
    # none twice within a step while others are left
    assert {name for name, _ in own.take(2, 0, anything)} == {"half", "easy"}
    assert len(own.take(5, 0, anything)) == 5


def test_a_curriculum_opens_the_next_level_by_accuracy() -> None:
    names = [f"e{n}" for n in range(4)] + [f"h{n}" for n in range(4)]
    table = {
        "levels": ["easy", "hard"], "promote_at": 0.75, "window": 4, "rehearse": 0.25,
    }  # fmt: skip
    own = picker(names, ["easy"] * 4 + ["hard"] * 4, curriculum=table)
    assert own.curriculum is not None
    for step, rewards in enumerate(([1.0, 0.0], [1.0, 1.0])):
        taken = own.take(4, step, anything)
        assert {name[0] for name, _ in taken} == {"e"}
        own.see([group(name, rewards) for name, _ in taken])
        assert own.curriculum.promote() is (step == 1)
    assert own.curriculum.name == "hard"
    taken = own.take(8, 2, anything)
    assert [name[0] for name, _ in taken] == ["h", "h", "h", "e"] * 2
    assert not own.curriculum.promote()  # the last level stays, and its window is its own


def test_levels_that_the_data_does_not_have_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"levels names expert, which no training prompt has"):
        picker(["a", "b"], ["easy", "hard"], curriculum={"levels": ["easy", "hard", "expert"]})
    with pytest.raises(RecipeError, match=r"'b' has the level 'hard'.*does not name"):
        picker(["a", "b"], ["easy", "hard"], curriculum={"levels": ["easy", "medium"]})


@pytest.mark.parametrize("column", [["1", "2"], [1, 2], ["2", 1], [1.0, 2.0]])
def test_levels_of_a_table_that_knows_texts_alone(column: list[Any]) -> None:
    own = picker(["a", "b"], column, curriculum={"levels": [1, 2]})
    assert own.curriculum is not None
    expected = {"a"} if str(column[0])[0] == "1" else {"b"}
    assert {name for name, _ in own.take(2, 0, anything)} == expected
    named = picker(["a", "b"], [1, 2], curriculum={"levels": ["1", "2"]})
    assert {name for name, _ in named.take(2, 0, anything)} == {"a"}


def test_a_level_that_two_names_fit_is_refused() -> None:
    words = r"level '1.0' .*levels = \[1, 2\] does not name"
    with pytest.raises(RecipeError, match=words):
        picker(["a", "b"], ["1.0", "2"], curriculum={"levels": [1, 2]})
    # Both are names here, and the data tells them apart.
    own = picker(["a", "b"], ["1", 1], curriculum={"levels": [1, "1"]})
    assert {name for name, _ in own.take(2, 0, anything)} == {"b"}


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"order": "weighted", "pool": {"low": 0.1}},
        {"curriculum": {"levels": ["easy", "hard"], "promote_at": 0.2, "window": 3}},
    ],
)
def test_the_picker_goes_on_from_its_state(table: dict[str, Any]) -> None:
    names, levels = [f"p{n}" for n in range(6)], ["easy", "hard"] * 3

    def played(own: PromptPicker, steps: range) -> list[list[tuple[str, int]]]:
        found = []
        for step in steps:
            taken = own.take(4, step, anything)
            rewards = [[float(int(name[1]) > step % 5), 0.0] for name, _ in taken]
            own.see([group(name, each) for (name, _), each in zip(taken, rewards, strict=True)])
            if own.curriculum is not None:
                own.curriculum.promote()
            found.append(taken)
        return found

    whole, first, second = (picker(names, levels, **table) for _ in range(3))
    expected = played(whole, range(9))
    begun = played(first, range(4))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + played(second, range(4, 9)) == expected


# --- history ------------------------------------------------------------------------------------


def test_the_history_looks_back_on_its_window() -> None:
    own = History(window=2)
    assert own.rate("a") is None
    assert own.smoothed("a") == 0.5
    assert own.tokens("a") is None
    for step, rewards in enumerate(([0.0, 0.0], [1.0, 1.0], [1.0, 0.0, None])):
        own.next_visit("a", step)
        own.see(group("a", rewards, tokens=[4 * step + 1] * len(rewards)))
    assert own.rate("a") == 3 / 4
    assert own.rate("a", visits=3) is None
    assert own.smoothed("a") == 4 / 6
    assert own.tokens("a") == (2 * 5 + 3 * 9) / 5
    assert own.tokens("unknown") == (2 * 1 + 2 * 5 + 3 * 9) / 7
    assert own["a"].last_step == 2


# --- sizes --------------------------------------------------------------------------------------


def test_sizes_are_the_best_use_of_the_budget() -> None:
    """Against every other way to spend it."""
    rates, budget = [0.5, 0.15, 0.9], 21
    found = group_sizes(rates, [1.0] * 3, budget=budget, low=2, high=12)

    def signal(given: Sequence[int]) -> float:
        return sum(signal_chance(p, size) for p, size in zip(rates, given, strict=True))

    every = itertools.product(range(2, 13), repeat=3)
    best = max(signal(each) for each in every if sum(each) <= budget)
    assert sum(found) == budget
    assert signal(found) == pytest.approx(best)
    assert found == [5, 8, 8]


def test_sizes_stay_within_bounds_and_budget() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        rates, costs = rng.uniform(0.02, 0.98, 6).tolist(), rng.uniform(1, 40, 6).tolist()
        found = group_sizes(rates, costs, budget=8 * sum(costs), low=4, high=24)
        assert all(4 <= size <= 24 for size in found)
        assert sum(s * c for s, c in zip(found, costs, strict=True)) <= 8 * sum(costs)
    assert group_sizes([0.5, 0.5], [9.0, 9.0], budget=1, low=3, high=8) == [3, 3]
    with pytest.raises(ValueError, match="within 0 and 1"):
        group_sizes([1.5], [1.0], budget=9, low=2, high=4)


# --- best of many -------------------------------------------------------------------------------


def test_the_subset_has_the_largest_variance() -> None:
    """Against every subset of that size."""
    rng = np.random.default_rng(1)
    for size in (2, 3, 5):
        values = rng.choice([0.0, 0.25, 0.5, 1.0], 8).tolist()
        found = [values[place] for place in largest_variance(values, size)]
        every = [np.var(each) for each in itertools.combinations(values, size)]
        assert np.var(found) == pytest.approx(max(every))
    assert largest_variance([0.0, 1.0], 4) == [0, 1]


def test_down_sampling_splits_a_group() -> None:
    whole = group("a", [1.0, None, 0.0, 1.0, 1.0])
    kept, rest = down_sample(whole, 2)
    assert kept.rewards == (1.0, 0.0)
    assert rest is not None
    assert rest.rewards == (None, 1.0, 1.0)
    assert down_sample(whole, 5) == (whole, None)


# --- replay -------------------------------------------------------------------------------------


def rare(name: str, version: int) -> Group:
    return group(name, [1.0, 0.0, 0.0, 0.0], version=version)


def test_replay_keeps_rare_successes_for_a_while() -> None:
    own = ReplayBuffer(ReplaySettings(at_most=0.25, capacity=2, per_step=1, uses=2))
    own.see([group("always", [1.0, 1.0]), group("never", [0.0, 0.0]), rare("a", 0)])
    assert len(own) == 1
    assert own.take(1) == [rare("a", 0)]
    own.see([rare("b", 1)])
    assert own.take(2) == [rare("b", 1)]  # the less used one first
    assert [each.prompt.id for each in (*own.take(3), *own.take(4))] == ["b", "a"]
    assert own.take(5) == []  # both are used up
    own.see([rare("c", 5), rare("d", 5), rare("e", 6)])
    assert len(own) == 2  # the oldest made room
    assert [each.prompt.id for each in own.take(14)] == ["e"]  # d is too stale
    assert own.take(15) == []


def test_replay_and_groups_come_back_equal() -> None:
    completion = Completion(
        (11, 2), "7", (-0.1, 1 / 3), "stop", 3, entropies=(0.5, 0.25), supports=((1, 11), (2,))
    )
    extras = Extras(
        messages=({"role": "user", "n": 1.5, "parts": [1, {"a": None}]},),
        continued=(1,),
        counts={"calls": 2},
        limit="turns",
        result=Score(1.0, "correct"),
    )
    score = Score(0.5, "partial", "so", {"a": None}, (StepReward(0.5, 1),))
    played = Rollout(
        prompt("a"),
        (Turn((5, 6), completion), Turn((7,), completion)),
        score, 1, 2, 3, extras=extras, step_ends=(1,),
    )  # fmt: skip
    whole = Group(prompt("a"), (played,), greedy=rollout("a", 1.0))
    plain = json.loads(json.dumps(to_plain(whole)))
    assert from_plain(plain, prompt) == whole
    own, other = (ReplayBuffer(ReplaySettings(max_staleness=9)) for _ in range(2))
    own.see([rare("a", 0), rare("b", 1)])
    own.take(2)
    other.load_state_dict(json.loads(json.dumps(own.state_dict())), prompt)
    assert [own.take(step) for step in (3, 4)] == [other.take(step) for step in (3, 4)]


def test_extras_that_no_checkpoint_can_keep_are_refused() -> None:
    made = rollout("a", 1.0)
    odd = Rollout(
        made.prompt, made.turns, made.score, 0, 0, 0, extras=Extras(messages=({"tool": object()},))
    )
    with pytest.raises(TypeError, match="no checkpoint can keep"):
        to_plain(Group(made.prompt, (odd,)))


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"pool": {"low": 0.9, "high": 0.1}}, "low = 0.9 is above high"),
        ({"curriculum": {"levels": ["a", "a"]}}, "names one twice"),
        ({"sizes": {"low": 9, "high": 4}}, "low = 9 is above high = 4"),
        ({"train_on": 6, "sizes": {"low": 4}}, "above sizes.low = 4"),
        ({"curriculum": {"levels": ["a"]}}, "at least 2"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(table: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SelectionSettings(**table)
    assert CurriculumSettings(levels=(1, 2)).levels == (1, 2)
