"""What a run ran on: versions, platform, processors, code. Nothing heavy is imported for it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES: tuple[str, ...] = (
    "groupwise",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "peft",
    "numpy",
    "pyarrow",
    "pydantic",
    "mpmath",
    "vllm",
)
"""Packages whose versions can change a run's numbers."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)


def describe_machine(**extra: Any) -> dict[str, Any]:
    """Versions, platform, processors and the code's git commit, as JSON-able values.

    Versions come from the installed packages' metadata, so that torch is not imported for this.
    `extra` entries (threads and device chosen, hashes) are added as they are.
    """
    described: dict[str, Any] = {
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": available_cpus(),
        "memory_bytes": memory_bytes(),
        "thread_variables": {n: os.environ[n] for n in _THREAD_VARIABLES if n in os.environ},
        "code": _code_state(Path(__file__).resolve().parent),
    }
    described.update(extra)
    return described


def available_cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The processor's name, as far as the system says it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text("utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor()


def memory_bytes() -> int | None:
    """Physical memory, None if unknown."""
    if sys.platform == "win32" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _code_state(folder: Path) -> dict[str, Any]:
    """Commit of the checkout that holds the package, and whether it has changes; empty outside one.

    A package installed inside another repository is not that repository's code, so git must track
    this file.
    """
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return {}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return {"commit": commit, "changed": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command, None where it fails or git is absent."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
