"""Runs in child processes that end themselves at named instants.

The unbroken run has an interpreter of its own; the killed ones are forks of a server that has
imported everything, so that a kill costs no import. The two have different hash seeds, so what
depends on the order of a set differs between them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from groupwise import instants
from groupwise.errors import GroupwiseError
from groupwise.records.files import write_json

_PRELOADED = (
    "groupwise.proving.child",
    "groupwise.stages.runner",
    "groupwise.training.session",
    "pyarrow.parquet",
    "safetensors.torch",
    "torch.distributed.checkpoint.state_dict",
    "transformers.models.llama.modeling_llama",
)


_HAS_SERVER = "forkserver" in multiprocessing.get_all_start_methods()


def start_server() -> None:
    """Let the server import everything while the unbroken run is made."""
    if _HAS_SERVER:
        from multiprocessing.forkserver import ensure_running

        multiprocessing.get_context("forkserver").set_forkserver_preload(list(_PRELOADED))
        ensure_running()


@dataclass(frozen=True)
class Job:
    """What every child of one check runs: `gw.train` with these arguments, always as a resume.

    `schedule` is the folder of the asynchronous run that it repeats.
    """

    recipe: Any
    overrides: dict[str, Any]
    small: bool
    folder: Path
    schedule: Path | None = None

    @property
    def run(self) -> Path:
        return self.folder / "run"


@dataclass(frozen=True)
class Ended:
    """How a child ended. `killed` is the key of the instant that ended it; `error` is why it failed
    (an exit code of 2 is a bad recipe). `trace` lists (seconds, key) of its instants."""

    trace: list[tuple[float, str]]
    seconds: float
    killed: str | None = None
    error: str | None = None
    exit_code: int = 0


def run_child(
    job: Job, deaths: Mapping[str, float], *, fresh: bool = False, seconds: float | None = None
) -> Ended:
    """Train in a child to the end or to a death; one that takes longer than `seconds` is ended."""
    for name in ("trace", "output", "error.json"):
        (job.folder / name).unlink(missing_ok=True)
    forked = not fresh and _HAS_SERVER
    context: Any = multiprocessing.get_context("forkserver" if forked else "spawn")
    started = time.perf_counter()
    child = context.Process(target=_train, args=(job, dict(deaths), dict(os.environ)))
    child.start()
    try:
        child.join(seconds)
        late = child.is_alive()
    finally:
        if child.is_alive():
            child.kill()
            child.join()
    return _ended(job, child.exitcode or 0, time.perf_counter() - started, late)


def _train(job: Job, deaths: dict[str, float], environment: dict[str, str]) -> None:
    from groupwise.stages.runner import train

    os.environ.update(environment)
    for module in _PRELOADED:
        with suppress(ImportError):  # of a version without it: imported by who needs it
            import_module(module)
    output = os.open(job.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    instants.arm(job.folder / "trace", deaths)
    try:
        train(
            job.recipe,
            job.overrides,
            output=job.run,
            resume=True,
            small=job.small,
            replay_schedule=job.schedule,
        )
    except GroupwiseError as error:
        write_json(job.folder / "error.json", {"error": str(error)})
        sys.exit(error.exit_code)


def _ended(job: Job, exit_code: int, seconds: float, late: bool) -> Ended:
    trace, killed = list[tuple[float, str]](), None
    path = job.folder / "trace"
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        when, _, key = line.partition("\t")
        if when == "killed":
            killed = key
        else:
            trace.append((float(when), key))
    if exit_code == 0:
        return Ended(trace, seconds)
    if exit_code == -signal.SIGKILL and killed is not None and not late:
        return Ended(trace, seconds, killed)
    reason = f"it did not end within {seconds:.0f} s and was stopped"
    if not late:
        reason = _reason(job) or f"it ended with exit code {exit_code} and no message"
    return Ended(trace, seconds, None, reason, exit_code)


def _reason(job: Job) -> str:
    path = job.folder / "error.json"
    if path.exists():
        return str(json.loads(path.read_text("utf-8"))["error"])
    path = job.folder / "output"
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    return lines[-1] if lines else ""
