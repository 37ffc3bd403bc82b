"""Loggers beside the record: what they are sent, by which names; their faults end nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.training import loggers

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 2, "max_tokens": 3},
    "training": {"prompts_per_step": 4, "steps": 2, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
}


class Kept:
    """A backend that keeps what it is sent, or fails."""

    fails = False
    sent: list[tuple[int, dict[str, float]]]
    closed: bool

    def __init__(self, folder: Path, recipe: Any) -> None:
        type(self).sent, type(self).closed = [], False
        assert recipe["training"]["steps"] == 2

    def log(self, values: Any, step: int) -> None:
        if self.fails:
            raise OSError("no such host")
        self.sent.append((step, dict(values)))

    def close(self) -> None:
        type(self).closed = True


@pytest.mark.parametrize("names", ["groupwise", "trl"])
def test_steps_and_the_first_evaluation_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setitem(loggers._BACKENDS, "mlflow", Kept)
    monkeypatch.setitem(loggers.PACKAGES, "mlflow", "json")
    record = {"loggers": ["mlflow"], "metric_names": names}
    run = gw.train(BASE | {"record": record}, output=tmp_path / "run")
    assert [step for step, _ in Kept.sent] == [0, 0, 1]
    assert "eval/accuracy" in Kept.sent[0][1]
    assert Kept.closed
    lines = run.metrics().to_pylist()
    for (_, sent), line in zip(Kept.sent[1:], lines, strict=True):
        if names == "trl":
            assert sent["completions/mean_length"] == line["completions/tokens_mean"]
            assert sent["rewards/number/mean"] == line["verifier/number"]
            assert sent["frac_reward_zero_std"] == line["groups/no_signal"]
        else:
            shown = {key: value for key, value in line.items() if value is not None}
            assert sent == {key: value for key, value in shown.items() if key != "step"}


def test_a_logger_that_fails_is_off_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(loggers._BACKENDS, "wandb", Kept)
    monkeypatch.setitem(loggers.PACKAGES, "wandb", "json")
    monkeypatch.setattr(Kept, "fails", True)
    run = gw.train(BASE | {"record": {"loggers": ["wandb"]}}, output=tmp_path / "run")
    assert run.summary["status"] == "finished"
    assert caplog.text.count("wandb failed and is off for the rest of this run") == 1


def test_a_missing_package_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loggers.PACKAGES, "trackio", "no_such_package")
    with pytest.raises(RecipeError, match="pip install no_such_package"):
        gw.train(BASE | {"record": {"loggers": ["trackio"]}}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio", "mlflow"])
def test_the_real_package_takes_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    run = gw.train(BASE | {"record": {"loggers": [name]}}, output=tmp_path / "run")
    assert run.summary["status"] == "finished"
    assert "failed" not in caplog.text
    written = {"tensorboard": "tensorboard/events.*", "wandb": "wandb/offline-run-*",
               "mlflow": "mlflow.db"}.get(name)  # fmt: skip
    if written is not None:
        assert list((tmp_path / "run").glob(written))
