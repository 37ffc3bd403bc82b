"""Runs a function of a test on several processes, as the ranks of one run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

DEADLINE = 120.0
_START = "import sys; from rank_helpers import run_rank; run_rank(*sys.argv[1:])"


def on_ranks(size: int, function: str, *arguments: Any) -> list[Any]:
    """`module:function(ranks, *arguments)` on every rank; their results in order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.save(arguments, folder / "arguments.pt")
        running = [
            subprocess.Popen(
                [sys.executable, "-c", _START, function, name],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    "GROUPWISE_STORE": str(folder / "store"),
                    "WORLD_SIZE": str(size),
                    "RANK": str(rank),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        said = [each.communicate(timeout=2 * DEADLINE)[1] for each in running]
        assert [each.returncode for each in running] == [0] * size, "\n".join(said)
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def run_rank(function: str, folder: str) -> None:
    """One rank, in its own process."""
    from importlib import import_module

    from groupwise.distributed import ComputeSettings, joined

    module, _, name = function.partition(":")
    arguments = torch.load(Path(folder) / "arguments.pt", weights_only=False)
    with joined(ComputeSettings(deadline_seconds=DEADLINE), "cpu", "") as ranks:
        result = getattr(import_module(module), name)(ranks, *arguments)
    torch.save(result, Path(folder) / f"{ranks.rank}.pt")
