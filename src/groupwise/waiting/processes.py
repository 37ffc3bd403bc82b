"""Worker processes that can be killed: the only time limit that holds for any code.

A pool keeps a few fresh interpreters (`worker.py`) warm. The parent's clock decides; on expiry the
worker and whatever it started are killed, and another one takes its place. Works from any thread,
and inside a running event loop. Not a sandbox: what runs here is trusted code on untrusted input.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any, Literal

from groupwise.errors import GroupwiseError
from groupwise.waiting.threads import work_through

BOOT_LIMIT = 60.0
"""Seconds within which a worker must have started; imports alone take about one."""

MEMORY_LIMIT = 2 << 30
"""Bytes of address space a worker may use."""

_START = "from groupwise.waiting.worker import main; main()"


@dataclass(frozen=True, slots=True)
class Reply:
    """A job's result: `ok` with its value, `error` with a message, or why there is neither."""

    kind: Literal["ready", "ok", "error", "timeout", "out_of_memory", "died", "unasked"]
    value: Any = None


class Worker:
    """One process. After a timeout or a death it is closed; the pool starts another."""

    def __init__(self, target: str, arguments: tuple[Any, ...], memory_limit: int) -> None:
        paths = [path or os.getcwd() for path in sys.path]
        jobs, self._jobs = Pipe(duplex=False)
        self._replies, replies = Pipe(duplex=False)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=jobs.fileno(),
            stdout=replies.fileno(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        jobs.close()
        replies.close()
        self.alive = True
        self._ready = False
        self._boot = (target, arguments, memory_limit)

    def boot(self) -> None:
        """Waits until the worker takes jobs; `GroupwiseError` where it cannot start."""
        if self._ready:
            return
        reply = self.run(self._boot, BOOT_LIMIT)
        if reply.kind != "ready":
            self.close()
            raise GroupwiseError(
                f"a worker for {self._boot[0]!r} did not start: {reply.value or reply.kind}"
            )
        self._ready = True

    def run(self, job: Any, time_limit: float) -> Reply:
        """The job's reply within `time_limit` seconds; after a timeout the worker is closed."""
        try:
            self._jobs.send(job)
            if self._replies.poll(time_limit):
                return Reply(*self._replies.recv())
            reply = Reply("timeout")
        except (EOFError, OSError):
            reply = Reply("died", self._end())
        except BaseException:  # an interruption: its reply must not be read as the next job's
            self.close()
            raise
        self.close()
        return reply

    def _end(self) -> str:
        """How a process whose pipe has closed came to its end, in words."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=1.0)
            if code < 0:
                return f"its process was killed (signal {-code})"
            return f"its process ended with exit code {code}"
        return "its process closed its pipe"

    def close(self) -> None:
        """Kills and reaps the process, closes its pipes. Safe to call twice."""
        if not self.alive:
            return
        self.alive = False
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._jobs.close()
        self._replies.close()


class WorkerPool:
    """`size` workers that call `target(*arguments)` once, and its result with every job.

    `target` is `module:factory`; jobs and results are pickled. Thread-safe.
    """

    def __init__(
        self,
        target: str,
        arguments: tuple[Any, ...] = (),
        *,
        size: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.size = size or max(2, min(8, os.cpu_count() or 2))
        self._boot = (target, arguments, memory_limit)
        self._idle: queue.Queue[Worker | None] = queue.Queue()
        for _ in range(self.size):
            self._idle.put(None)
        self._open = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts every worker now, so that the first jobs and retries find them warm."""
        with self._lock:
            if self._open:
                return
            self._open = True
            for worker in [self._idle.get() for _ in range(self.size)]:
                self._idle.put(worker or Worker(*self._boot))

    def map(
        self,
        jobs: Sequence[Any],
        time_limit: float,
        *,
        tries: int = 1,
        max_timeouts: int | None = None,
    ) -> list[Reply]:
        """One reply a job, in order. `time_limit` is in seconds, for a job's first try.

        A job that times out or whose worker dies is tried again up to `tries` times, behind the
        others; in all it takes less than twice the limit, waiting for a new worker included (a
        later try has half the limit at least). After `max_timeouts` timeouts with no other reply
        between them, the jobs that are left are `unasked`.
        """
        self.start()
        replies: list[Reply | None] = [None] * len(jobs)
        attempts = [0] * len(jobs)
        spent = [0.0] * len(jobs)
        in_a_row = 0

        def attempt(row: int) -> bool:
            nonlocal in_a_row
            arrived = time.monotonic()
            with self._worker() as worker:
                if max_timeouts is not None and in_a_row >= max_timeouts:
                    replies[row] = replies[row] or Reply("unasked")
                    return False
                began = time.monotonic()
                limit = time_limit
                if attempts[row]:
                    left = 1.9 * time_limit - spent[row] - (began - arrived)
                    limit = max(left, time_limit / 2)
                reply = worker.run(jobs[row], limit)
                spent[row] += time.monotonic() - began
            attempts[row] += 1
            replies[row] = reply
            in_a_row = in_a_row + 1 if reply.kind == "timeout" else 0
            return reply.kind in ("timeout", "died") and attempts[row] < tries

        work_through(len(jobs), attempt, num_threads=self.size, name="groupwise-verifier")
        return [reply for reply in replies if reply is not None]

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """The next free worker, ready for a job; a dead one is replaced when it comes back."""
        worker = self._idle.get()
        try:
            if worker is None or not worker.alive:
                worker = Worker(*self._boot)
            worker.boot()
            yield worker
        finally:
            if worker is not None and not self._open:
                worker.close()
            if worker is not None and not worker.alive:
                worker = Worker(*self._boot) if self._open else None
            self._idle.put(worker)

    def close(self) -> None:
        """Kills every idle worker; those at work are killed when their job ends."""
        self._open = False
        with suppress(queue.Empty):
            for _ in range(self.size):
                worker = self._idle.get_nowait()
                if worker is not None:
                    worker.close()
                self._idle.put(None)


_shared: dict[tuple[Any, ...], WorkerPool] = {}
_shared_lock = threading.Lock()


def shared_pool(target: str, size: int | None = None) -> WorkerPool:
    """The process-wide pool for `target`, made on first use and closed at exit.

    After a fork the child makes its own.
    """
    key = (os.getpid(), target, size)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = WorkerPool(target, size=size)
        return _shared[key]


@atexit.register
def close_shared_pools() -> None:
    for key in list(_shared):
        if key[0] == os.getpid():
            _shared.pop(key).close()
