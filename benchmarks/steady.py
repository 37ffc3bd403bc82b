"""300 steps of the tiny model in this process: does memory grow?

    .venv/bin/python -m benchmarks.steady [--steps 300] [--warmup 100]

A whole run as `groupwise train` makes it, record and checkpoints included; resident memory is read
after every step. Prints JSON. Left out: a larger model, whose buffers hide a leak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine

_WINDOW = 20  # steps averaged at either end


def growth(resident: Sequence[int], warmup: int) -> dict[str, Any]:
    """Share by which memory grew from the steps behind the warm-up to the last ones, and the
    least-squares slope between them, bytes a step.

    >>> growth([10] * 50 + [100] * 50, warmup=50)["growth"]
    0.0
    """
    later = resident[warmup:]
    if len(later) < 2:
        raise ValueError(f"{len(resident)} steps with a warm-up of {warmup} leave nothing to see")
    window = min(_WINDOW, len(later) // 2)
    first, last = statistics.fmean(later[:window]), statistics.fmean(later[-window:])
    slope = statistics.linear_regression(range(len(later)), later).slope
    return {
        "steps": len(resident),
        "warmup": warmup,
        "growth": last / first - 1.0,
        "slope_bytes_per_step": slope,
        "resident_bytes": round(last),
    }


def resident_after_steps(steps: int) -> list[int]:
    """Bytes resident after each step of a run. Raises RuntimeError off Linux."""
    import groupwise as gw

    class Watch(gw.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_step(self, line: Any) -> None:
            now = machine.memory("VmRSS")
            if now is None:
                raise RuntimeError("this system does not tell what is resident (no /proc)")
            self.seen.append(now)

    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="groupwise-steady-") as folder:
        gw.train(
            "tiny_arithmetic",
            overrides={
                "training.steps": steps,
                "evaluation.every": 0,
                "evaluation.samples": 1,
                "environment.audit": False,
            },
            output=Path(folder) / "run",
            callbacks=[watch],
        )
    return watch.seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warmup", type=int, default=100)
    chosen = parser.parse_args()
    resident = resident_after_steps(chosen.steps)
    print(json.dumps({**growth(resident, chosen.warmup), "every_10th": resident[::10]}))


if __name__ == "__main__":
    main()
