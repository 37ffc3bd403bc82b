"""A step's metrics of its rollouts."""

from __future__ import annotations

import doctest
import math
from dataclasses import replace

import pytest

from groupwise.records import group_totals, has_signal
from groupwise.records import totals as totals_module
from groupwise.types import Extras
from record_helpers import group, rollout

GROUPS = [
    group("p", [1.0, 0.0, 1.0, 0.0], tokens=[2, 3, 4, 5]),
    group("q", [1.0, 1.0, 1.0, None], tokens=[1, 1, 1, 8], truncated=[3]),
    group("r", [0.2, 0.4], tokens=[2, 2], parts=[{"number": 0.0}, {"number": None, "form": 1.0}]),
]


def test_group_totals_by_hand():
    found = group_totals(GROUPS)
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
    found = group_totals([group("p", [0.0, 0.0]), group("q", [10.0, 10.0])])
    assert found["reward_std"] == 0.0
    assert found["groups/no_signal"] == 1.0
    assert found["reward"] == 5.0


def test_no_rollout_gives_nones_and_no_error():
    found = group_totals([])
    assert found["groups/count"] == 0
    assert "reward" not in found


def test_a_whole_group_without_a_score_counts_and_contributes_nothing():
    """Fault 12."""
    found = group_totals([group("p", [None, None]), group("q", [1.0, 0.0])])
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
    assert group_totals([plain]) == group_totals([with_greedy])


def test_examples():
    assert doctest.testmod(totals_module).failed == 0


def test_a_count_is_whole_where_every_number_is():
    played = group("p", [1.0, 0.0, 1.0])
    counts = [{"score": 0.5, "moves": True}, {"score": 1}, {"score": True}]
    played = replace(
        played,
        rollouts=tuple(
            replace(each, extras=Extras(messages=(), counts=own))
            for each, own in zip(played.rollouts, counts, strict=True)
        ),
    )
    found = group_totals([played])
    assert (found["plays/score"], found["plays/moves"]) == (2.5, 1)
    assert isinstance(found["plays/moves"], int)


def test_none_and_nan_are_skipped_and_a_mean_over_nothing_is_none():
    parts = [{"number": 1.0}, {"number": math.nan}, {"number": None, "form": None}]
    found = group_totals([group("p", [1.0, 0.0, 0.5], parts=parts)])
    assert (found["verifier/number"], found["verifier/form"]) == (1.0, None)
