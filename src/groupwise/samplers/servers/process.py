"""A vLLM server as a process of the run: started, waited for, and ended with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from groupwise.errors import GroupwiseError
from groupwise.policies.adapters import adapter_config
from groupwise.policies.policy import Policy
from groupwise.ports import free_port
from groupwise.samplers.servers.settings import VllmSettings
from groupwise.samplers.servers.weights import Handover

# Starts the server in a process group of its own and ends the group when its own standard input
# closes, which it does when the run ends, however it ends.
_GUARD = """
import contextlib, os, signal, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
def end():
    sys.stdin.read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        os.killpg(server.pid, signal.SIGKILL)
threading.Thread(target=end).start()
code = server.wait()
with contextlib.suppress(ProcessLookupError):
    os.killpg(server.pid, signal.SIGKILL)
os._exit(code & 255)
"""
_LAST_LINES = 12


class ServerProcess:
    """A server of `model`, on a free port of the loopback; what it prints is in `log`."""

    def __init__(self, python: str, model: str, log: Path, arguments: Sequence[str]) -> None:
        port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        if os.sep in python:  # it starts in another folder
            python = str(Path(python).expanduser().absolute())
        command = [
            python, "-m", "vllm.entrypoints.openai.api_server", "--model", model,
            "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "policy",
            "--logprobs-mode", "processed_logprobs", *arguments,
        ]  # fmt: skip
        defaults = {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with log.open("wb") as output:
            try:
                self._guard = subprocess.Popen(
                    [python, "-c", _GUARD, *command],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**defaults, **kept},
                    cwd=log.parent,  # a folder named vllm in this process's would be imported
                    start_new_session=True,
                )
            except OSError as error:
                raise GroupwiseError(
                    f"sampling.vllm.python = {python!r} cannot be started: {error}; give the "
                    f"interpreter of an environment with vLLM, as this one's is {sys.executable!r}"
                ) from error

    def wait(self, seconds: float) -> None:
        """Until the port is open. Raises GroupwiseError where the server ends or is too slow."""
        deadline = time.monotonic() + seconds
        host, port = "127.0.0.1", int(self.url.rpartition(":")[2])
        while time.monotonic() < deadline:
            if self.ended:
                why = f"ended with exit code {self._guard.returncode} before it took requests"
                raise GroupwiseError(f"the vLLM server {why}: {self.last_words()}")
            try:
                socket.create_connection((host, port), timeout=1.0).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        words = self.last_words()
        self.close()
        raise GroupwiseError(
            f"the vLLM server did not take requests within sampling.vllm.start_seconds = "
            f"{seconds:g}: {words}"
        )

    def last_words(self) -> str:
        """The end of what it printed."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        return "\n".join(lines) or "it printed nothing"

    @property
    def ended(self) -> bool:
        return self._guard.poll() is not None

    def close(self) -> None:
        """Ends it and everything it started."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        try:
            self._guard.wait(20.0)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()


def start_server(
    policy: Policy, settings: VllmSettings, handover: Handover, rows: int
) -> ServerProcess:
    """A server of the policy's weights of now, for so many rows at once; it may not be up yet."""
    assert settings.python is not None
    arguments = ["--dtype", str(policy.dtype).removeprefix("torch."), "--max-num-seqs", str(rows)]
    arguments += settings.arguments
    if handover.adapter:
        adapter = adapter_config(policy.model)
        model = str(adapter.base_model_name_or_path)
        arguments += ["--enable-lora", "--max-lora-rank", str(adapter.r)]
    else:
        folder = handover.write(policy)
        handover.keep(folder)
        model = str(folder)
    arguments += ["--enable-sleep-mode"] * settings.sleep
    return ServerProcess(settings.python, model, handover.root / "server.log", arguments)
