"""Signals while a run is inside a verifier: the first ends it after the step, a second at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.instants import passed
from groupwise.training.process import Interrupted, Interruption
from groupwise.training.train import Loop

MODULE = """
import pathlib, time
CALLS = pathlib.Path("calls")

def slow(completions, **kwargs):
    CALLS.write_text(CALLS.read_text() + "x" if CALLS.exists() else "x")
    if len(CALLS.read_text()) == {slow_call}:
        try:
            time.sleep({seconds})
        except Exception:  # noqa: BLE001 (what users write)
            return [0.0] * len(completions)
    return [float(len(each)) for each in completions]
"""
RECIPE = """
[model]
name = "tiny"
[environment]
name = "arithmetic"
audit = false
verifiers = [{{ name = "rewards:slow" }}]
[algorithm]
preset = "grpo"
[sampling]
group_size = 2
max_tokens = 4
[training]
prompts_per_step = 2
steps = 5
[evaluation]
every = 0
samples = 1
max_prompts = 2
[checkpoints]
every = {every}
{grace}
"""


def start(
    folder: Path, slow_call: int, seconds: float, every: int = 0, grace: str = ""
) -> subprocess.Popen[bytes]:
    """A run whose reward function sleeps in its nth call, once it is inside that call."""
    folder.mkdir(exist_ok=True)
    (folder / "rewards.py").write_text(MODULE.format(slow_call=slow_call, seconds=seconds))
    (folder / "recipe.toml").write_text(RECIPE.format(every=every, grace=grace))
    run = subprocess.Popen(
        [sys.executable, "-m", "groupwise", "train", "recipe.toml", "--output", "run"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    calls = folder / "calls"
    until = time.monotonic() + 90
    while time.monotonic() < until and run.poll() is None:
        if calls.exists() and len(calls.read_text()) >= slow_call:
            break
        time.sleep(0.05)
    time.sleep(0.2)
    return run


def told(run: subprocess.Popen[bytes]) -> str:
    _, errors = run.communicate(timeout=60)
    return errors.decode()


@pytest.mark.slow
def test_the_first_signal_lets_the_step_end_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    run = start(tmp_path, slow_call=2, seconds=2)  # the first call is the evaluation's
    run.send_signal(signal.SIGTERM)
    errors = told(run)
    assert run.returncode == 143
    assert "stopping after this step (signal again to stop now)" in errors
    assert "interrupted after 1 of 5 steps" in errors
    assert (tmp_path / "run" / "checkpoints" / "step_000001").is_dir()


@pytest.mark.slow
def test_a_step_that_outlasts_the_grace_period_is_left_and_the_last_checkpoint_stands(
    tmp_path: Path,
) -> None:
    run = start(tmp_path, slow_call=4, seconds=2.5, every=2, grace="grace_seconds = 1")
    run.send_signal(signal.SIGTERM)  # in the third step: 0 is evaluated, then a call a step
    errors = told(run)
    assert run.returncode == 143
    assert "stopping after this step, or in 1 s without a new checkpoint" in errors
    assert "the step has not ended within 1 s of the signal (checkpoints.grace_seconds)" in errors
    assert "stopped without a new checkpoint; --resume begins with step 2" in errors
    record = gw.open_run(tmp_path / "run")
    assert record.summary["status"] == "interrupted"
    assert record.steps == [0, 1]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_000002"]
    resumed = subprocess.run(
        [sys.executable, "-m", "groupwise", "train", "recipe.toml", "--output", "run", "--resume"],
        cwd=tmp_path,
        capture_output=True,
        timeout=90,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert b"resumed at step 2" in resumed.stderr
    assert gw.open_run(tmp_path / "run").summary["steps"] == 5


def test_only_work_is_left_when_the_grace_period_is_over_never_a_write() -> None:
    written: list[str] = []

    def step() -> None:
        with Interruption(grace=0.01) as interruption:
            interruption.resume_at = 7
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.02)
            for name in ("optimiser", "file", "record", "save", "saved", "micro-batch"):
                passed(name)
                written.append(name)

    with pytest.raises(Interrupted, match="--resume begins with step 7") as caught:
        step()
    assert written == ["optimiser", "file", "record", "save", "saved"]
    assert caught.value.exit_code == 143
    passed("micro-batch")  # the next run is not ended by it


def test_ctrl_c_has_no_grace_period_and_without_one_a_step_is_waited_for() -> None:
    for grace, number in ((0.01, signal.SIGINT), (None, signal.SIGTERM)):
        with Interruption(grace) as interruption:
            os.kill(os.getpid(), number)
            time.sleep(0.02)
            passed("micro-batch")
        assert interruption.number == number


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_a_run_that_hangs_in_a_verifier(
    tmp_path: Path, number: int, code: int
) -> None:
    run = start(tmp_path, slow_call=2, seconds=600)
    began = time.monotonic()
    run.send_signal(number)
    time.sleep(0.3)
    run.send_signal(number)
    errors = told(run)
    assert time.monotonic() - began < 20
    assert run.returncode == code
    assert "interrupted a second time" in errors
    assert gw.open_run(tmp_path / "run").summary["status"] == "interrupted"


@pytest.mark.slow
def test_a_signal_during_the_first_evaluation_ends_before_the_first_step(tmp_path: Path) -> None:
    run = start(tmp_path, slow_call=1, seconds=1)
    run.send_signal(signal.SIGTERM)
    assert "interrupted before step 1 of 5" in told(run)
    assert run.returncode == 143
    again = gw.train(
        str(tmp_path / "recipe.toml"),
        {"environment.verifiers": [{"name": "length", "arguments": {"max_tokens": 4}}]},
        output=tmp_path / "other",
    )
    assert again.summary["steps"] == 5
    resumed = subprocess.run(
        [sys.executable, "-m", "groupwise", "train", "recipe.toml", "--output", "run", "--resume"],
        cwd=tmp_path,
        capture_output=True,
        timeout=90,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert gw.open_run(tmp_path / "run").summary["steps"] == 5


def test_a_signal_between_checkpoint_and_stop_counts_after_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Loop.checkpoint

    def then_signalled(loop: Loop, version: int, *, last: bool) -> bool:
        written = real(loop, version, last=last)
        assert Interruption.active is not None
        Interruption.active.number = signal.SIGTERM
        return written

    monkeypatch.setattr(Loop, "checkpoint", then_signalled)
    recipe = {
        "model": {"name": "tiny"},
        "environment": {"name": "arithmetic", "audit": False},
        "sampling": {"group_size": 2, "max_tokens": 2},
        "algorithm": {"preset": "grpo"},
        "training": {"steps": 3, "prompts_per_step": 1},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 1},
        "checkpoints": {"every": 0},
    }
    with pytest.raises(Interrupted, match="interrupted after 2 of 3 steps"):
        gw.train(recipe, output=tmp_path)
    assert [path.name for path in tmp_path.glob("checkpoints/step_*")] == ["step_000002"]


def test_a_second_signal_is_no_error_that_a_function_could_swallow() -> None:
    def reward() -> float:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except Exception:  # noqa: BLE001 (what users write)
            return 0.0
        return 1.0

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="a second time") as caught, Interruption():
        reward()
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before
