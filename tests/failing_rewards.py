"""Reward functions that end one process of a run, in the first step."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

calls = 0


def _in_a_step_of_rank_1() -> bool:
    global calls
    calls += 1  # the first is the evaluation before the steps
    return os.environ.get("RANK") == "1" and calls > 1


def raises(completions: list[Any], **_: Any) -> list[float]:
    if _in_a_step_of_rank_1():
        raise KeyError("no such answer")
    return [float(len(str(each)) % 2) for each in completions]


def is_killed(completions: list[Any], **_: Any) -> list[float]:
    if _in_a_step_of_rank_1():
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(len(str(each)) % 2) for each in completions]


def freezes(completions: list[Any], **_: Any) -> list[float]:
    if _in_a_step_of_rank_1():
        os.kill(os.getpid(), signal.SIGSTOP)
    return [float(len(str(each)) % 2) for each in completions]


def takes_long(completions: list[Any], **_: Any) -> list[float]:
    time.sleep(0.3)
    return [float(len(str(each)) % 2) for each in completions]
