"""A real disk that is full, or read-only, under a save, a record, a run and a cache.

All of it happens in one process with a mount namespace of its own (`full_disk.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("a full disk: unshare and mount (util-linux) are not on the path")
    folder = tmp_path_factory.mktemp("disks")
    tried = subprocess.run(
        [*NAMESPACE, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"a full disk: this system allows no mount: {tried.stderr.decode().strip()}")
    script = str(Path(__file__).with_name("full_disk.py"))
    done = subprocess.run(
        [*NAMESPACE, sys.executable, script, str(folder)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_save_leaves_the_older_checkpoint_and_no_half(found: dict[str, Any]) -> None:
    saving = found["saving"]
    kind, message = saving["error"]
    assert kind == "GroupwiseError"
    assert "the checkpoint after step 2 could not be written" in message
    assert "No space left on device" in message
    assert "older checkpoints are intact" in message
    assert (saving["left"], saving["whole"]) == (["step_000001"], [True, True])


def test_a_line_of_the_record_is_there_whole_or_not_at_all(found: dict[str, Any]) -> None:
    kind, message = found["recording"]["error"]
    assert kind == "GroupwiseError"
    assert "what was recorded before is intact. Free some space, then resume" in message
    assert found["recording"]["kinds"] == ["first", "last"]


def test_a_run_stops_with_the_cause_and_is_resumed_bit_for_bit(found: dict[str, Any]) -> None:
    running = found["running"]
    assert running["error"][0] == "GroupwiseError"
    assert "has 0 bytes free" in running["error"][1]
    assert running["steps"] == [1]
    assert running["recorded"] == [0, 1, 2]
    assert running["equal"]


def test_a_read_only_folder_is_refused_and_still_opens(found: dict[str, Any]) -> None:
    reading = found["reading"]
    for error in (reading["resume"], reading["start"]):
        assert error[0] == "RecipeError"
        assert "cannot be written" in error[1]
    assert "Read-only file system" in reading["resume"][1]
    assert reading["steps"] == [0]


def test_the_model_cache_keeps_no_half_and_is_built_later(found: dict[str, Any]) -> None:
    kind, message = found["caching"]["error"]
    assert kind == "GroupwiseError"
    assert "is full; free some space, or set GROUPWISE_CACHE" in message
    assert found["caching"]["left"] == []
    assert found["caching"]["again"]
