"""Throughput of the sandbox against bare forks that do the same work in the same run.

    .venv/bin/python benchmarks/sandbox.py [--seconds 5] [--repeats 5] [--cases 10] [--workers 4]
    .venv/bin/python benchmarks/sandbox.py --probes    # escapes and cheats, and what became of each

The bare fork is what a grader without any isolation does: a warm interpreter with the standard
library forks, the child compiles the solution, calls it on every case and writes the values to a
pipe, the parent compares. As many workers on both sides, alternating, the median of the repeats.
The bar: at least 0.7 of the bare forks' graded runs a second. Figures: JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from sandbox_attempts import ATTEMPTS

from groupwise.sandbox import Job, Sandbox, SandboxUnavailable
from groupwise.sandbox.guest.zygote import STANDARD
from groupwise.sandbox.probes import PROBES, context_of, open_probes
from groupwise.texts import visible

SOURCE = """
import math, re
from collections import Counter

def f(words, n):
    counts = Counter(words)
    best = sorted(counts, key=lambda w: (-counts[w], w))[:n]
    return [(w, counts[w]) for w in best], math.comb(n + 5, 3), sum(i * i for i in range(500))
"""

# A server in an interpreter of its own, so that the fork copies what the zygote's fork copies.
BARE = f"""
import contextlib, gc, importlib, json, os, sys
for name in {STANDARD!r}.split():
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.collect(); gc.freeze()
for line in sys.stdin:
    job = json.loads(line)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        namespace = {{}}
        exec(compile(job["source"], "<solution>", "exec"), namespace)
        values = [namespace["f"](*arguments) for arguments in job["arguments"]]
        os.write(write, json.dumps(values).encode())
        os._exit(0)
    os.close(write)
    data = b""
    while chunk := os.read(read, 65536):
        data += chunk
    os.close(read)
    os.waitpid(child, 0)
    print(data.decode(), flush=True)
"""


def cases(count: int) -> list[tuple[list[str], int]]:
    words = ["one", "two", "three", "two", "four", "three", "two"]
    return [(words * (1 + number % 3), 1 + number % 4) for number in range(count)]


class BareForks:
    """One warm interpreter that forks for each run, and compares nothing."""

    def __init__(self, arguments: list[tuple[list[str], int]], expected: list[object]) -> None:
        self._request = json.dumps({"source": SOURCE, "arguments": arguments}) + "\n"
        self._expected = json.loads(json.dumps(expected))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BARE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> bool:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._request)
        self._process.stdin.flush()
        return bool(json.loads(self._process.stdout.readline()) == self._expected)

    def close(self) -> None:
        self._process.communicate()


def rate(actions: list[Callable[[], bool]], seconds: float) -> float:
    """Runs a second, one thread an action."""
    counts = [0] * len(actions)
    start = time.perf_counter()

    def work(index: int) -> None:
        while time.perf_counter() - start < seconds:
            if not actions[index]():
                raise AssertionError("a run that must pass did not")
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    size = arguments.workers or 2 * len(os.sched_getaffinity(0))
    inputs = cases(arguments.cases)
    namespace: dict[str, object] = {}
    exec(compile(SOURCE, "<solution>", "exec"), namespace)
    function = namespace["f"]
    assert callable(function)
    expected = [function(*each) for each in inputs]
    job = Job(SOURCE, list(zip(inputs, expected)), entry="f")
    bare = [BareForks(inputs, expected) for _ in range(size)]
    sandboxes: dict[str, Sandbox] = {}
    for tier in ("A", "B"):
        try:
            sandboxes[tier] = Sandbox(tier=tier, size=size)  # type: ignore[arg-type]
            sandboxes[tier].start()
        except SandboxUnavailable as error:
            print(f"tier {tier}: {error}", file=sys.stderr)
    found: dict[str, list[float]] = {name: [] for name in ("bare", *sandboxes)}
    for _ in range(arguments.repeats):
        found["bare"].append(rate([each.run for each in bare], arguments.seconds))
        for tier, sandbox in sandboxes.items():
            actions = [passes(sandbox, job)] * size
            found[tier].append(rate(actions, arguments.seconds))
    for each in (*bare, *sandboxes.values()):
        each.close()
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    return {
        "graded_runs_per_second": {name: round(value, 1) for name, value in medians.items()},
        "cases_per_second": {
            name: round(value * arguments.cases) for name, value in medians.items()
        },
        "ratio_to_bare_forks": {
            name: round(value / medians["bare"], 3)
            for name, value in medians.items()
            if name != "bare"
        },
        "all": {name: [round(value, 1) for value in rates] for name, rates in found.items()},
        "cores": len(os.sched_getaffinity(0)),
        "workers": size,
        "cases": arguments.cases,
        "machine": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def passes(sandbox: Sandbox, job: Job) -> Callable[[], bool]:
    return lambda: sandbox.grade(job).passed_all


def probe() -> int:
    """Prints every attempt with its outcome in each tier; how many got through."""
    through = 0
    for tier in ("A", "B"):
        try:
            sandbox = Sandbox(tier=tier, size=1)  # type: ignore[arg-type]
        except SandboxUnavailable as error:
            print(f"tier {tier}: {error}", file=sys.stderr)
            continue
        with sandbox:
            found = open_probes_of(sandbox)
            through += len(found)
            print(
                f"tier {tier}: {len(PROBES) - len(found)} of {len(PROBES)} isolation probes closed"
            )
            for attempt in ATTEMPTS:
                result = sandbox.grade(attempt.job)
                through += result.passed_all
                state = "OPEN" if result.passed_all else "closed"
                reason = visible(result.reason)[:90]
                what = f"{attempt.kind:22} {attempt.name:34}"
                print(f"{tier} {state:6} {what} {result.outcome}: {reason}")
    print(f"{len(PROBES) + len(ATTEMPTS)} attempts a tier, {through} open")
    return through


def open_probes_of(sandbox: Sandbox) -> dict[str, str]:
    with sandbox._zygote() as zygote:
        return open_probes(zygote, context_of())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0, help="0: two a core, on both sides")
    parser.add_argument("--probes", action="store_true", help="only the attempts and their outcome")
    given = parser.parse_args()
    if given.probes:
        sys.exit(min(probe(), 1))
    found = measure(given)
    print(json.dumps(found, indent=2))
    ratios = found["ratio_to_bare_forks"]
    assert isinstance(ratios, dict)
    if not ratios or min(ratios.values()) < 0.7:
        sys.exit("below the bar of 0.7 of bare forks")


if __name__ == "__main__":
    main()
