"""Whose processor time it was, and memory, from /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.machine import CpuTimes, cpu_times, shares

from benchmarks import machine

linux = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads /proc")


def test_shares_are_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processors", lambda: 2)
    before = CpuTimes(wall=100.0, busy=50.0, own={1: 1.0, 7: 2.0, 9: 3.0})
    after = CpuTimes(wall=110.0, busy=68.0, own={1: 1.5, 7: 14.0, 9: 4.5})
    found = shares(before, after, active=7)
    assert found == {"active": 0.6, "idle_contenders": 0.1, "foreign": 0.2}


def test_ticks_that_round_up_make_no_negative_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processors", lambda: 1)
    found = shares(CpuTimes(0.0, 0.0, {7: 0.0}), CpuTimes(1.0, 0.99, {7: 1.0}), active=7)
    assert found["foreign"] == 0.0


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert shares(None, None, 1) == {"active": None, "idle_contenders": None, "foreign": None}


@linux
def test_a_childs_time_is_its_roots_own() -> None:
    # The system counts whole ticks, of user and system time apart: some of the 0.4 s are not seen.
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', %r]); input()"
    work = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    process = subprocess.Popen(
        [sys.executable, "-c", code % work], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = cpu_times([process.pid])
            assert now is not None
            if now.own[process.pid] >= 0.3:
                break
            time.sleep(0.05)
        assert now.own[process.pid] >= 0.3
        assert set(now.own) == {os.getpid(), process.pid}
    finally:
        process.communicate(b"\n", timeout=60)


@linux
def test_the_peak_can_be_forgotten() -> None:
    block = bytearray(200 * 2**20)
    with_block = machine.memory()
    del block
    machine.reset_peak()
    without = machine.memory()
    assert with_block is not None
    assert without is not None
    assert with_block - without > 150 * 2**20
    resident = machine.memory("VmRSS")
    assert resident is not None
    assert abs(resident - without) < 20 * 2**20


def test_versions_and_machine_are_told() -> None:
    known = machine.describe()
    assert known["processors"] >= 1
    assert machine.versions()["torch"].startswith("2.")


def test_every_kind_of_processor_has_a_results_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "describe", lambda: {"instruction_sets": ["avx512f", "avx2"]})
    assert machine.results_path(tmp_path) == tmp_path / "results.json"
    table: dict[str, dict[str, list[str]]] = {
        "machine": {"instruction_sets": ["avx512_bf16", "avx2"]}
    }
    (tmp_path / "results.json").write_text(json.dumps(table))
    assert machine.results_path(tmp_path) == tmp_path / "results-avx2.json"
    table["machine"]["instruction_sets"] = ["avx2"]
    (tmp_path / "results.json").write_text(json.dumps(table))
    assert machine.results_path(tmp_path) == tmp_path / "results.json"
