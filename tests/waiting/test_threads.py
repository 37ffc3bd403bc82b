"""Jobs worked through by threads: each once, again on request, one error ends the rest."""

import doctest
import threading
import time

import pytest

import groupwise.waiting.threads
from groupwise.waiting.threads import work_through


def test_examples():
    assert doctest.testmod(groupwise.waiting.threads).failed == 0


def test_every_row_once_by_at_most_so_many_threads():
    seen, names = [], set()

    def attempt(row):
        names.add(threading.current_thread().name)
        time.sleep(0.002)
        seen.append(row)
        return False

    work_through(20, attempt, num_threads=3, name="crew")
    assert sorted(seen) == list(range(20))
    assert names == {"MainThread", "crew"}
    work_through(0, attempt, num_threads=3, name="crew")
    assert len(seen) == 20


def test_a_row_is_tried_again_behind_the_others():
    seen = []

    def attempt(row):
        seen.append(row)
        return row == 1 and seen.count(1) < 3

    work_through(3, attempt, num_threads=1, name="crew")
    assert seen == [0, 1, 2, 1, 1]


@pytest.mark.parametrize("num_threads", [1, 4])
def test_an_error_of_any_thread_ends_the_work_and_is_raised(num_threads):
    seen = []

    def attempt(row):
        seen.append(row)
        if row == 2:
            raise ValueError("row 2")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="row 2"):
        work_through(1000, attempt, num_threads=num_threads, name="crew")
    assert len(seen) < 100


def test_an_interruption_of_the_caller_does_not_wait_for_the_other_threads():
    release = threading.Event()

    def attempt(row):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        release.wait(30)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work_through(4, attempt, num_threads=2, name="crew")
    release.set()
    assert time.monotonic() - start < 5
