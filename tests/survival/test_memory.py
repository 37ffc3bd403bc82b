"""Memory that really runs out, in a child with a limit on its address space."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory: no address-space limit here"),
]


def update(folder: Path, *share: str) -> dict[str, Any]:
    script = str(Path(__file__).with_name("memory_limit.py"))
    done = subprocess.run(
        [sys.executable, script, str(folder), *share],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("memory")
    assert update(made)["notes"] == []
    return made


def test_the_micro_batch_is_halved_and_the_weights_are_those_of_the_unhindered_update(
    folder: Path,
) -> None:
    found = update(folder, "0.3")
    assert found["needed"] > 100e6
    assert found["updates"] == 1
    assert len(found["notes"]) >= 2, "halved more than once"
    assert "DefaultCPUAllocator: can't allocate memory" in found["notes"][0]
    whole, limited = (load_file(folder / f"{name}.safetensors") for name in ("whole", "limited"))
    for name, tensor in whole.items():  # one step of SGD at a rate of 1: its gradient
        assert torch.allclose(tensor, limited[name], rtol=0, atol=1e-6), name


def test_a_single_row_that_does_not_fit_is_named(folder: Path) -> None:
    found = update(folder, "0.0")
    assert found["update"] == 0
    assert found["error"].startswith("step 0, update 0: memory ran out in a pass whose micro-")
    assert "a single row" in found["error"]
    assert "Nothing was updated" in found["error"]
