"""Processes that can be killed: limits, order, retries, nothing left behind. Faults 13 and 55."""

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import psutil
import pytest

from groupwise.errors import GroupwiseError, RecipeError, VerifierError
from groupwise.types import Prompt
from groupwise.verifiers import Case, compose, score_cases
from groupwise.waiting.processes import Reply, WorkerPool


@pytest.fixture
def pool():
    pool = WorkerPool("reward_functions:make_job_runner", ("a", 1), size=2, memory_limit=1 << 30)
    pool.map([("echo", 0)] * 4, 10)
    yield pool
    pool.close()


def test_replies_keep_the_jobs_order(pool):
    jobs = [("sleep", 0.05 * (5 - n)) for n in range(6)]
    replies = pool.map(jobs, 5)
    assert [reply.value[1] for reply in replies] == [value for _, value in jobs]
    assert replies[0] == Reply("ok", [("a", 1), 0.25])
    assert pool.map([], 5) == []


def test_a_stuck_job_ends_at_its_limit_and_the_next_one_runs(pool):
    start = time.monotonic()
    replies = pool.map([("sleep", 60)] * 4 + [("echo", 7)], 0.5)
    assert [reply.kind for reply in replies] == ["timeout"] * 4 + ["ok"]
    assert time.monotonic() - start < 6
    assert pool.map([("echo", 8)], 5)[0].value[1] == 8


def test_a_job_that_holds_the_interpreter_ends_too(pool):
    start = time.monotonic()
    assert pool.map([("power", 9)], 0.5)[0].kind == "timeout"
    assert time.monotonic() - start < 1.0


def test_two_tries_stay_below_twice_the_limit(pool):
    start = time.monotonic()
    assert pool.map([("sleep", 60)], 1.5, tries=2)[0].kind == "timeout"
    assert 2.0 < time.monotonic() - start < 3.0


def test_memory_is_limited(pool):
    assert pool.map([("memory", 4 << 30)], 5)[0] == Reply("out_of_memory", None)
    assert pool.map([("memory", 1 << 20)], 5)[0].value == 1 << 20


def test_an_error_is_told_and_the_worker_stays(pool):
    replies = pool.map([("memory", "x" * 3), ("echo", 1)], 5)
    assert replies[0].kind == "error"
    assert "TypeError" in replies[0].value
    assert replies[1].kind == "ok"


def test_what_a_killed_worker_started_is_killed_with_it(pool):
    pids = [reply.value for reply in pool.map([("child", 0)] * 2, 5)]
    assert all(psutil.pid_exists(pid) for pid in pids)
    pool.close()
    deadline = time.monotonic() + 5
    while any(_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_running(pid) for pid in pids)


def _running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_closing_leaves_no_process_and_no_descriptor():
    before, others = len(os.listdir("/proc/self/fd")), set(_workers())
    pool = WorkerPool("reward_functions:make_job_runner", size=2)
    pool.map([("echo", 0), ("sleep", 30)], 0.5)
    pool.close()
    assert set(_workers()) == others
    assert len(os.listdir("/proc/self/fd")) <= before


def _workers(parent=None):
    found = psutil.Process(parent).children()
    return [each.pid for each in found if "waiting.worker" in " ".join(each.cmdline())]


@pytest.mark.parametrize("job", [("sleep", 100), ("power", 9)])
def test_a_killed_parent_leaves_no_worker_idle_or_at_work(job):
    """The second job holds the interpreter, so that nothing inside the worker could end it."""
    code = (
        "from groupwise.waiting.processes import WorkerPool;"
        "pool = WorkerPool('reward_functions:make_job_runner', size=2);"
        "pool.map([('echo', 0)] * 4, 20); print('ready', flush=True);"
        f"pool.map([{job!r}], 100)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    pids = _workers(parent.pid)
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 15
    while any(_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_running(pid) for pid in pids)


def test_a_worker_that_cannot_start_says_why():
    pool = WorkerPool("reward_functions:cannot_start", size=1)
    with pytest.raises(GroupwiseError, match="did not start: RuntimeError: no licence"):
        pool.map([1], 5)
    pool.close()


def cases(*texts):
    return [Case(Prompt(f"p{row}", text="q"), text) for row, text in enumerate(texts)]


@pytest.fixture(scope="module")
def limited():
    table = {"name": "reward_functions:sometimes_stuck", "time_limit": 0.6}
    verifier = compose([table])
    score_cases(verifier, cases("warm", "up"))
    verifier.take_logs()
    yield verifier
    verifier.close()


def check_stuck(verifier):
    start = time.monotonic()
    scores = score_cases(verifier, cases("stuck", "stuck", "stuck", "good"))
    assert [score.outcome for score in scores] == ["verifier_timeout"] * 3 + ["no_verdict"]
    assert [score.value for score in scores] == [None, None, None, 4.0]
    assert time.monotonic() - start < 7


def test_a_stuck_reward_function_is_a_verifier_timeout_from_anywhere(limited):
    limited.begin_step(7)
    with ThreadPoolExecutor(1) as executor:
        executor.submit(check_stuck, limited).result()
    logs = limited.take_logs()
    assert logs.metrics == {"step": 7.0}
    assert logs.columns == {"batch": {("p3", "good"): 1}}  # the stuck ones logged nothing

    async def in_loop():
        assert score_cases(limited, cases("abc"))[0].value == 3.0

    asyncio.run(in_loop())


def test_errors_in_the_worker_name_the_row(limited):
    with pytest.raises(VerifierError, match=r"row 1 .*'bad'\): ValueError: no such thing"):
        score_cases(limited, cases("good", "bad", "good"))
    with pytest.raises(VerifierError, match=r"row 1 .*'dies'"):
        score_cases(limited, cases("good", "dies"))
    assert score_cases(limited, cases("good"))[0].value == 4.0


def test_a_function_under_a_limit_gets_whole_batches_with_their_columns():
    verifier = compose([{"name": "reward_functions:ranks", "time_limit": 30}])
    batch = [
        Case(Prompt(f"p{row}", text="q", columns={"level": row}), text)
        for row, text in enumerate("cab")
    ]
    scores = score_cases(verifier, batch)
    verifier.close()
    assert [score.value for score in scores] == [2.0, 10.0, 21.0]


def test_what_it_returns_is_held_to_the_contract():
    verifier = compose([{"name": "reward_functions:one_short", "time_limit": 30}])
    with pytest.raises(
        VerifierError, match="'one_short': expected 3 scores, one a completion; got 2"
    ):
        score_cases(verifier, cases("a", "b", "c"))
    verifier.close()


def test_a_function_that_hangs_costs_a_few_limits_and_not_one_for_every_row():
    """8 rows in a row overrun, in two workers at least; the other 92 are not asked, and counted."""
    verifier = compose([{"name": "reward_functions:hangs", "time_limit": 0.3}])
    start = time.monotonic()
    scores = score_cases(verifier, cases(*["x"] * 100))
    verifier.close()
    assert {score.outcome for score in scores} == {"verifier_timeout"}
    assert sum("not asked: 8 others" in score.reason for score in scores) >= 100 - 8 - 8
    assert time.monotonic() - start < 15  # 100 limits would be 30


ONE_RUN = """
import sys
from groupwise.types import Prompt
from groupwise.verifiers import compose, score_cases
from groupwise.verifiers.core.contract import Case

cases = [Case(Prompt("p", text="q"), text) for text in ["good", "stuck", "good"] + ["stuck"] * 20]
for name in sys.argv[1:]:
    verifier = compose([{"name": f"reward_functions:{name}", "time_limit": 0.3}])
    for score in score_cases(verifier, cases)[:3]:
        print(score.value, score.outcome, flush=True)
"""

NEVER_ENDS = ("catastrophic_pattern", "swallows_its_cancellation")


def test_what_never_gives_in_is_a_timeout_and_the_process_ends():
    """The others of the batch are scored, and that the rest is not asked is said once."""
    run = subprocess.run(
        [sys.executable, "-c", ONE_RUN, *NEVER_ENDS],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "1.0 correct\nNone verifier_timeout\n1.0 correct\n" * 2
    told = "8 completions in a row had no verdict within its time_limit of 0.3 s;"
    assert run.stderr.count(told) == 2


def test_verdicts_between_timeouts_keep_the_asking_going():
    verifier = compose([{"name": "reward_functions:sometimes_stuck", "time_limit": 0.3}])
    texts = (["stuck"] * 5 + ["good"]) * 2
    scores = score_cases(verifier, cases(*texts))
    verifier.close()
    wanted = ["verifier_timeout" if text == "stuck" else "no_verdict" for text in texts]
    assert [score.outcome for score in scores] == wanted


def test_the_limit_is_for_ones_own_verifiers_and_is_recorded(limited):
    assert '"time_limit": 0.6' in limited.signature()
    with pytest.raises(RecipeError, match="time_limit is for"):
        compose([{"name": "number", "time_limit": 1.0}])


@pytest.mark.parametrize("half", [b"", b"\x00" * 3])
def test_a_worker_whose_pipe_closes_ends_silently(half):
    code = "from groupwise.waiting.worker import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], input=half, capture_output=True, env=environment, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_worker_whose_reader_has_gone_ends_silently():
    code = "from groupwise.waiting.worker import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    worker.stdout.close()
    jobs = Connection(os.dup(worker.stdin.fileno()), readable=False)
    jobs.send(("reward_functions:make_job_runner", (), 0))
    jobs.close()
    worker.stdin.close()
    assert worker.stderr.read() == b""
    assert worker.wait(60) == 0
    worker.stderr.close()
