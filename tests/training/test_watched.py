"""Nothing that watches a run changes what it learns: one run with everything, one with nothing."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from starlette.testclient import TestClient

import groupwise as gw
from groupwise.cli.live_doctor import LiveDoctor
from groupwise.cli.progress import ProgressDisplay
from groupwise.dashboard.report import write_report
from groupwise.dashboard.server import application
from groupwise.records import find_metric
from groupwise.training import start
from groupwise.training.loggers import MetricLogger
from groupwise.training.watchdog import STALLS, Watchdog
from run_helpers import Keep

RECIPE: dict[str, Any] = {
    "seed": 4,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 12, "steps": 4, "learning_rate": 1e-3},
}
NOTHING = {
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 1},
    "checkpoints": {"every": 0},
    "record": {"token_details_every": 0, "stalled_after": 0},
}
EVERYTHING = {
    "evaluation": {"every": 1, "samples": 3, "pass_at_k": [2]},
    "checkpoints": {"every": 1, "keep": 9, "best": "eval/accuracy", "keep_best": 2},
    "record": {"token_details_every": 1, "stalled_after": 1},
}


class Sent:
    """A logger's backend."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.steps.append(step)

    def close(self) -> None:
        pass


class Look(Keep):
    """Writes the report and asks the dashboard, from another thread, while steps are made."""

    def __init__(self, folder: Path, output: Path) -> None:
        super().__init__()
        self.folder, self.output = folder, output
        self.seen: list[int] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def on_ready(self, session: Any) -> None:
        super().on_ready(session)
        self.thread.start()

    def look(self) -> None:
        client = TestClient(application([self.folder], "t"), base_url="http://127.0.0.1")
        while not self.ended.wait(0.05):
            self.seen.append(client.get("/data?token=t").status_code)

    def on_step(self, line: Any) -> None:
        write_report([self.folder], self.output / f"{line['step']}.html")

    def on_end(self, summary: Any, folder: Path) -> None:
        self.ended.set()
        self.thread.join()


@pytest.mark.slow
def test_watching_a_run_leaves_it_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = gw.train(RECIPE | NOTHING, output=tmp_path / "plain")
    monkeypatch.setattr(
        start, "Watchdog", lambda writer, seconds, say: Watchdog(writer, seconds / 100, say)
    )
    sent, look = Sent(), Look(tmp_path / "watched", tmp_path / "reports")
    watched = gw.train(
        RECIPE | EVERYTHING,
        output=tmp_path / "watched",
        callbacks=[
            look,
            ProgressDisplay(Console(file=io.StringIO(), force_terminal=True)),
            LiveDoctor(look.notes.append),
            MetricLogger("sent", lambda folder, recipe: sent, "groupwise"),
        ],
    )
    assert sent.steps[-4:] == [0, 1, 2, 3]
    assert set(look.seen) == {200}
    assert len(list((tmp_path / "reports").iterdir())) == 4
    assert (watched.folder / STALLS).exists(), "the watchdog barked within a step"
    assert len(list((watched.folder / "checkpoints").iterdir())) == 4
    for name in ("model", "optimizer", "extra"):
        files = [
            run.folder / "checkpoints" / "step_000004" / f"{name}.safetensors"
            for run in (plain, watched)
        ]
        one, other = map(load_file, files)
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[key]) for key, tensor in one.items()), name
    details = {"learner_logprobs", "entropies", "loss_weights"}
    tables = [
        [{k: v for k, v in row.items() if k not in details} for row in run.rollouts().to_pylist()]
        for run in (plain, watched)
    ]
    assert tables[0] == tables[1]
    for one, other in zip(plain.metrics().to_pylist(), watched.metrics().to_pylist(), strict=True):
        for key, value in one.items():
            if not key.startswith("eval/") and not find_metric(key).measured:
                assert other[key] == value, key
