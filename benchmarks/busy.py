"""How a run fares beside other work: its time against its fair share of the processors.

    .venv/bin/python -m benchmarks.busy [--steps 60] [--neighbours 4] [--into results.json]

Trains `recipes/tiny_arithmetic.toml` alone and beside `neighbours` processes that compute all the
time, on two cores. Beside them one thread's fair share of C cores is C / (neighbours + 1), so the
fair time is the processor time at rest over that share. `busy_vs_fair` is the time over the fair
time, `demo_processor_seconds` the processor time at rest; lower is better. Start it on a machine
that is otherwise idle: `foreign` says how idle it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "tiny_arithmetic.toml"
CORES = 2


def fair_seconds(rest: dict[str, float], neighbours: int, cores: int) -> float:
    """What the run at rest would take on its fair share of the cores.

    >>> fair_seconds({"seconds": 10.0, "processor_seconds": 10.0}, neighbours=4, cores=2)
    25.0
    """
    share = min(1.0, cores / (neighbours + 1))
    return max(rest["seconds"], rest["processor_seconds"] / share)


@contextmanager
def neighbours_at_work(count: int) -> Iterator[None]:
    """`count` processes that compute until the end of the block."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def train(steps: int, neighbours: int) -> dict[str, float]:
    """One run in a process of its own: wall and processor seconds, imports included."""
    with tempfile.TemporaryDirectory() as folder, neighbours_at_work(neighbours):
        before = machine.cpu_times([])
        began = time.perf_counter()
        run = subprocess.Popen(
            [
                sys.executable, "-m", "groupwise", "train", str(RECIPE),
                "--training.steps", str(steps), "--output", str(Path(folder) / "run"),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(run.pid, 0)
        seconds = time.perf_counter() - began
        run.returncode = os.waitstatus_to_exitcode(status)
        after = machine.cpu_times([])
        if run.returncode:
            raise RuntimeError(f"the run failed with exit code {run.returncode}")
        found = {"seconds": seconds, "processor_seconds": usage.ru_utime + usage.ru_stime}
        foreign = machine.shares(before, after, active=os.getpid())["foreign"]
        return found if foreign is None else {**found, "foreign": foreign}


def measure(steps: int, neighbours: int, cores: int) -> dict[str, Any]:
    """The run at rest, beside neighbours, and their ratio to the fair share."""
    if hasattr(os, "sched_setaffinity"):  # inherited by everything that is started
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    train(2, 0)  # caches: the policy's cold start, the audit
    rest, busy = train(steps, 0), train(steps, neighbours)
    fair = fair_seconds(rest, neighbours, cores)
    return {
        "busy_vs_fair": round(busy["seconds"] / fair, 3),
        "processor_time_vs_rest": round(busy["processor_seconds"] / rest["processor_seconds"], 3),
        "fair_seconds": round(fair, 2),
        "rest": rest,
        "busy": busy,
        "steps": steps,
        "neighbours": neighbours,
        "cores": cores,
    }


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.busy", description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--neighbours", type=int, default=4)
    parser.add_argument("--into", type=Path, help="a results.json, or the folder of this machine's")
    chosen = parser.parse_args(given)
    found = measure(chosen.steps, chosen.neighbours, CORES)
    print(json.dumps(found, indent=1))
    if chosen.into is not None:
        path = machine.results_path(chosen.into) if chosen.into.is_dir() else chosen.into
        results = json.loads(path.read_text(encoding="utf-8"))
        results["ratios"]["busy_vs_fair"] = found["busy_vs_fair"]
        results["ratios"]["demo_processor_seconds"] = round(found["rest"]["processor_seconds"], 2)
        results["busy"] = found
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
