"""The sandbox: a few warm zygotes of the strongest tier that works, and graded runs on them.

Works from any thread and inside a running event loop. A run that fails through a fault of the
sandbox is tried once more on a new zygote, then reported as `infrastructure_error`, never as a 0.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from groupwise.sandbox.guest.values import decode, encode
from groupwise.sandbox.packages import Packages, find_packages
from groupwise.sandbox.probes import context_of, open_probes
from groupwise.sandbox.results import (
    CodeResult,
    Job,
    Kind,
    Limits,
    SandboxUnavailable,
    TrustedCallFailed,
)
from groupwise.sandbox.runs import Ended, Solution, failure, grade, printable
from groupwise.sandbox.tiers import Tier, TierChoice, candidates, plan, refuse_other_systems
from groupwise.sandbox.zygotes import Zygote, ZygoteLost
from groupwise.waiting.threads import work_through

ZYGOTES_PER_CORE = 2
"""While one run waits for its child, another works: about a quarter more runs a second."""

_FAULTS = (ZygoteLost, SandboxUnavailable)

Result = TypeVar("Result")

logger = logging.getLogger("groupwise.sandbox")


class Sandbox:
    """A pool of zygotes, two a core unless `size` says how many.

    `packages` (numpy, ...) are importable beside the standard library. `tier` "auto" takes A, else
    B; a named tier is taken or refused. Starting runs the isolation probes. `SandboxUnavailable`
    where no tier works.
    """

    def __init__(
        self,
        *,
        size: int | None = None,
        tier: TierChoice = "auto",
        packages: Sequence[str] = (),
    ) -> None:
        refuse_other_systems()
        self.size = size or ZYGOTES_PER_CORE * len(os.sched_getaffinity(0))
        self._packages = find_packages(packages)
        self._idle: queue.LifoQueue[Zygote | None] = queue.LifoQueue()
        self.tier, first = _start_strongest(tier, self._packages)
        for _ in range(self.size - 1):
            self._idle.put(None)
        self._idle.put(first)
        self._closed = False

    def grade(self, job: Job) -> CodeResult:
        """One graded run."""
        try:
            return self._tried(lambda zygote: grade(zygote, job))
        except _FAULTS as error:
            return CodeResult("infrastructure_error", 0, len(job.tests), str(error))

    def _tried(self, run: Callable[[Zygote], Result]) -> Result:
        """The result of a run, tried once more on a new zygote where one is lost. `_FAULTS`."""
        try:
            with self._zygote() as zygote:
                return run(zygote)
        except _FAULTS as error:
            logger.warning("a run failed through a fault of the sandbox: %s", error)
        with self._zygote() as zygote:
            return run(zygote)

    def grade_all(self, jobs: Sequence[Job], tries: int = 1) -> list[CodeResult]:
        """One result for each job, in order, as many at a time as there are zygotes.

        A run that timed out is tried again up to `tries` times in all, after the others.
        """
        results: list[CodeResult | None] = [None] * len(jobs)
        attempts = [0] * len(jobs)

        def attempt(row: int) -> bool:
            results[row] = result = self.grade(jobs[row])
            attempts[row] += 1
            return result.outcome == "timeout" and attempts[row] < tries

        work_through(len(jobs), attempt, num_threads=self.size, name="groupwise-sandbox")
        return [result for result in results if result is not None]

    def evaluate(
        self,
        source: str,
        entry: str,
        arguments: Sequence[Any] = (),
        *,
        limits: Limits | None = None,
        read_files: bool = False,
    ) -> Any:
        """The value, as data, that trusted `source` returns for untrusted arguments.

        For scorers and checkers of others, which may execute what they judge. Its value is
        believed: pass no source that the policy wrote. `read_files` lets it read the files of the
        sandbox's packages. `TrustedCallFailed` says why there is no value.
        """
        job = Job(source, [((), None)], entry=entry, limits=limits or Limits())
        encoded = [encode(each) for each in arguments]
        try:
            found = self._tried(lambda zygote: _evaluated(zygote, job, encoded, read_files))
        except _FAULTS as error:
            message = f"{entry}: infrastructure_error: {error}"
            raise TrustedCallFailed(message, "infrastructure_error") from error
        if isinstance(found, TrustedCallFailed):
            raise found
        return found

    @contextmanager
    def _zygote(self) -> Iterator[Zygote]:
        """An idle zygote; one in whose run anything went wrong is replaced."""
        zygote, sound = self._idle.get(), False
        try:
            zygote = zygote or Zygote(plan(self.tier, self._packages))
            yield zygote
            sound = not self._closed
        finally:
            if zygote is not None and not sound:
                zygote.close()
            self._idle.put(zygote if sound else None)

    def start(self) -> None:
        """Starts every zygote now, so that the first runs find them warm."""
        slots = [self._idle.get() for _ in range(self.size)]
        for zygote in slots:
            self._idle.put(zygote or Zygote(plan(self.tier, self._packages)))

    def close(self) -> None:
        """Ends every idle zygote; those at work end with their run. Safe to call twice."""
        self._closed = True
        taken: list[Zygote | None] = []
        with suppress(queue.Empty):
            while True:
                taken.append(self._idle.get_nowait())
        for zygote in taken:
            if zygote is not None:
                zygote.close()
            self._idle.put(None)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _evaluated(zygote: Zygote, job: Job, encoded: list[Any], read_files: bool) -> Any:
    """The value of the job's entry for encoded arguments, or a `TrustedCallFailed`."""
    solution = Solution(zygote, job, time.monotonic() + job.limits.total_time, read_files)
    entry = job.entry or ""
    try:
        reply = solution.call(entry, encoded, {}, solution.deadline(), mutated=False)
        if reply[0] == "value":
            return decode(_printable(reply[1]))
        outcome, reason = failure(reply)
    except Ended as ended:
        outcome, reason = ended.verdict
    except (ValueError, RecursionError) as error:
        outcome, reason = "failed", str(error)
    finally:
        solution.end()
    cause = reason if outcome == "failed" else f"{outcome}: {reason}"
    return TrustedCallFailed(printable(f"{entry}: {cause}"), outcome)


def _printable(data: Any) -> Any:
    """Encoded data with `printable` texts: what a scorer returns may quote what it judged."""
    if type(data) is list:
        return [_printable(each) for each in data]
    return printable(data) if type(data) is str else data


def _start_strongest(choice: TierChoice, packages: Packages) -> tuple[Tier, Zygote]:
    """The first tier that starts and passes its self-test, with its first zygote."""
    causes: list[str] = []
    for tier in candidates(choice):
        zygote: Zygote | None = None
        try:
            zygote = Zygote(plan(tier, packages))
            through = open_probes(zygote, context_of())
            if not through:
                because = f" ({'; '.join(causes)})" if causes else ""
                logger.info("sandbox tier %s, Landlock ABI %d%s", tier, zygote.landlock, because)
                return tier, zygote
            names = ", ".join(f"{name} ({evidence})" for name, evidence in through.items())
            causes.append(f"tier {tier}: the self-test got through: {names}")
        except (SandboxUnavailable, ZygoteLost) as error:
            causes.append(str(error))
        if zygote is not None:
            zygote.close()
    raise SandboxUnavailable(
        "code that a model wrote is not run without isolation, and none works here. "
        + "; ".join(causes)
    )


_shared: dict[tuple[Any, ...], Sandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(tier: TierChoice = "auto", packages: Sequence[str] = ()) -> Sandbox:
    """The process-wide sandbox for a tier and packages, started on first use, closed at exit.

    After a fork the child starts its own.
    """
    key = (os.getpid(), tier, tuple(sorted(set(packages))))
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Sandbox(tier=tier, packages=key[2])
        return _shared[key]


@atexit.register
def close_shared_sandboxes() -> None:
    """Ends every shared sandbox of this process."""
    for key in list(_shared):
        if key[0] == os.getpid():
            _shared.pop(key).close()


def run_code(
    source: str,
    tests: Sequence[Any],
    *,
    entry: str | None = None,
    kind: Kind = "calls",
    setup: str = "",
    limits: Limits | Mapping[str, Any] | None = None,
    tolerance: float = 0.0,
    fresh: bool = False,
    packages: Sequence[str] = (),
    tier: TierChoice = "auto",
) -> CodeResult:
    """Runs untrusted `source` in the sandbox against `tests`, and judges it here.

    kind "calls": tests are `(arguments, expected)` for the function `entry`; "stdio":
    `(input, output)` of a program; "asserts": test source, run in a process of its own against a
    stub of the solution (`setup` runs before it). `limits` is a `Limits` or its fields (seconds and
    bytes). `packages` are importable beside the standard library. `fresh` isolates the cases from
    each other. `outcome` is "passed" or why the first case did not pass.

    `RecipeError` for tests that cannot be read; `SandboxUnavailable` where no isolation works.

    >>> run_code("def f(n): return 2 * n + 1", tests=[((2,), 5)], entry="f", kind="calls").outcome
    'passed'
    """
    given = Limits.of(limits)
    job = Job(source, tests, kind, entry, setup, given, tolerance=tolerance, fresh=fresh)
    return shared_sandbox(tier, packages).grade(job)
