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


def test_train_in_python_names_what_places_a_run(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"groupwise\.cluster\.train place a recipe of one run"):
        groupwise.train(
            "tiny_arithmetic.toml", {"compute.cluster": "auto"}, output=tmp_path / "run"
        )
