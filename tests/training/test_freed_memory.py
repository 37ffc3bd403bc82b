"""Freed memory is kept for the next pass while a run trains, and given back when it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from groupwise.training.process import _glibc

PROGRAM = """
import resource, torch
from groupwise.training.process import (
    give_back_freed_memory, keep_freed_memory, trim_freed_memory
)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(64 * 2**20 // 4)  # 16,384 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20

faults()
asked = faults()
kept = keep_freed_memory()
# Something small may settle in what was freed, once or twice; then it is there again.
again, large = min(faults() for _ in range(20)), resident()
trim_freed_memory()
trimmed = large - resident()
faults()
give_back_freed_memory()
print(kept, asked, again, trimmed, faults(), large - resident())
"""


@pytest.mark.skipif(_glibc() is None, reason="glibc alone has these switches")
def test_freed_memory_is_kept_and_given_back() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    kept, asked, again, trimmed, after, returned = found[0], *map(float, found[1:])
    assert kept == "True"
    assert asked > 100  # whatever the size of a page, each new one is a fault
    assert again < asked / 10
    assert trimmed > 50  # MiB
    assert returned > 50
    assert after > again


@pytest.mark.skipif(_glibc() is None, reason="glibc alone has these switches")
def test_a_rule_that_the_user_set_stays_where_nothing_was_kept() -> None:
    program = PROGRAM.partition("faults()\nasked")[0] + (
        "trim_freed_memory()\ngive_back_freed_memory()\nprint(min(faults() for _ in range(20)))\n"
    )
    rule = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2000000000"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **rule},
    )
    assert int(found.stdout) == 0
