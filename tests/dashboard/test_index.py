"""The table of a record's groups: what filters find, what is new, how long a large one takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.record_size import NEEDLE, write_record

from groupwise.dashboard.data import RunView
from groupwise.dashboard.index import GroupIndex, Wanted
from groupwise.dashboard.samples import distributions, passes
from groupwise.errors import RecipeError
from groupwise.records import RunWriter, open_run
from page_helpers import row, write_run


@pytest.mark.parametrize(
    ("wanted", "total"),
    [
        ({}, 120),
        ({"step": "3"}, 10),
        ({"prompt_id": "p0"}, 12),
        ({"kind": "greedy"}, 0),
        ({"outcome": "correct", "finish": "stop"}, 120),
        ({"finish": "length"}, 0),
        ({"signal": "yes"}, 120),
        ({"signal": "no"}, 0),
        ({"text": "</SCRIPT>"}, 120),
        ({"text": "3+4=", "step": "0"}, 10),  # in the prompts alone
        ({"text": "nowhere"}, 0),
        ({"order": "random", "step": "11"}, 10),
    ],
)
def test_filters(folder: Path, wanted: dict[str, Any], total: int) -> None:
    found, lines = GroupIndex(open_run(folder)).find(Wanted(**wanted), limit=1000)
    assert (found, len(lines)) == (total, total)


def test_named_groups_stand_first_and_offsets_reach_every_group_once(folder: Path) -> None:
    index = GroupIndex(open_run(folder))
    index.name([(7, "p7-3")])
    for order in ("step", "random"):
        lines = [index.find(Wanted(order=order), at, 7)[1] for at in range(0, 120, 7)]
        keys = [(line["step"], line["prompt_id"]) for page in lines for line in page]
        assert keys[0] == (7, "p7-3")
        assert len(set(keys)) == len(keys) == 120


def test_new_steps_and_rewritten_ones_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with RunWriter.create(folder, "seed = 0\n", {}) as writer:
        index = GroupIndex(open_run(folder))
        assert index.find(Wanted())[0] == 0
        for step in range(2):
            writer.rollouts(step, [row(step, n, "p") for n in range(3)])
        index.stale = True
        assert [line["members"] for line in index.find(Wanted(), limit=9)[1]] == [3, 3]
        writer.rollouts(1, [row(1, n, "q") for n in range(2)])  # a resumed run does it again
        index.stale = True
        assert [line["prompt_id"] for line in index.find(Wanted(), limit=9)[1]] == ["p", "q"]


def test_a_record_without_rollouts_has_pages(tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    with RunWriter.create(folder, "seed = 0\n", {}) as writer:
        for step in range(3):
            writer.metrics(step, {"loss": 1.0 - step / 10, "fit/eval_loss": 1.0})
        writer.rollouts(1, [])
    found = RunView(open_run(folder)).whole(8)
    assert (found["groups"], found["distributions"], found["passes"]) == ([], {}, [])
    assert found["curves"]["fit/eval_loss"] == [[0, 1, 2], [1.0] * 3]
    view = RunView(open_run(folder))
    assert view.groups(Wanted(text="any"))["total"] == 0


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "rollouts" / "step_000003.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(RecipeError, match=r"rollouts cannot be read: .*step_000003"):
        GroupIndex(open_run(folder)).facets()


def test_distributions_by_hand(folder: Path) -> None:
    found = distributions(open_run(folder))
    assert found["reward"]["steps"] == list(range(12))
    assert found["reward"]["shares"][0][0] == found["reward"]["shares"][0][-1] == 0.5
    assert found["length"]["quantiles"] == [[3.0] * 12] * 3
    assert found["sampler gap"]["quantiles"][2][0] == 0.5  # |-0.5 + 1| at one token of three
    assert "ratio" not in found  # no update after the first: nothing was recorded to take it from


def test_pass_at_k_of_the_first_and_the_last_step(folder: Path) -> None:
    first, last = passes(open_run(folder), [])
    assert (first["label"], last["label"]) == ("groups of step 0", "groups of step 11")
    assert (first["k"], first["mean"], first["prompts"]) == ([1, 2], [0.5, 1.0], 10)
    assert first["low"][0] < 0.5 < first["high"][0]
    t = 2.2622  # Student's, 9 degrees; Wilson's lower bound of 10 in 10 is 1 / (1 + t^2 / 10)
    assert first["low"][1] == pytest.approx(1 / (1 + t * t / 10), abs=1e-3)


def test_a_large_record_is_counted_rightly_and_answers_fast(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_record(folder, 20_000)
    view = RunView(open_run(folder))
    assert view.overview()["rollouts"] == 20_000
    assert len(view.facets()["step"]) == 10
    start = time.process_time()
    middle = view.groups(Wanted(), 1_250, 1)
    assert time.process_time() - start < 0.5  # 0.04 s; reading a whole record takes seconds
    assert middle["total"] == 2_500
    assert (middle["groups"][0]["step"], len(middle["groups"][0]["rows"])) == (5, 8)
    assert view.groups(Wanted(text=NEEDLE))["total"] == 2
    assert view.groups(Wanted(text=NEEDLE, step="0"))["total"] == 1
    assert len(view.visits("p7")) == 1
    assert len(view.sample(40)) == 40
