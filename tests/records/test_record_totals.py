"""Statistics of rollouts, and that splitting them over ranks changes nothing: fault 36."""

from __future__ import annotations

import doctest
import math

import pytest

from groupwise.records import Totals, group_totals, has_signal
from groupwise.records import totals as totals_module
from record_helpers import group, rollout


def test_shares_of_ranks_add_up_by_their_counts():
    first, second = Totals(), Totals()
    first.mean("completions/truncated", 1, 10)
    second.mean("completions/truncated", 2, 2)
    assert (first + second).finish() == {"completions/truncated": 0.25}


def test_a_name_that_a_rank_lacks_is_ignored():
    first, second = Totals(), Totals()
    first.values("verifier/number", [1.0, 0.0, 0.5])
    second.values("verifier/number", [])
    second.values("verifier/format", [None, math.nan])
    merged = (first + second).finish()
    assert merged["verifier/number"] == 0.5
    assert merged["verifier/format"] is None


def test_smallest_and_largest_are_over_all_ranks():
    first, second = Totals(), Totals()
    first.low("completions/tokens_min", 3)
    first.high("completions/tokens_max", 9)
    second.low("completions/tokens_min", 1)
    second.high("completions/tokens_max", 4)
    merged = (first + second).finish()
    assert (merged["completions/tokens_min"], merged["completions/tokens_max"]) == (1, 9)


def test_adding_leaves_the_parts_as_they_were():
    first, second = Totals(), Totals()
    first.count("unscored", 1)
    second.count("unscored", 2)
    assert (first + second).finish()["unscored"] == 3
    assert first.finish()["unscored"] == 1


GROUPS = [
    group("p", [1.0, 0.0, 1.0, 0.0], tokens=[2, 3, 4, 5]),
    group("q", [1.0, 1.0, 1.0, None], tokens=[1, 1, 1, 8], truncated=[3]),
    group("r", [0.2, 0.4], tokens=[2, 2], parts=[{"number": 0.0}, {"number": None, "form": 1.0}]),
]


def test_group_totals_by_hand():
    found = group_totals(GROUPS).finish()
    assert found["reward"] == pytest.approx((2 + 3 + 0.6) / 9, abs=1e-12)
    assert found["reward_std"] == pytest.approx((0.5 + 0.0 + 0.1) / 3, abs=1e-12)
    assert found["groups/count"] == 3
    assert found["groups/no_signal"] == pytest.approx(1 / 3)
    assert found["unscored"] == 1
    assert found["completions/count"] == 10
    assert found["tokens"] == 29
    assert found["completions/tokens_mean"] == pytest.approx(2.9)
    assert (found["completions/tokens_min"], found["completions/tokens_max"]) == (1, 8)
    assert found["completions/truncated"] == pytest.approx(0.1)
    assert found["outcomes/correct"] == 5
    assert found["outcomes/incorrect"] == 2
    assert found["outcomes/not_applicable"] == 1
    assert found["outcomes/timeout"] == 0
    assert found["verifier/number"] == 0.0
    assert found["verifier/form"] == 1.0


def test_std_is_within_groups_and_not_over_the_batch():
    """Fault 32: rewards that differ between prompts alone carry no signal."""
    found = group_totals([group("p", [0.0, 0.0]), group("q", [10.0, 10.0])]).finish()
    assert found["reward_std"] == 0.0
    assert found["groups/no_signal"] == 1.0
    assert found["reward"] == 5.0


@pytest.mark.parametrize("cut", [1, 2])
def test_ranks_see_the_same_metrics_as_one(cut: int):
    whole = group_totals(GROUPS).finish()
    parts = (group_totals(GROUPS[:cut]) + group_totals(GROUPS[cut:])).finish()
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        assert parts[name] == pytest.approx(value, abs=1e-12), name


def test_no_rollout_gives_nones_and_no_error():
    found = group_totals([]).finish()
    assert found["groups/count"] == 0
    assert "reward" not in found


def test_a_whole_group_without_a_score_counts_and_contributes_nothing():
    """Fault 12."""
    found = group_totals([group("p", [None, None]), group("q", [1.0, 0.0])]).finish()
    assert (found["reward"], found["unscored"], found["groups/no_signal"]) == (0.5, 2, 0.5)
    assert found["reward_std"] == 0.5


def test_signal_needs_a_spread_above_rounding():
    assert not has_signal([0.1 + 0.2, 0.3, 0.3])
    assert has_signal([0.3, 0.31])
    assert not has_signal([1e6, 1e6 + 0.5])
    assert not has_signal([1.0])
    assert not has_signal([])


def test_the_tolerance_is_the_one_that_advantages_use():
    from groupwise.algorithms import groups
    from groupwise.records import totals

    assert totals.RELATIVE_TOLERANCE == groups.RELATIVE_TOLERANCE
    assert totals.ABSOLUTE_TOLERANCE == groups.ABSOLUTE_TOLERANCE


def test_greedy_rollouts_count_nowhere():
    plain = group("p", [1.0, 0.0])
    with_greedy = group("p", [1.0, 0.0], greedy=rollout("p", 1.0, index=-1))
    assert group_totals([plain]).finish() == group_totals([with_greedy]).finish()


def test_examples():
    assert doctest.testmod(totals_module).failed == 0


def test_a_sum_is_whole_where_every_number_is():
    totals = Totals()
    for number in (0.5, 1, True):
        totals.count("plays/score", number)
    totals.count("plays/moves", True)
    assert totals.finish() == {"plays/score": 2.5, "plays/moves": 1}
    assert isinstance(totals.finish()["plays/moves"], int)
