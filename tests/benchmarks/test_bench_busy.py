"""The fair share beside other processes, and what a measurement of it writes."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import psutil
import pytest

from benchmarks import busy


def test_examples() -> None:
    assert doctest.testmod(busy).failed == 0


@pytest.mark.parametrize(
    ("seconds", "processor", "neighbours", "fair"),
    [
        (10.0, 10.0, 0, 10.0),
        (10.0, 10.0, 1, 10.0),  # a core each
        (10.0, 10.0, 3, 20.0),
        (10.0, 15.0, 4, 37.5),
        (40.0, 1.0, 4, 40.0),  # it mostly waits
    ],
)
def test_the_fair_time(seconds: float, processor: float, neighbours: int, fair: float) -> None:
    rest = {"seconds": seconds, "processor_seconds": processor}
    assert busy.fair_seconds(rest, neighbours, cores=2) == pytest.approx(fair)


def test_neighbours_end_with_the_block() -> None:
    own = psutil.Process()
    before = {each.pid for each in own.children()}
    with busy.neighbours_at_work(2):
        assert len({each.pid for each in own.children()} - before) == 2
    assert {each.pid for each in own.children()} <= before


def test_the_ratio_goes_into_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([(1.0, 1.0), (10.0, 10.0), (30.0, 11.0)])

    def train(steps: int, neighbours: int) -> dict[str, float]:
        seconds, processor = next(found)
        return {"seconds": seconds, "processor_seconds": processor}

    monkeypatch.setattr(busy, "train", train)
    monkeypatch.delattr("os.sched_setaffinity", raising=False)
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"ratios": {"step_vs_trl_best": 3.0}}))
    assert busy.main(["--into", str(file)]) == 0
    results = json.loads(file.read_text())
    assert results["ratios"] == {
        "step_vs_trl_best": 3.0, "busy_vs_fair": 1.2, "demo_processor_seconds": 10.0
    }  # fmt: skip
    assert results["busy"]["processor_time_vs_rest"] == 1.1
