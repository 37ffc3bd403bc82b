"""Which points a budget keeps, what grows, and fault 59: memory over 300 steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.growth import Guess, Point, by_cost, linearity, points
from benchmarks.steady import growth as memory_growth

from benchmarks import growth

ROOT = Path(__file__).parents[2]


def test_the_sweeps_cover_what_they_say() -> None:
    values = {
        sweep: [point.value for point in points(small=False) if point.sweep == sweep]
        for sweep in growth.SWEEPS
    }
    assert values["length"] == ["64", "128", "256", "512", "1024"]
    assert values["group"] == ["2", "4", "8", "16", "32", "64"]
    assert values["prompts"] == ["1", "4", "16", "64"]
    assert values["model"] == ["tiny", "smollm2-135m", "360m-random"]


def test_small_points_come_first_and_the_random_model_last() -> None:
    ordered = by_cost(points(small=False))
    assert ordered[-1].model == "360m-random"
    works = [point.work for point in ordered[:-1]]
    assert works == sorted(works)


def test_a_guess_scales_with_the_tokens_of_the_same_model() -> None:
    guess = Guess()
    small = Point("length", "64", "a", 1, 2, 64)
    assert guess.seconds(small) == 15.0
    guess.learn(small, start=5.0, step=1.28)
    assert guess.seconds(Point("length", "1024", "a", 1, 2, 1024)) == pytest.approx(5 + 1.5 * 20.48)


def test_what_does_not_fit_the_time_is_cut_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(point: Point, *_: Any) -> dict[str, Any]:
        return {
            "sweep": point.sweep,
            "value": point.value,
            "start_seconds": 1.0,
            "seconds": float(point.work),
        }

    monkeypatch.setattr(growth, "measure", measured)
    from rich.console import Console

    chosen = [Point("length", str(n), "a", 1, 1, n) for n in (16, 1024, 8)]
    made = growth.sweep(chosen, 100.0, Console(quiet=True))
    assert [point["value"] for point in made["points"]] == ["16", "8"]
    assert made["cut"] == ["length 1024"]


def test_linearity_is_seconds_a_token_at_the_longest_over_the_shortest() -> None:
    found = [
        {"sweep": "length", "value": "1024", "seconds": 20.0, "tokens": 1024},
        {"sweep": "length", "value": "64", "seconds": 1.0, "tokens": 64},
        {"sweep": "group", "value": "2", "seconds": 1.0, "tokens": 1},
    ]
    assert linearity(found) == pytest.approx(1.25)
    assert linearity(found[:1]) is None


def test_growth_of_memory_and_its_slope() -> None:
    flat = memory_growth([50] * 10 + [100] * 100, warmup=10)
    assert (flat["growth"], flat["slope_bytes_per_step"]) == (0.0, 0.0)
    leak = memory_growth([100 + step for step in range(101)], warmup=0)
    assert leak["slope_bytes_per_step"] == pytest.approx(1.0)
    assert leak["growth"] == pytest.approx((100 + 90.5) / (100 + 9.5) - 1.0)
    with pytest.raises(ValueError, match="leave nothing to see"):
        memory_growth([1, 2], warmup=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_is_flat_over_300_steps() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.steady", "--steps", "300", "--warmup", "100"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=800,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == 300
    assert abs(found["growth"]) < 0.01, found
