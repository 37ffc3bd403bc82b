"""Jobs worked through by a few threads that share one queue, the calling thread among them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress


def work_through(
    num_jobs: int, attempt: Callable[[int], bool], *, num_threads: int, name: str
) -> None:
    """Calls `attempt(row)` for every row from 0 up, at most `num_threads` at a time.

    A row for which it gives True is tried again, behind the others. The first `Exception` ends the
    work and is raised here once every thread has finished its row; an interruption of the calling
    thread (Ctrl-C) is raised at once, and the other threads end after their row.

    >>> done = []
    >>> work_through(3, lambda row: bool(done.append(row)), num_threads=1, name="example")
    >>> done
    [0, 1, 2]
    """
    waiting = deque(range(num_jobs))
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            try:
                row = waiting.popleft()
            except IndexError:  # nothing left, or another thread took the last one
                return
            try:
                if attempt(row):
                    waiting.append(row)
            except BaseException as error:
                failures.append(error)
                if not isinstance(error, Exception):
                    raise

    def work_in_background() -> None:
        with suppress(BaseException):  # among the failures, raised by the calling thread
            work()

    threads = [
        threading.Thread(target=work_in_background, name=name, daemon=True)
        for _ in range(min(num_threads, num_jobs) - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
