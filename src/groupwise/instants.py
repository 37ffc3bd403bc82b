"""Named instants of a run: the pulse that the watchdog feels, the points at which a run that has to
end is left, and where `groupwise verify-resume` kills a process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

Instant = Literal[
    "sampling",  # a completion has come, others are still being sampled
    "tool call",
    "scoring",  # a rollout is handed to the verifier
    "micro-batch",  # a micro-batch's gradient is added
    "optimiser",  # gradients are there, the weights have not moved
    "file",  # a file is written and not yet in its place
    "record",  # a step's rollouts are written, its metrics are not
    "evaluation",  # measured and not yet recorded
    "save",  # a checkpoint's tensors are written, its manifest is not
    "saved",  # a checkpoint is in its place, older ones are not yet deleted
    "epoch",  # the first prompt or example of another epoch
    "model",  # a stage's model is written and not yet in its place
    "between stages",
]
INSTANTS: tuple[str, ...] = get_args(Instant)


@dataclass
class _Watch:
    """Writes down every instant of this process, and ends it at the chosen ones."""

    log: int
    deaths: Mapping[str, float]
    started: float
    place: str = ""
    stage: str = ""
    counts: Counter[str] = field(default_factory=Counter[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, name: str) -> None:
        with self.lock:
            self.counts[name] += 1
            key = f"{self.place} | {name} | {self.counts[name]}"
            os.write(self.log, f"{time.perf_counter() - self.started:.6f}\t{key}\n".encode())
        delay = self.deaths.get(key)
        if delay is not None:
            after = threading.Timer(delay, self.die, [key])
            after.daemon = True
            self.die(key) if delay == 0.0 else after.start()

    def die(self, key: str) -> None:
        os.write(self.log, f"killed\t{key}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def enter(self, stage: str, step: int | None) -> None:
        with self.lock:
            self.stage, self.counts = stage, Counter[str]()
            where = [f"stage {stage}"] if stage else []
            self.place = ", ".join(where + ([] if step is None else [f"step {step}"])) or "start"


_watch: _Watch | None = None


@dataclass(slots=True)
class Pulse:
    """How far this process has come: how many instants, the latest, and where that was.

    `check` is called at the instants of a step's work, and may raise to leave the step; not while
    something is written, or between the optimiser and the record.
    """

    count: int = 0
    latest: str = "start"
    place: str = "the start"
    check: Callable[[], None] | None = None


pulse = Pulse()
_MAY_LEAVE = frozenset(("sampling", "tool call", "scoring", "micro-batch"))


def passed(name: Instant) -> None:
    """This process is at a named instant."""
    pulse.count += 1
    pulse.latest = name
    if pulse.check is not None and name in _MAY_LEAVE:
        pulse.check()
    if _watch is not None:
        _watch.see(name)


def entered_step(step: int) -> None:
    """A step begins: its instants are counted from 1."""
    pulse.count += 1
    pulse.place = f"step {step}"
    if _watch is not None:
        _watch.enter(_watch.stage, step)


def entered_stage(name: str) -> None:
    """A pipeline's stage begins."""
    pulse.count += 1
    pulse.place = f"stage {name}"
    if _watch is not None:
        _watch.enter(name, None)


def arm(log: Path, deaths: Mapping[str, float]) -> None:
    """From now on instants are appended to `log`, as seconds and key, and those among `deaths` end
    the process with SIGKILL after so many seconds. A key is `place | name | count in this place`.
    """
    global _watch
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _watch = _Watch(descriptor, deaths, time.perf_counter())
    _watch.enter("", None)
    _watch.see("start")
