"""The parent of all contenders' processes: loads them, then asks for repeats in turn, A B C A B C.

One contender works at a time; the others block on a read, and what processor time they or anyone
else take during a repeat is recorded with it. A contender that fails is out and said to be; the
rest go on. Left out: what the numbers mean (ratios.py).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.contenders import Contender
from benchmarks.ratios import is_disturbed, wants_more
from benchmarks.workload import Workload

_ROOT = Path(__file__).resolve().parents[1]
_SETTLE = 0.3  # seconds for thread pools to go to sleep
_RESIDENT = {"rollout": 1.3e9, "natural": 1.3e9, "step": 4.5e9}  # bytes held between repeats
_WORKING = {"rollout": 2e9, "natural": 2e9, "step": 6e9}  # bytes more while one works


@dataclass(frozen=True)
class Rules:
    """How often, how undisturbed, and how long. Times in seconds."""

    repeats: int = 3
    retries: int = 2
    foreign_limit: float = 0.1
    answer_timeout: float = 600.0
    deadline: float = 3600.0


@dataclass
class PhaseResult:
    """What one phase gave: raw rows, details by contender, and why contenders are missing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    kept_loaded: bool = True
    seconds: float = 0.0


class Failed(Exception):  # noqa: N818
    """A contender is out, for this reason."""


class Process:
    """One contender's process."""

    def __init__(self, contender: Contender, workload: Workload, log: Path) -> None:
        self.log = log
        environment = {**os.environ, "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.worker",
                    contender.name,
                    json.dumps(workload.to_table()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                env=environment,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self, timeout: float) -> dict[str, Any]:
        """The next answer. Raises Failed with the reason."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            raise Failed(f"no answer after {timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"its process ended with {self.process.wait()}; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok", True):
            raise Failed(answer["error"])
        return answer

    def ask(self, phase: str, tokens: int, number: int, timeout: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(
                json.dumps({"phase": phase, "tokens": tokens, "number": number}) + "\n"
            )
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"its process is gone ({error}); see {self.log}") from error
        return self.read(timeout)

    def close(self) -> None:
        """Let it end by itself, and end it where it does not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Phase:
    """One phase with its contenders."""

    def __init__(
        self,
        phase: str,
        contenders: Sequence[Contender],
        workload: Workload,
        rules: Rules,
        logs: Path,
        say: Callable[[str], None],
    ) -> None:
        self.phase = phase
        self.workload = workload
        self.rules = rules
        self.logs = logs
        self.say = say
        self.result = PhaseResult()
        self.running: dict[str, Process] = {}
        self.contenders = [each for each in contenders if self._installed(each)]
        self.tokens = workload.step_tokens if phase == "step" else workload.rollout_tokens
        self.until = time.monotonic() + rules.deadline

    def _installed(self, contender: Contender) -> bool:
        if contender.needs is None:
            return True
        try:
            importlib.metadata.version(contender.needs)
        except importlib.metadata.PackageNotFoundError:
            self._out(contender, f"{contender.needs} is not installed")
            return False
        return True

    def _out(self, contender: Contender, reason: str) -> None:
        self.result.failures[contender.name] = reason
        self.say(f"{self.phase}: {contender.name} is out: {reason}")

    def run(self) -> PhaseResult:
        """Warm every contender up, then rounds until each has its repeats or no try is left."""
        began = time.monotonic()
        resident = 0.0 if self.workload.model == "tiny" else _RESIDENT[self.phase]
        need = resident * len(self.contenders) + self._working()
        available = machine.available_memory()
        self.result.kept_loaded = available is None or available > need
        if not self.result.kept_loaded:
            self.say(f"{self.phase}: too little memory to keep all loaded; each loads per repeat")
        try:
            if self.result.kept_loaded:
                for contender in self.contenders:
                    self._start(contender)
                for contender in self.contenders:
                    self._try(contender, self._ready)
            for number in range(1, self.rules.repeats + self.rules.retries + 1):
                for contender in self._round(number):
                    self._try(contender, self._repeat, number)
        finally:
            for process in self.running.values():
                process.close()
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _round(self, number: int) -> list[Contender]:
        """Who is asked this time; a different one begins every round."""
        rules = self.rules
        wanting = [
            each
            for each in self.contenders
            if each.name not in self.result.failures
            and wants_more(
                [row for row in self.result.rows if row["contender"] == each.name],
                rules.repeats,
                rules.retries,
                rules.foreign_limit,
            )
        ]
        turn = (number - 1) % len(wanting) if wanting else 0
        return wanting[turn:] + wanting[:turn]

    def _try(self, contender: Contender, work: Callable[..., None], *arguments: Any) -> None:
        try:
            if time.monotonic() > self.until:
                if contender.name not in {row["contender"] for row in self.result.rows}:
                    raise Failed(f"out of time ({self.rules.deadline:.0f} s)")
                return
            work(contender, *arguments)
        except Failed as failed:
            self._out(contender, str(failed))
            if contender.name in self.running:
                self.running.pop(contender.name).close()

    def _start(self, contender: Contender) -> None:
        log = self.logs / f"{contender.name}-{self.phase}.log"
        self.running[contender.name] = Process(contender, self.workload, log)

    def _ready(self, contender: Contender) -> None:
        """Loaded and warm: a first repeat makes caches, states and kernels.

        A step's is of full length, since memory is asked for anew until one has been; the others'
        has few tokens.
        """
        process = self.running[contender.name]
        self.result.details[contender.name] = process.read(self.rules.answer_timeout)
        tokens = self.tokens if self.phase == "step" else self.workload.warmup_tokens
        process.ask(self.phase, tokens, 0, self.rules.answer_timeout)
        self.say(f"{self.phase}: {contender.name} is ready")

    def _repeat(self, contender: Contender, number: int) -> None:
        if contender.name not in self.running:
            self._start(contender)
            self._ready(contender)
        self._make_room(contender)
        process = self.running[contender.name]
        time.sleep(_SETTLE)
        pids = [each.pid for each in self.running.values()]
        before = machine.cpu_times(pids)
        answer = process.ask(self.phase, self.tokens, number, self.rules.answer_timeout)
        shares = machine.shares(before, machine.cpu_times(pids), process.pid)
        row = {
            "contender": contender.name,
            "phase": self.phase,
            "round": number,
            **answer,
            "shares": shares,
            "load": round(os.getloadavg()[0], 2),
        }
        row["disturbed"] = is_disturbed(row, self.rules.foreign_limit)
        self._check(contender, row)
        self.result.rows.append(row)
        self.say(
            f"{self.phase} {number}: {contender.name} {row['seconds']:.2f} s, "
            f"{row['tokens']} tokens, foreign {shares['foreign']}"
            + (" (disturbed)" if row["disturbed"] else "")
        )
        if not self.result.kept_loaded:
            self.running.pop(contender.name).close()

    def _make_room(self, contender: Contender) -> None:
        """Idle contenders that hold more than was thought are ended, and load anew for their turn:
        else the system would end one of them, or swap."""
        available = machine.available_memory() if self.result.kept_loaded else None
        if available is None or available > self._working():
            return
        self.say(f"{self.phase}: {available / 1e9:.1f} GB are left; each loads per repeat from now")
        self.result.kept_loaded = False
        for name in [name for name in self.running if name != contender.name]:
            self.running.pop(name).close()

    def _working(self) -> float:
        return 0.0 if self.workload.model == "tiny" else _WORKING[self.phase]

    def _check(self, contender: Contender, row: dict[str, Any]) -> None:
        """Fixed length means exactly that; else the contenders did different work."""
        expected = row["rows"] * self.tokens
        if self.phase != "natural" and row["tokens"] != expected:
            raise Failed(f"sampled {row['tokens']} tokens where {expected} were asked for")
