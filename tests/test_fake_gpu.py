"""The path that a GPU takes, on a device that is not the CPU and has none of its operators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.algorithms import PRESETS

LIMITS = {"samplers": 2e-5, "passes": 1e-5, "presets": 1e-14, "run": 2e-5}
CASES = {"samplers": 14, "passes": 4, "presets": 1 + len(PRESETS), "run": 2}


@pytest.mark.slow
@pytest.mark.parametrize("group", list(LIMITS))
def test_nothing_depends_on_the_cpu(group: str) -> None:
    """Sampling (fixed shapes without a read, mixtures, cuts), passes and every preset's updates
    give what the CPU gives; mixed devices and CPU operators would raise."""
    child = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "fake_gpu_child.py"), group],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    found = json.loads(child.stdout.splitlines()[-1])
    assert len(found) == CASES[group]
    wrong = {
        name: error
        for name, error in found.items()
        if isinstance(error, str) or not error <= LIMITS[group]
    }
    assert wrong == {}
