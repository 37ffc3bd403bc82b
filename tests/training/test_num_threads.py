"""A small model runs on one thread, and idle threads sleep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.training.preparing import prepare
from groupwise.training.session import open_session

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 2, "max_tokens": 2},
    "training": {"prompts_per_step": 2, "steps": 1},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
}


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        ({}, 1),  # 105,280 parameters x 4 completions
        ({"training.prompts_per_step": 474}, 1),  # 99.8 million
        ({"training.prompts_per_step": 476}, 2),  # 100.2 million
        ({"training.threads": "auto"}, 1),
        ({"training.threads": 2}, 2),
        ({"training.threads": 1, "training.prompts_per_step": 476}, 1),
    ],
)
def test_threads_by_the_size_of_the_model_and_the_step(
    two_threads: None, changes: dict[str, Any], threads: int
) -> None:
    session = open_session(prepare(load_recipe(BASE, changes)))
    assert torch.get_num_threads() == threads
    session.close()
    assert torch.get_num_threads() == 2


def test_the_number_is_recorded(two_threads: None, tmp_path: Path) -> None:
    run = gw.train(BASE, output=tmp_path / "run")
    assert run.events("started")[0]["threads"] == 1
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [0, -1, "many"])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(RecipeError, match=r"training\.threads"):
        load_recipe(BASE, {"training.threads": threads})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("PASSIVE", "1000")),
        ({"GOMP_SPINCOUNT": "5"}, ("PASSIVE", "5")),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ("ACTIVE", "None")),
    ],
)
def test_idle_threads_sleep_unless_the_user_says_otherwise(
    given: dict[str, str], expected: tuple[str, str]
) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    code = f"import groupwise, os; print([os.environ.get(n) for n in {names}])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**clean, **given, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    wanted = [None if each == "None" else each for each in expected]
    assert found.stdout.strip() == str(wanted)
