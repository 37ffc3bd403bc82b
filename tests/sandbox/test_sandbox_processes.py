# ruff: noqa: E501 (tables: one case a line)
"""No process outlives what it belongs to: a run, a sandbox, a trainer that was killed."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from groupwise.sandbox import Job, Limits, Sandbox

STRAY = """
import ctypes, os, signal, time

def stray(name):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    while True:
        time.sleep(0.01)

def f(name):
    for leave_group in (os.setsid, lambda: os.setpgid(0, 0), lambda: None):
        if os.fork() == 0:  # a grandchild whose parent stays, and one whose parent ends
            leave_group()
            if os.fork() == 0:
                if os.fork() == 0:
                    os.setsid()
                    stray(name)
                os._exit(0)
            stray(name)
    time.sleep(0.2)
    return len(name)
"""


def running(name):
    return [each for each in psutil.process_iter(["name"]) if each.info["name"] == name]


@pytest.mark.parametrize("end", ["", "; os._exit(0)", "; time.sleep(60)", "; stray(NAME)"])
@pytest.mark.parametrize("kind", ["calls", "stdio", "asserts"])
def test_no_grandchild_outlives_its_run(sandbox, end, kind):
    """Double forks, sessions and groups of their own, deaf to every signal that can be ignored."""
    name = f"gw{os.getpid()}"
    source = f"{STRAY}\nNAME = {name!r}\ndef g(n):\n    m = f(n){end}\n    return m\n"
    test = {
        "calls": ((name,), len(name)),
        "stdio": ("", str(len(name))),
        "asserts": f"assert g({name!r}) == {len(name)}",
    }[kind]
    source += f"print(g({name!r}))" if kind == "stdio" else ""
    limits = Limits(time=1.0, total_time=3.0)
    result = sandbox.grade(Job(source, [test], entry="g", kind=kind, limits=limits))
    assert running(name) == []
    assert result.outcome == "failed", result


SUBREAPER = """
import ctypes, os, signal, sys, time
import psutil
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as a container's first process
from groupwise.sandbox import Sandbox, Job
me = psutil.Process()
good = Job("def f(): return 1", [((), 1)], entry="f")
crash = Job("import os\\ndef f(): os._exit(3)", [((), 1)], entry="f")
for kill in (False, True):
    sandbox = Sandbox(tier=sys.argv[1], size=2)
    sandbox.start()
    sandbox.grade_all([good, crash] * 3)
    with sandbox._zygote() as zygote:
        if kill:
            os.kill(zygote.pid, signal.SIGKILL)
            time.sleep(0.1)
    assert sandbox.grade_all([good] * 4)[0].outcome == "passed"
    sandbox.close()
until = time.monotonic() + 5
while me.children(recursive=True) and time.monotonic() < until:
    time.sleep(0.05)
print([(each.name(), each.status()) for each in me.children(recursive=True)])
"""


@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_trainer_that_adopts_orphans_keeps_no_zombie(tier, request):
    request.getfixturevalue(f"tier_{tier.lower()}")
    run = subprocess.run(
        [sys.executable, "-c", SUBREAPER, tier], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


TRAINER = """
import sys, threading, time
from groupwise.sandbox import Limits, Sandbox, Job
sandbox = Sandbox(tier=sys.argv[1], size=2)
sandbox.start()
job = Job("def f():\\n while True: pass", [((), 1)], entry="f", limits=Limits(time=50, total_time=60))
threading.Thread(target=sandbox.grade, args=(job,), daemon=True).start()
time.sleep(0.4)
print("running", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("tier", ["A", "B"])
def test_killing_the_trainer_leaves_no_child(tier, request):
    request.getfixturevalue(f"tier_{tier.lower()}")
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, tier],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert trainer.stdout.readline() == b"running\n"
        processes = psutil.Process(trainer.pid).children(recursive=True)
        assert len(processes) >= 3
    finally:
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        trainer.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert alive == []


def test_a_fork_of_the_trainer_holds_no_zygote(tier_b):
    sandbox = Sandbox(tier="B", size=1)
    with sandbox._zygote() as zygote:
        process = psutil.Process(zygote.pid)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    sandbox.close()
    assert not process.is_running()
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    for each in (*ready, *done):
        os.close(each)
