"""How much memory this process or its device holds, and held at most."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch


def resident_memory_bytes(device: torch.device) -> int:
    """The memory that is held now: allocated on a CUDA device, else resident in this process; its
    largest so far where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return peak_memory_bytes(device)
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory_bytes(device: torch.device) -> int:
    """The largest memory so far: allocated on a CUDA device, else resident in this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
