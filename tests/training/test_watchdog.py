"""A run that stalls: its stacks and last events are written down, and nothing is interrupted."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from groupwise.instants import entered_step, passed
from groupwise.records import RecordSettings, RunWriter, open_run
from groupwise.training.watchdog import STALLS, Watchdog


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    with RunWriter.create(tmp_path / "run", "", {}) as made:
        made.event("started", step=0)
        yield made


def stuck(seconds: float) -> None:
    time.sleep(seconds)


def test_a_stall_is_named_once_and_again_after_progress(writer: RunWriter) -> None:
    said: list[str] = []
    with Watchdog(writer, 0.3, said.append):
        entered_step(4)
        passed("scoring")
        stuck(0.9)
        assert len(said) == 1
        passed("micro-batch")
        stuck(0.9)
    assert len(said) == 2
    assert said[0].startswith("no progress for 0 s: the last was 'scoring' of step 4, and the ")
    assert "the run is inside stuck (" in said[0]
    assert f"{Path(__file__).name}, line " in said[0]
    text = (writer.folder / STALLS).read_text()
    assert text.count("in stuck") == 2
    assert text.count("last events:") == 2
    assert '"kind": "started"' in text
    events = open_run(writer.folder).events("stalled")
    assert [event["after"] for event in events] == [
        "'scoring' of step 4",
        "'micro-batch' of step 4",
    ]
    assert all(event["inside"].startswith("stuck (") for event in events)
    assert all(0.3 <= event["seconds"] < 0.9 for event in events)


@pytest.mark.skipif(sys.platform == "win32", reason="no usleep")
def test_native_code_that_held_the_interpreter_is_named_when_it_lets_go(writer: RunWriter) -> None:
    said: list[str] = []
    with Watchdog(writer, 0.3, said.append):
        passed("scoring")
        time.sleep(0.15)  # it has seen that
        ctypes.PyDLL(None).usleep(700_000)  # a PyDLL keeps the lock of the interpreter
        time.sleep(0.2)
    assert "in test_native_code_that_held" in (writer.folder / STALLS).read_text()
    assert len(said) == 1


@pytest.mark.parametrize("seconds", [0.001, 0.999])
def test_less_than_a_second_is_refused(seconds: float) -> None:
    with pytest.raises(ValidationError, match="too short to be a stall; use 0"):
        RecordSettings(stalled_after=seconds)
    assert RecordSettings(stalled_after=1).stalled_after == 1
    assert RecordSettings(stalled_after=0).stalled_after == 0


def test_a_run_that_goes_on_leaves_no_file(writer: RunWriter) -> None:
    said: list[str] = []
    with Watchdog(writer, 0.4, said.append), Watchdog(writer, 0.01, said.append):
        for _ in range(12):
            passed("sampling")
            time.sleep(0.05)
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("watchdog") == 1, "one inside another does nothing"
    assert said == []
    assert not (writer.folder / STALLS).exists()
    assert "watchdog" not in [thread.name for thread in threading.enumerate()]


def test_zero_seconds_is_off(writer: RunWriter) -> None:
    with Watchdog(writer, 0.0, pytest.fail):
        assert "watchdog" not in [thread.name for thread in threading.enumerate()]
    assert not (writer.folder / STALLS).exists()


def test_an_instant_costs_a_few_microseconds_at_most() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        for _ in range(20_000):
            passed("scoring")
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 20_000 * 5e-6
