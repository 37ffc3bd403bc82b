"""Two run folders compared bit for bit: planted differences are found, and named in order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import groupwise as gw
from groupwise.proving.equality import compare_runs

RECIPE: dict[str, Any] = {
    "seed": 1,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 2, "max_tokens": 3},
    "training": {"prompts_per_step": 4, "steps": 2, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 1},
}
LAST = "checkpoints/step_000002/model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gw.train(RECIPE, output=tmp_path_factory.mktemp("runs") / "whole").folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def flip(path: Path) -> None:
    """Change the lowest bit of one weight."""
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name].reshape(-1).view(torch.int32)[3] ^= 1
    save_file(tensors, path)


def change_line(path: Path, name: str, value: Any, step: int = 1) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[step][name] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def change_reward(path: Path) -> None:
    table = pq.read_table(path)
    rewards = [7.0, *table.column("reward").to_pylist()[1:]]
    place = table.column_names.index("reward")
    pq.write_table(table.set_column(place, "reward", pa.array(rewards, pa.float64())), path)


def test_equal_runs_have_no_difference(whole: Path, copy: Path) -> None:
    found = compare_runs(whole, copy)
    assert (found.first, found.bits_differing) == (None, 0)
    assert found.files == sum(
        path.is_file() and path.name not in (".lock", "manifest.json") for path in whole.rglob("*")
    )
    assert found.bits > 8 * (whole / LAST).stat().st_size


def test_one_bit_of_one_weight_is_found(whole: Path, copy: Path) -> None:
    flip(copy / LAST)
    found = compare_runs(whole, copy)
    assert found.bits_differing == 1
    assert found.first is not None
    assert found.first.startswith(f"{LAST}: ")
    assert "1 bits in 1 of" in found.first


def test_a_metric_is_named_with_its_step_and_clocks_are_not_compared(
    whole: Path, copy: Path
) -> None:
    change_line(copy / "metrics.jsonl", "seconds/step", 99.0)
    change_line(copy / "metrics.jsonl", "memory/peak_bytes", 1)
    assert compare_runs(whole, copy).first is None
    change_line(copy / "metrics.jsonl", "entropy", 99.0)
    found = compare_runs(whole, copy).first
    assert found is not None
    assert found.startswith("metrics.jsonl: step 1, entropy: ")
    assert found.endswith("99.0 broken")


def test_the_first_difference_is_the_earliest_cause(whole: Path, copy: Path) -> None:
    flip(copy / LAST)
    change_line(copy / "metrics.jsonl", "loss", 99.0, step=0)
    change_reward(copy / "rollouts" / "step_000001.parquet")
    first = compare_runs(whole, copy).first
    assert first is not None
    assert first.startswith("metrics.jsonl: step 0, loss"), "step 0 is before step 1"
    change_reward(copy / "rollouts" / "step_000000.parquet")
    first = compare_runs(whole, copy).first
    assert first is not None
    assert first.startswith("rollouts/step_000000.parquet: rewards (reward) in 1 of 8 rows")
    assert first.endswith("-> 7.0")


def test_an_evaluation_is_compared_among_the_events(whole: Path, copy: Path) -> None:
    path = copy / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    events.append({"time": "now", "kind": "resumed", "step": 1})  # what happened may differ
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert compare_runs(whole, copy).first is None
    last = next(each for each in reversed(events) if each["kind"] == "evaluation")
    last["values"]["eval/accuracy"] = 2.0
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    first = compare_runs(whole, copy).first
    assert first is not None
    assert first.startswith("events.jsonl: evaluation 2, eval/accuracy: ")


@pytest.mark.parametrize("which", ["unbroken", "broken"])
def test_a_file_of_one_run_alone_is_named(whole: Path, copy: Path, which: str) -> None:
    if which == "unbroken":
        (copy / "rollouts" / "step_000001.parquet").unlink()
    else:
        (copy / "rollouts" / ".step_000001.parquet.7.tmp").touch()
    first = compare_runs(whole, copy).first
    assert first is not None
    assert first.endswith(f"only in the {which} run")
