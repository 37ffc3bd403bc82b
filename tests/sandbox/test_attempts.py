"""Every escape and every cheat of `benchmarks/sandbox_attempts.py`, in each tier."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from benchmarks.sandbox_attempts import ATTEMPTS, CHEATS, ESCAPES

NAMES = [f"{each.kind}: {each.name}" for each in ATTEMPTS]
QUICK, SLOW = ATTEMPTS[: len(ESCAPES)], ATTEMPTS[len(ESCAPES) :]
BY_PRIVILEGE = {
    "settings in /proc", "/proc of others", "namespaces of its own", "watchers", "kernel keys",
    "handles of files", "joining a namespace", "memory of others", "perf and bpf", "userfaultfd",
    "io_uring", "being traced", "keyrings", "priorities and owners", "locked memory",
    "typing (TIOCSTI)", "of every make", "of processes", "clone3",
}  # fmt: skip
"""What a container's own filter or an ordinary user may be refused already."""


def processes() -> int:
    return len(psutil.Process().children(recursive=True))


def graded(sandbox, attempts):
    """Those that got through, and those that broke a limit of ours."""
    found = {}
    for attempt in attempts:
        began = time.monotonic()
        result = sandbox.grade(attempt.job)
        if result.passed_all or result.outcome == "infrastructure_error":
            found[f"{attempt.kind}: {attempt.name}"] = f"{result.outcome}: {result.reason}"
        if time.monotonic() - began > 20:
            found[f"{attempt.kind}: {attempt.name}"] = f"took {time.monotonic() - began:.1f} s"
    return found


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setenv("GROUPWISE_PLANTED", "CANARY")


def test_the_names_are_distinct():
    assert len(set(NAMES)) == len(NAMES) == len(ESCAPES) + len(CHEATS)


def test_no_escape_gets_through(sandbox):
    before = processes()
    assert graded(sandbox, QUICK) == {}
    assert processes() <= before


@pytest.mark.slow
def test_no_cheat_earns_anything(sandbox):
    before = processes()
    assert graded(sandbox, SLOW) == {}
    assert processes() <= before + 1  # a zygote that was replaced is the tier's second one


@pytest.mark.slow
def test_the_benchmark_prints_every_attempt_as_closed():
    script = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"
    command = [sys.executable, str(script), "--probes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in NAMES:
        kind, _, what = name.partition(": ")
        assert re.search(rf"^B closed {re.escape(kind)} +{re.escape(what)} ", done.stdout, re.M)
    assert done.stdout.splitlines()[-1] == f"{23 + len(ATTEMPTS)} attempts a tier, 0 open"


def test_escapes_get_through_where_nothing_is_closed(tmp_path):
    """So that one which is refused in the sandbox says something about the sandbox."""
    bare = [each for each in ATTEMPTS if each.bare]
    lines = ["import sys", "through = []"]
    for attempt in bare:
        lines += [
            "space = {}",
            f"try: exec({attempt.job.source!r}, space); space['f']()",
            "except BaseException: pass",
            f"else: through.append({attempt.name!r})",
        ]
    lines += ["print('through', through)"]
    command = [sys.executable, "-c", "\n".join(lines)]
    with open(os.devnull, "rb") as nothing:
        run = subprocess.run(
            command, stdin=nothing, capture_output=True, text=True, check=True, cwd=tmp_path
        )
    through = set(re.findall(r"'([^']+)'", run.stdout.rpartition("through")[2]))
    assert {each.name for each in bare} - through <= BY_PRIVILEGE


def test_the_review_notes_count_the_same():
    notes = Path(__file__).parents[2].joinpath("docs", "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w/ ]+) \| (\d+) \|.*\| closed \|$", notes, re.MULTILINE)
    assert Counter({kind: int(number) for kind, number in rows}) == Counter(
        each.kind for each in ATTEMPTS
    )
