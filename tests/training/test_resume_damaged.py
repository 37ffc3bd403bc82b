"""Resuming a run whose folder is damaged: refused with one message, or said, before it trains."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import GroupwiseError
from run_helpers import Keep, StopAfter

RECIPE: dict[str, Any] = {
    "seed": 4,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 2, "max_tokens": 4},
    "training": {"prompts_per_step": 2, "steps": 4},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 1},
    "checkpoints": {"every": 2},
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ended in its fourth step, with a checkpoint after the second."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with pytest.raises(KeyboardInterrupt):
        gw.train(RECIPE, output=folder, callbacks=[StopAfter(2)])
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step_000002"]
    return folder


def as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-1] + "[")


def listed(path: Path) -> None:
    path.write_text("[1]\n" + path.read_text())


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("checkpoints", as_file, "checkpoints is not a folder"),
        ("rollouts", as_file, "rollouts is not a folder"),
        ("metrics.jsonl", as_folder, "metrics.jsonl is not a file"),
        ("events.jsonl", as_folder, "events.jsonl is not a file"),
        ("environment.json", as_folder, "environment.json is not a file"),
        ("checkpoints/step_000002", as_link, "step_000002 is a symbolic link; put the"),
        ("checkpoints/step_000002", as_file, "step_000002 is not a folder; put the"),
        ("recipe.toml", cut, "recipe.toml cannot be read: "),
        ("metrics.jsonl", listed, "metrics.jsonl: line 1 is no object with 'step'"),
        ("events.jsonl", listed, "events.jsonl: line 1 is no object with 'kind'"),
        (
            "checkpoints",
            shutil.rmtree,
            "holds no checkpoint, and the record names step_000002",
        ),
    ],
)
def test_a_damaged_folder_is_refused_and_left_as_it_is(
    tmp_path: Path, killed: Path, name: str, damage: Callable[[Path], None], why: str
) -> None:
    folder = Path(shutil.copytree(killed, tmp_path / "run"))
    damage(folder / name)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    keep = Keep()
    with pytest.raises(GroupwiseError, match=why):
        gw.train(RECIPE, output=folder, resume=True, callbacks=[keep])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_without_any_checkpoint_starts_again_and_says_what_that_drops(tmp_path: Path) -> None:
    table = RECIPE | {"checkpoints": {"every": 0}}
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "run", callbacks=[StopAfter(2)])
    keep = Keep()
    run = gw.train(table, output=tmp_path / "run", resume=True, callbacks=[keep])
    assert run.steps == [0, 1, 2, 3]
    assert keep.notes[:2] == [
        "the 3 recorded steps are dropped: the run ended before its first checkpoint",
        "resumed at step 0",
    ]


def test_missing_rollouts_are_named_and_too_many_steps_are_said(
    tmp_path: Path, killed: Path
) -> None:
    folder = Path(shutil.copytree(killed, tmp_path / "run"))
    (folder / "rollouts" / "step_000001.parquet").unlink()
    keep = Keep()
    gw.train(RECIPE, output=folder, resume=True, callbacks=[keep])
    assert keep.notes[:2] == [
        "the record has no rollouts of 1 of its steps: 1",
        "resumed at step 2",
    ]
    again = Keep()
    gw.train(RECIPE, {"training.steps": 3}, output=folder, resume=True, callbacks=[again])
    assert again.notes == [
        f"{folder} already ran its 4 steps, more than training.steps = 3: nothing to do"
    ]
