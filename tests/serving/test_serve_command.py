"""`groupwise serve`: prints where it listens and its key, answers, and ends on a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import groupwise as gw
from groupwise.cli.app import run

SUM = {"model": "policy", "messages": [{"role": "user", "content": "3+4="}], "temperature": 0}


def test_a_port_in_use_is_named_before_anything_loads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.cli.serve.served_policy", lambda *_: pytest.fail("loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["serve", "tiny", "--port", str(port)]) == 2
    assert f"port = {port} cannot be used" in capsys.readouterr().err


def test_a_step_of_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "tiny", "--step", "3"]) == 2
    assert "--step is for a run's folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_served_until_a_signal(tmp_path: Path, ends: signal.Signals) -> None:
    overrides = {"training.steps": 1, "evaluation.max_prompts": 2}
    gw.train("tiny_arithmetic", overrides, output=tmp_path / "run", small=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "groupwise", "serve", str(tmp_path / "run"), "--name", "policy"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        told = dict(process.stdout.readline().split() for _ in range(3))
        assert told["base_url"].startswith("http://127.0.0.1:")
        headers = {"Authorization": f"Bearer {told['api_key']}"}
        address = told["base_url"] + "/chat/completions"
        answer = httpx.post(address, json=SUM, headers=headers, timeout=60).json()
        assert answer["choices"][0]["message"]["content"] == "7"
        assert httpx.post(address, json=SUM).status_code == 401
        process.send_signal(ends)
        assert process.wait(120) == (130 if ends == signal.SIGINT else -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
