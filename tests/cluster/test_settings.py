"""`[compute]` fields of a cluster: what is refused before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import groupwise
from groupwise.cli.app import run as command
from groupwise.errors import RecipeError

TINY = ["train", "tiny_arithmetic", "--small"]
AUTO = ["--compute.cluster", "auto"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TINY, "--compute.samplers", "1"], "samplers = 1 and verifiers = 0 are processes on a"),
        ([*TINY, *AUTO, "--compute.max_staleness", "1"], "max_staleness = 1 with cluster = 'auto'"),
        ([*TINY, *AUTO, "--compute.silence_seconds", "0"], "compute.silence_seconds = 0: must be"),
        (
            [*TINY, "--compute.cluster", "Auto"],
            "compute.cluster = 'Auto' is neither auto nor",
        ),
        ([*TINY, "--compute.cluster", ""], "compute.cluster = '' is neither auto nor an address"),
        (
            [*TINY, "--compute.cluster", "ray://a:1"],
            "cluster = 'ray://a:1' is neither auto",
        ),
        ([*TINY, "--compute.cluster", "a:65536"], "'a:65536' is neither auto nor an address as ho"),
        (
            [*TINY, "--compute.deadline_seconds", "1e300"],
            "deadline_seconds = 1e+300: must be at",
        ),
        (["train", "r1", "--small", *AUTO], "stage 'reasoning': compute.cluster = 'auto': "),
        ([*TINY, *AUTO, "--replay-schedule", "x"], "--replay-schedule follows a run that sampled"),
        ([*TINY, *AUTO], "compute.cluster needs Ray: install groupwise[cluster] on every node"),
    ],
)
def test_what_a_cluster_does_not_take_is_named(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    assert command([*arguments, "--output", str(tmp_path / "run")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("run/*.jsonl"))


def test_a_missing_ray_is_named_before_the_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("groupwise.cluster.launch.prepare", None)  # which would be called next
    assert command([*TINY, *AUTO, "--output", str(tmp_path / "run")]) == 2
    assert "compute.cluster needs Ray" in capsys.readouterr().err


def test_a_plan_refuses_what_training_on_several_processes_refuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    several = ["--compute.processes", "2", "--algorithm.preset", "ppo"]
    assert command(["plan", "tiny_arithmetic", *several]) == 2
    assert "algorithm 'ppo' on 2 processes" in capsys.readouterr().err


def test_a_table_that_is_a_number_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("compute = 3\n[model]\n[environment]\nname = 'arithmetic'\n[algorithm]\n")
    assert command(["train", str(recipe)]) == 2
    assert "compute = 3: expected a table" in capsys.readouterr().err


def test_train_in_python_names_what_places_a_run(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"groupwise\.cluster\.train place a recipe of one run"):
        groupwise.train(
            "tiny_arithmetic.toml", {"compute.cluster": "auto"}, output=tmp_path / "run"
        )
