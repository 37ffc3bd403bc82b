"""The machine, processor time by owner, and the memory of a process, read from /proc.

Off Linux the readings are None and nothing is dropped. Left out: which repeats are dropped
(ratios.py).
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
PACKAGES = (
    "groupwise", "torch", "transformers", "tokenizers", "numpy", "trl", "accelerate",
    "openvino", "openvino-genai", "vllm",
)  # fmt: skip
_FLAGS = ("amx_bf16", "amx_tile", "avx512_bf16", "avx512f", "avx2")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass(frozen=True)
class CpuTimes:
    """Seconds since boot that all processors were busy (steal included), and that the processes
    asked about were, at one moment of the wall clock."""

    wall: float
    busy: float
    own: dict[int, float]


def cpu_times(pids: list[int]) -> CpuTimes | None:
    """Now, for this process and `pids`, each with all its descendants."""
    if not (_PROC / "stat").exists():
        return None
    tick = os.sysconf("SC_CLK_TCK")
    fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(each) for each in fields[:8])
    busy = (user + nice + system + irq + softirq + steal) / tick
    own = {pid: seconds / tick for pid, seconds in _tree_ticks({os.getpid(), *pids}).items()}
    return CpuTimes(time.monotonic(), busy, own)


def _tree_ticks(roots: set[int]) -> dict[int, int]:
    """Ticks by root; a process counts for the nearest of its ancestors that is a root.

    Children that have ended are in their parent's cutime and cstime.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:  # it ended while we looked
            continue
        values = text.rpartition(")")[2].split()
        pid = int(entry.name)
        parents[pid] = int(values[1])
        ticks[pid] = sum(int(each) for each in values[11:15])
    totals = dict.fromkeys(roots, 0)
    for pid, spent in ticks.items():
        owner: int | None = pid
        while owner is not None and owner not in roots:
            owner = parents.get(owner)
        if owner is not None:
            totals[owner] += spent
    return totals


def shares(before: CpuTimes | None, after: CpuTimes | None, active: int) -> dict[str, float | None]:
    """Whose processors they were, as shares of all of them: `active`'s, idle contenders', foreign.

    >>> a = CpuTimes(0.0, 0.0, {1: 0.0, 2: 0.0})
    >>> shares(a, CpuTimes(10.0, 9.0, {1: 8.0, 2: 0.5}), active=1, )["foreign"] is not None
    True
    """
    names = ("active", "idle_contenders", "foreign")
    if before is None or after is None:
        return dict.fromkeys(names)
    room = (after.wall - before.wall) * processors()
    spent = {pid: after.own[pid] - before.own.get(pid, 0.0) for pid in after.own}
    own = spent.pop(active, 0.0)
    idle = sum(spent.values())
    foreign = max(0.0, after.busy - before.busy - own - idle)
    return {
        name: round(value / room, 4) if room > 0 else 0.0
        for name, value in zip(names, (own, idle, foreign), strict=True)
    }


def processors() -> int:
    """All of the machine's, as /proc/stat counts all of them."""
    return os.cpu_count() or 1


def reset_peak() -> None:
    """Forget this process's largest resident size so far, where the system can."""
    try:
        (_PROC / "self" / "clear_refs").write_text("5")
    except OSError:
        return


def memory(name: str = "VmHWM") -> int | None:
    """Bytes resident in this process: `VmHWM` the largest since the reset, `VmRSS` now."""
    path = _PROC / "self" / "status"
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def available_memory() -> int | None:
    """Bytes that new processes can have without swapping."""
    path = _PROC / "meminfo"
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def describe() -> dict[str, Any]:
    """The machine, as results.json keeps it."""
    from groupwise.records import describe_machine

    known = describe_machine()
    cpu = Path("/proc/cpuinfo")
    flags: set[str] = set()
    if cpu.exists():
        lines = cpu.read_text(errors="replace").splitlines()
        flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return {
        "processor": known["processor"],
        "instruction_sets": [flag for flag in _FLAGS if flag in flags],
        "kind": kind([flag for flag in _FLAGS if flag in flags]),
        "processors": known["cpus"],
        "memory_bytes": known["memory_bytes"],
        "platform": known["platform"],
        "threads": {name: os.environ[name] for name in _THREADS if name in os.environ},
        "load": [round(each, 2) for each in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "code": known["code"],
    }


def kind(instruction_sets: Sequence[str]) -> str:
    """The kind of processor, which decides what is comparable: its best matrix products.

    >>> kind(["avx512f", "avx512_bf16"])
    'avx512_bf16'
    """
    found = [name for name in ("amx_bf16", "avx512_bf16", "avx2") if name in instruction_sets]
    return found[0] if found else "other"


def results_path(folder: Path) -> Path:
    """The results file of this kind of processor: results.json, unless it is of another kind."""
    path, here = folder / "results.json", kind(describe()["instruction_sets"])
    if not path.exists():
        return path
    earlier = json.loads(path.read_text(encoding="utf-8"))["machine"]["instruction_sets"]
    return path if kind(earlier) == here else folder / f"results-{here}.json"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
