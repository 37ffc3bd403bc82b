"""One graded run: cases go in one at a time, values come out, and the verdict is made here.

The number of cases comes from the job, never from what a child says; expected values are compared
here and are sent nowhere. A case that ends its process costs a new fork for the next one; a
timeout ends the run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable
from typing import Any

from groupwise.sandbox.comparison import same_output, same_value
from groupwise.sandbox.guest.values import decode
from groupwise.sandbox.results import BROKEN_TESTS, Call, CodeOutcome, CodeResult, Job, Program
from groupwise.sandbox.zygotes import Child, Expired, Garbled, Gone, TooMuch, Zygote, ZygoteLost

FRAME = 1 << 26
"""Bytes of a frame from a tester, which runs the data's own source."""

_PIPE = 8000
"""Characters of a job that certainly fit into an empty pipe."""

_ENDING = 0.5
"""Seconds that a child which closed its pipe has to end by itself, for its status."""

Verdict = tuple[CodeOutcome, str]


class Ended(Exception):  # noqa: N818 (inside this room: an outcome of the child's whole run)
    """A child cannot go on, with the outcome that this is."""

    def __init__(self, outcome: CodeOutcome, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = (outcome, reason)


class BrokenTests(Exception):  # noqa: N818 (inside this room: the data's fault, never scored)
    """The tests' own source cannot be run."""


def grade(zygote: Zygote, job: Job) -> CodeResult:
    """Runs the job to its verdict. `ZygoteLost` where the fault is not the completion's."""
    if len(job.source.encode(errors="replace")) > job.limits.source:
        reason = f"a source of more than {job.limits.source} bytes"
        return CodeResult("limit", 0, len(job.tests), reason)
    run = {"calls": grade_calls, "stdio": grade_programs, "asserts": grade_asserts}[job.kind]
    verdicts: list[Verdict] = []
    until = time.monotonic() + job.limits.total_time

    def add(verdict: Verdict) -> bool:
        """Whether the run goes on after this case."""
        verdicts.append(verdict)
        outcome = verdict[0]
        return outcome != "timeout" and not (job.stop_early and outcome != "passed")

    try:
        run(zygote, job, until, add)
    except BrokenTests as error:
        return CodeResult("infrastructure_error", 0, len(job.tests), str(error))
    return _result(job, verdicts)


def _result(job: Job, verdicts: list[Verdict]) -> CodeResult:
    total = len(job.tests)
    passed = sum(outcome == "passed" for outcome, _ in verdicts)
    cases = tuple(outcome for outcome, _ in verdicts)
    if passed == total:
        return CodeResult("passed", passed, total, f"{passed} of {total} cases", cases)
    number, (outcome, reason) = next(
        (number, verdict) for number, verdict in enumerate(verdicts) if verdict[0] != "passed"
    )
    return CodeResult(outcome, passed, total, f"case {number + 1} of {total}: {reason}", cases)


class Solution:
    """The child that holds the solution; forked again after it ended."""

    def __init__(self, zygote: Zygote, job: Job, until: float) -> None:
        self._zygote = zygote
        self._job = job
        self._until = until
        self._child: Child | None = None
        self._unloadable: list[Any] | None = None
        self._secret = secrets.token_hex(8)
        self._count = 0
        self.asked = False

    def deadline(self) -> float:
        """The end of a case that begins now."""
        return min(time.monotonic() + self._job.limits.time, self._until)

    def call(
        self, entry: str, arguments: list[Any], keywords: Any, deadline: float, mutated: bool
    ) -> list[Any]:
        """`["value", told, told arguments]`, `["error", what]`, `["untold", why]` or `["memory"]`.

        `Ended` where the child is gone.
        """
        self.asked = True
        if self._unloadable is not None:
            return self._unloadable
        if self._child is None:
            reply = self._load(deadline)
            if reply[0] != "value":
                self.end()
                self._unloadable = reply
                return reply
        self._count += 1
        nonce = f"{self._count}-{self._secret}"
        return self._exchange([nonce, entry, arguments, keywords, mutated], nonce, deadline)

    def _load(self, deadline: float) -> list[Any]:
        self._child = self._zygote.fork("calls", self._job.limits)
        return self._exchange({"source": self._job.source}, 0, deadline)

    def _exchange(self, message: Any, nonce: str | int, deadline: float) -> list[Any]:
        assert self._child is not None
        try:
            if nonce == 0:
                begin(self._child, message, deadline)
            else:
                self._child.send(message, deadline)
            reply = self._child.receive(deadline, self._job.limits.reply)
            if reply[0] != nonce or not _is_reply(reply[1:]):
                raise Garbled
            return reply[1:]
        except (Expired, TooMuch, Gone, Garbled) as error:
            verdict = ending(self._child, error, self._job)
            self._child = None
            raise Ended(*verdict) from None

    def end(self) -> None:
        """Ends the child; the next call has a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


def _is_reply(reply: list[Any]) -> bool:
    """Whether it has the form of `Solution.call`'s result; a hostile child knows the nonce."""
    lengths = {"value": 3, "error": 2, "untold": 2, "memory": 1}
    return bool(reply) and type(reply[0]) is str and lengths.get(reply[0]) == len(reply)


def begin(child: Child, job: dict[str, Any], deadline: float) -> None:
    """Gives a new child its job. `ZygoteLost` where it was not confined, else as `Child.send`."""
    small = sum(len(str(each)) for each in job.values()) < _PIPE
    if small:  # it fits into the pipe, so the child finds it there when it is confined
        with contextlib.suppress(Gone):
            child.send(job, deadline)
    confirm(child)
    if not small:
        child.send(job, deadline)


def confirm(child: Child) -> None:
    """Waits until the child is confined; before that a failure is ours. `ZygoteLost`."""
    try:
        if child.receive(time.monotonic() + 10.0, 1000) == ["confined"]:
            return
        cause = "it said something else"
    except (Expired, TooMuch, Gone, Garbled) as error:
        cause = type(error).__name__.lower()
    status = child.end()
    raise ZygoteLost(f"a child could not be confined ({cause}, wait status {status})")


def ending(child: Child, error: Exception, job: Job) -> Verdict:
    """Ends a child after `error`; the outcome."""
    status = child.ended(_ENDING) if isinstance(error, Gone) else None
    if status is None:
        child.end()
    if isinstance(error, Expired):
        return "timeout", f"no answer after {job.limits.time:g} s"
    if isinstance(error, TooMuch):
        return "limit", f"a value of more than {job.limits.reply} bytes"
    if isinstance(error, Garbled):
        return "crash", "the answer was not one of ours"
    return how_it_ended(status)


def how_it_ended(status: int | None) -> Verdict:
    """A child that ended in the middle of a case, from its wait status."""
    if status is None:
        return "crash", "the process closed its pipe"
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return "timeout", "out of processor time"
    if code < 0:
        return "crash", f"the process was ended by {signal.Signals(-code).name}"
    return "crash", f"the process ended itself with exit code {code} before it answered"


def grade_calls(zygote: Zygote, job: Job, until: float, add: Callable[[Verdict], bool]) -> None:
    """Each case is one call whose value is compared here."""
    solution = Solution(zygote, job, until)
    try:
        for test in job.tests:
            assert isinstance(test, Call)
            go_on = add(_graded_call(solution, job, test))
            if job.fresh:
                solution.end()
            if not go_on:
                return
    finally:
        solution.end()


def _graded_call(solution: Solution, job: Job, test: Call) -> Verdict:
    arguments, keywords = test.told
    try:
        kind, *rest = solution.call(
            job.entry or "", arguments, keywords, solution.deadline(), mutated=False
        )
    except Ended as ended:
        return ended.verdict
    if kind == "memory":
        return "out_of_memory", "MemoryError"
    if kind in ("error", "untold"):
        return "failed", told_error(rest)
    if same_value(test.plain, rest[0], job.tolerance, job.alike):
        return "passed", ""
    return "failed", f"gave {_short(rest[0])}"


def grade_programs(zygote: Zygote, job: Job, until: float, add: Callable[[Verdict], bool]) -> None:
    """Each case is one process that reads the input and prints; compared here."""
    for test in job.tests:
        assert isinstance(test, Program)
        child = zygote.fork("stdio", job.limits, stdin=test.stdin.encode())
        try:
            deadline = min(time.monotonic() + job.limits.time, until)
            go_on = add(_graded_program(child, job, test, deadline))
        finally:
            child.end()
        if not go_on:
            return


def _graded_program(child: Child, job: Job, test: Program, deadline: float) -> Verdict:
    report: list[Any] = ["none"]
    try:
        begin(child, {"source": job.source}, deadline)
        printed = child.read_output(deadline, job.limits.output)
        report = child.receive(deadline, 1 << 16)
    except Expired:
        return "timeout", f"not ended after {job.limits.time:g} s"
    except TooMuch:
        return "limit", f"more than {job.limits.output} bytes of output"
    except (Gone, Garbled):
        pass  # it left without a report, as os._exit does: its status decides
    status = child.end()
    if os.waitstatus_to_exitcode(status) == 0:
        if same_output(test.expected, printed.decode(errors="replace"), job.tolerance):
            return "passed", ""
        return "failed", f"printed {printed[:80].decode(errors='replace')!r}"
    if report[0] == "memory":
        return "out_of_memory", "MemoryError"
    if report[0] == "error":
        return "failed", told_error(report[1:])
    if report[0] == "ended":
        return "failed", "it ended with an exit code that is not 0"
    return how_it_ended(status)


def grade_asserts(zygote: Zygote, job: Job, until: float, add: Callable[[Verdict], bool]) -> None:
    """The tests run in a tester; what they call is asked of the solution, through here."""
    solution = Solution(zygote, job, until)
    tester = zygote.fork("tester", job.limits)
    try:
        deadline = solution.deadline()
        tests = {"setup": job.setup, "tests": list(job.tests), "entry": job.entry}
        passed = 0
        try:
            begin(tester, tests, deadline)
            for _ in job.tests:
                verdict = _graded_test(tester, solution, job, deadline)
                passed += verdict[0] == "passed"
                if passed == len(job.tests) and not solution.asked:
                    raise BrokenTests(f"{BROKEN_TESTS}: none calls the solution")
                go_on = add(verdict)
                if job.fresh:
                    solution.end()
                if not go_on:
                    return
                deadline = solution.deadline()
        except (Expired, TooMuch, Gone, Garbled) as error:
            add(ending(tester, error, job))
    finally:
        solution.end()
        tester.end()


def _graded_test(tester: Child, solution: Solution, job: Job, deadline: float) -> Verdict:
    """Relays the test's calls until its result; what ended the solution is the test's outcome."""
    cause: Verdict | None = None
    while True:
        kind, *rest = tester.receive(deadline, FRAME)
        if kind == "result":
            _, passed, reason = rest
            return ("passed", "") if passed and cause is None else cause or ("failed", str(reason))
        if kind == "broken":
            raise BrokenTests(f"{BROKEN_TESTS}: {rest[0]}")
        name, arguments, keywords = rest
        try:
            reply = solution.call(str(name), arguments, keywords, deadline, mutated=True)
        except Ended as ended:
            cause = ended.verdict
            if cause[0] == "timeout":
                return cause
            reply = ["gone", cause[1]]
        if reply[0] == "memory":
            cause = ("out_of_memory", "MemoryError")
        elif reply[0] == "untold":  # no exception of the solution's that a test may wait for
            cause = ("failed", told_error(reply[1:]))
        tester.send(reply, deadline)


def told_error(rest: list[Any]) -> str:
    """The exception that a child told of, cut to one short line."""
    told = rest[0] if rest and isinstance(rest[0], list) else []
    if rest and isinstance(rest[0], str):
        return rest[0][:300]
    name, message = ([str(each)[:300] for each in told] + ["an error", ""])[:2]
    return f"{name}: {message}" if message else name


def _short(told: Any) -> str:
    try:
        text = repr(decode(told, max_hashed=1000))
    except ValueError:
        text = "a value that is none"
    return text if len(text) <= 80 else text[:77] + "..."
