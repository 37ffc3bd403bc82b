# ruff: noqa: E501 (tables: one case a line)
"""Fault 55, running model-written code, and what outlives a run: nothing. Faults 13 and 55."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import Job, Limits, Sandbox, SandboxUnavailable, run_code
from groupwise.sandbox.tiers import find_bubblewrap

FAULT_55 = {
    "endless loop inside try": ("def f():\n while True:\n  try:\n   while True: pass\n  except BaseException: pass", "timeout"),
    "a fork that outlives its parent": ("import os, time\ndef f():\n if os.fork() == 0: time.sleep(60)\n return 5", "failed"),
    "8 GB": ("def f():\n x = [bytearray(1 << 26) for _ in range(128)]\n return 5", "out_of_memory"),
    "the home folder": ("import os\ndef f(): return os.listdir(os.path.expanduser('~'))", "failed"),
    "a subprocess": ("import subprocess\ndef f(): return subprocess.run(['true']).returncode", "failed"),
    "no alarm needed": ("import signal, time\ndef f():\n signal.alarm(0)\n time.sleep(60)", "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULT_55)
def test_each_ends_within_its_limit_with_nothing_left(sandbox, name):
    source, outcome = FAULT_55[name]
    limits = Limits(time=1.0 if outcome == "timeout" else 10.0, memory=256 << 20)
    start = time.monotonic()
    result = sandbox.grade(Job(source, [((), 5)], entry="f", limits=limits))
    assert (result.outcome, result.passed) == (outcome, 0), result.reason
    assert outcome != "timeout" or time.monotonic() - start < 2 * limits.time + 2.0
    with sandbox._zygote() as zygote:
        assert children_in_groups_of(zygote.pid) == []


def children_in_groups_of(pid):
    """Processes beneath a zygote (or the bubblewrap around it) that are no zygote themselves."""
    found = psutil.Process(pid).children(recursive=True)
    return [each for each in found if each.is_running() and each.children() == []][1:]


def test_a_gigabyte_of_output_is_capped(sandbox):
    source = "import os\nfor _ in range(1024): os.write(1, b'x' * (1 << 20))"
    job = Job(source, [("", "")], kind="stdio", limits=Limits(time=5.0))
    start = time.monotonic()
    assert sandbox.grade(job).outcome == "limit"
    assert time.monotonic() - start < 4.0


def test_no_secret_is_in_the_environment(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "xyz")
    job = Job("import os\ndef f(): return dict(os.environ)", [((), {})], entry="f")
    result = sandbox.grade(job)
    assert "SECRET" not in result.reason
    assert "PYTHONHASHSEED" in result.reason


def test_fault_13_stuck_runs_end_and_the_good_one_is_graded(sandbox):
    limits = Limits(time=0.5)
    stuck = Job("def f():\n while True: pass", [((), 1)], entry="f", limits=limits)
    good = Job("def f(): return 1", [((), 1)], entry="f", limits=limits)
    start = time.monotonic()
    results = sandbox.grade_all([stuck] * 5 + [good])
    assert [each.outcome for each in results] == ["timeout"] * 5 + ["passed"]
    assert time.monotonic() - start < 6.0


def test_a_timeout_is_tried_again_behind_the_others(tier_b):
    job = Job("import time\ndef f(): time.sleep(9)", [((), 1)], entry="f", limits=Limits(time=0.3))
    start = time.monotonic()
    assert tier_b.grade_all([job], tries=2)[0].outcome == "timeout"
    assert 0.55 < time.monotonic() - start < 2.0


def test_from_many_threads_at_once(tier_b):
    results = {}

    def work(number):
        job = Job(f"def f(): return {number}", [((), number)], entry="f")
        results[number] = [tier_b.grade(job).outcome for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: ["passed"] * 5 for number in range(6)}


def run_many(sandbox, count):
    """`count` graded runs, mixed; then what this process holds."""
    jobs = [
        Job("def f(n): return n", [((1,), 1), ((2,), 2)], entry="f"),
        Job("def f(n): return 1 // 0", [((1,), 1)], entry="f"),
        Job("import os\ndef f(n): os._exit(0)", [((1,), 1)], entry="f"),
        Job("print(input())", [("a", "a")], kind="stdio"),
        Job("def f(n): return n", ["assert f(1) == 1"], kind="asserts"),
    ]
    expected = ["passed", "failed", "crash", "passed", "passed"]
    for _ in range(count // len(jobs)):
        assert [each.outcome for each in sandbox.grade_all(jobs)] == expected


def held():
    me = psutil.Process()
    return (
        me.num_fds(),
        sorted(each.pid for each in me.children(recursive=True)),
        threading.active_count(),
    )


def shared_memory_files():
    return sorted(each.name for each in Path("/dev/shm").iterdir() if "groupwise" in each.name)


def test_nothing_is_left_after_many_runs(sandbox):
    sandbox.start()
    run_many(sandbox, 20)
    before, files = held(), shared_memory_files()
    run_many(sandbox, 100)
    assert held() == before
    assert shared_memory_files() == files


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_left_after_ten_thousand_runs(sandbox):
    sandbox.start()
    run_many(sandbox, 20)
    before = held()
    run_many(sandbox, 10_000)
    assert held() == before


def test_closing_ends_every_process():
    sandbox = Sandbox(tier="B", size=2)
    sandbox.start()
    with sandbox._zygote() as zygote:
        process = psutil.Process(zygote.pid)
    fds = psutil.Process().num_fds()
    sandbox.close()
    sandbox.close()
    assert not process.is_running()
    assert psutil.Process().num_fds() == fds - 8


def test_a_zygote_that_died_is_replaced_and_its_run_tried_again(tier_b):
    with tier_b._zygote() as zygote:
        os.kill(zygote.pid, signal.SIGKILL)
        time.sleep(0.1)
    assert tier_b.grade(Job("def f(): return 1", [((), 1)], entry="f")).outcome == "passed"


def test_trouble_of_our_own_is_never_a_zero(tier_b, monkeypatch):
    def lost(*_):
        from groupwise.sandbox.zygotes import ZygoteLost

        raise ZygoteLost("gone")

    monkeypatch.setattr("groupwise.sandbox.pool.grade", lost)
    result = tier_b.grade(Job("def f(): return 1", [((), 1)], entry="f"))
    assert (result.outcome, result.reason) == ("infrastructure_error", "gone")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_refused_with_the_reason(monkeypatch, system):
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(SandboxUnavailable, match=f"Linux only, not on {system}"):
        Sandbox()


def test_other_machines_are_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        Sandbox()


def test_no_tier_means_no_run(monkeypatch):
    def plan(tier, packages):
        raise SandboxUnavailable(f"tier {tier}: not here")

    monkeypatch.setattr("groupwise.sandbox.pool.plan", plan)
    with pytest.raises(SandboxUnavailable, match=r"tier A: not here; tier B: not here"):
        Sandbox()


def test_the_tier_is_logged_and_a_failed_self_test_takes_the_next(monkeypatch, caplog, tier_b):
    answers = iter([{"fork": "7"}, {}])
    monkeypatch.setattr("groupwise.sandbox.pool.open_probes", lambda *_: next(answers))
    monkeypatch.setattr("groupwise.sandbox.pool.candidates", lambda _: ("B", "B"))
    with caplog.at_level("INFO", "groupwise.sandbox"):
        Sandbox(size=1).close()
    assert "sandbox tier B" in caplog.text
    assert "got through: fork (7)" in caplog.text


def test_the_tier_without_isolation_is_refused():
    with pytest.raises(RecipeError, match="tier 'unsafe'; give one of auto, A, B"):
        Sandbox(tier="unsafe")


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run as an ordinary user")
def test_as_an_ordinary_user():
    """Every probe on both tiers, as nobody, with the system's interpreter (root's own is unreadable
    to others on some machines; then a copy of the package is read from a folder all may read)."""
    script = textwrap.dedent("""
        import os, sys
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        from groupwise.sandbox import Sandbox, SandboxUnavailable, Job
        for tier in ("A", "B"):
            try:
                sandbox = Sandbox(tier=tier, size=1)
            except SandboxUnavailable as error:
                if tier == "A": print("A", "unavailable"); continue
                raise
            job = Job("def f(n): return n + 1", [((1,), 2)], entry="f")
            print(tier, sandbox.grade(job).outcome)
            sandbox.close()
    """)
    python = next((each for each in ("/usr/bin/python3", "/usr/local/bin/python3")
                   if os.path.exists(each) and readable_by_all(each)), None)  # fmt: skip
    if python is None or not new_enough(python):
        pytest.skip("no interpreter here that an ordinary user may run")
    root = Path("/var/tmp") / f"groupwise-test-{os.getpid()}"
    package = Path(sys.modules["groupwise"].__file__).parent
    try:
        copy_readable(package, root)
        run = subprocess.run(
            [python, "-c", script], cwd="/", capture_output=True, text=True, timeout=60,
            env={"PYTHONPATH": str(root), "PATH": f"{root}:/usr/bin"},
        )  # fmt: skip
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "B passed"
    assert run.stdout.splitlines()[0] in ("A passed", "A unavailable")


def readable_by_all(path):
    return all(parent.stat().st_mode & 0o001 for parent in Path(os.path.realpath(path)).parents)


def new_enough(python):
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", code]).returncode == 0


def copy_readable(package, root):
    """The files that the sandbox needs, without what their packages import beside it."""
    import shutil

    target = root / "groupwise"
    shutil.copytree(package / "sandbox", target / "sandbox")
    (target / "__init__.py").write_text("")
    for name in ("errors.py", "lazy.py", "waiting/threads.py"):
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copy(package / name, target / name)
    bubblewrap = find_bubblewrap()
    if bubblewrap is not None:
        shutil.copy(bubblewrap, root / "bwrap")
    for each in (root, *root.rglob("*")):
        each.chmod(0o755)


def test_run_code_is_the_public_door():
    import groupwise as gw

    result = gw.run_code("def f(n): return 2 * n + 1", tests=[((2,), 5)], entry="f", kind="calls")
    assert (result.outcome, result.passed, result.total) == ("passed", 1, 1)
    assert isinstance(result, gw.CodeResult)
    result = run_code("def f(): return 1", [((), 2)], entry="f", limits={"time": 1.0})
    assert (result.outcome, result.reason) == ("failed", "case 1 of 1: gave 1")


def test_no_listener_is_opened_by_a_sandbox(tier_b):
    run_many(tier_b, 5)
    kinds = {each.type for each in psutil.Process().net_connections("inet")}
    assert socket.SOCK_DGRAM not in kinds
