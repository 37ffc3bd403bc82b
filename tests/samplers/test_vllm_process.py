"""A server that the run starts: waited for, its last words, and ended with the run however it ends.

The server is a stand-in for vLLM's, found in the working folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groupwise.errors import GroupwiseError
from groupwise.samplers.servers.process import ServerProcess

SERVER = """
import pathlib, socket, subprocess, sys, time
print("started with", sys.argv[1:], flush=True)
if "--fails" in sys.argv:
    sys.exit("no such model")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
pathlib.Path("child").write_text(str(child.pid))
if "--slow" not in sys.argv:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(100)
"""
OWNER = """
import pathlib, sys, time
from groupwise.samplers.servers.process import ServerProcess
folder = pathlib.Path(sys.argv[1])
server = ServerProcess(sys.executable, "model", folder / "log", [])
server.wait(20)
print("up", flush=True)
time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(SERVER)
    return tmp_path


def ended(folder: Path, seconds: float = 15.0) -> bool:
    """Whether the server's own child ends, which is in its process group."""
    pid, deadline = int((folder / "child").read_text()), time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_it_is_started_waited_for_and_ended(folder: Path) -> None:
    server = ServerProcess(sys.executable, "model", folder / "log", ["--max-model-len", "64"])
    server.wait(20.0)
    assert not ended(folder, seconds=0.1)
    server.close()
    assert ended(folder)
    assert server.ended
    assert "'--logprobs-mode', 'processed_logprobs', '--max-model-len', '64'" in server.last_words()


def test_a_server_that_ends_or_is_slow_is_named_with_its_last_words(folder: Path) -> None:
    server = ServerProcess(sys.executable, "model", folder / "log", ["--fails"])
    with pytest.raises(GroupwiseError, match=r"ended with exit code 1 before .*\n?.*no such"):
        server.wait(20.0)
    server.close()
    slow = ServerProcess(sys.executable, "model", folder / "log", ["--slow"])
    with pytest.raises(GroupwiseError, match="start_seconds = 1: started with"):
        slow.wait(1.0)
    assert slow.ended


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_it_ends_with_a_run_that_is_killed(folder: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert ended(folder)
