"""A run writes its plan down before it loads anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import groupwise as gw
from groupwise.learner import peak_memory_bytes, resident_memory_bytes
from groupwise.planning import Hardware
from groupwise.policies import measure_speed
from groupwise.recipe import load_recipe
from groupwise.records import RunWriter
from groupwise.training import planned
from groupwise.training.planned import plan_of
from groupwise.training.preparing import Prepared, prepare

COUNTED_LATE = 4_000_000
"""The system adds pages up in batches, each of the two at its own times."""
RECIPE = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 2, "steps": 2},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 0},
}


def test_the_plan_is_the_first_event(tmp_path: Path) -> None:
    run = gw.train(RECIPE, output=tmp_path / "run")
    first = run.events()[0]
    made = plan_of(prepare(load_recipe(RECIPE)))
    assert first["kind"] == "planned"
    assert first["memory"] == made.memory.peak
    assert first["tokens"] == made.max_tokens_per_step == 2 * 4 * 4
    assert 0 < first["resident"] <= first["peak"] + COUNTED_LATE
    assert 1e-4 < first["step_seconds"] < 10


def test_what_the_measurement_of_speed_holds_is_not_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device's peak counts it, and the doctor counts a peak above the recorded one."""
    peak = [100]
    measured = planned.own_hardware

    def measure(prepared: Prepared) -> Hardware:
        peak[0] = 2_000
        return measured(prepared)

    monkeypatch.setattr(planned, "own_hardware", measure)
    monkeypatch.setattr(planned, "peak_memory_bytes", lambda _: peak[0])
    with RunWriter.create(tmp_path / "run", "", {}) as writer:
        planned.record_plan(prepare(load_recipe(RECIPE)), writer)
    (event,) = gw.open_run(tmp_path / "run").events()
    assert event["peak"] == 2_000


def test_what_is_resident_is_below_the_peak() -> None:
    device = torch.device("cpu")
    held = torch.ones(10_000_000)
    resident, peak = resident_memory_bytes(device), peak_memory_bytes(device)
    assert held.nbytes < resident <= peak + COUNTED_LATE


def test_the_speed_of_this_machine() -> None:
    speed = measure_speed(torch.device("cpu"), torch.float32)
    assert 1e8 < speed.flops < 1e14
    assert 1e8 < speed.bandwidth < 1e13
    assert 1e-8 < speed.call < 1e-2
