"""One graded run: cases go in one at a time, values come out, and the verdict is made here.

The number of cases comes from the job, never from what a child says; expected values are compared
here and are sent nowhere. A case that ends its process costs a new fork for the next one; a
timeout ends the run. Every reply is data that the completion may have forged: what is malformed is
the completion's doing, an outcome of value 0, and never an exception in this process.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from collections.abc import Generator
from typing import Any

from groupwise.sandbox.comparison import same_data, same_output
from groupwise.sandbox.guest.values import decode
from groupwise.sandbox.results import BROKEN_TESTS, Call, CodeOutcome, CodeResult, Job, Program
from groupwise.sandbox.zygotes import (
    Child,
    Expired,
    Fault,
    Garbled,
    Gone,
    TooMuch,
    Zygote,
    ZygoteLost,
)

FRAME = 1 << 24
"""Bytes of a frame from a tester, which runs the data's own source."""

_REASON = 300
"""Characters of a reason that a child chose."""

_ENDING = 0.5
"""Seconds in which a child that closed its pipe may end by itself, for its exit code."""

Verdict = tuple[CodeOutcome, str]
Cases = Generator[Verdict, None, None]


class Ended(Exception):  # noqa: N818 (inside this room: an outcome of the child's whole run)
    """A child is gone, and the outcome that this is."""

    def __init__(self, outcome: CodeOutcome, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = (outcome, reason)


class BrokenTests(Exception):  # noqa: N818 (inside this room: the data's fault, never scored)
    """The tests' own source cannot be run: found before the completion was asked anything."""


def grade(zygote: Zygote, job: Job) -> CodeResult:
    """Runs the job to its verdict. `ZygoteLost` where the fault is not the completion's."""
    if len(job.source.encode(errors="replace")) > job.limits.source:
        reason = f"a source of more than {job.limits.source} bytes"
        return CodeResult("limit", 0, len(job.tests), reason)
    run = {"calls": grade_calls, "stdio": grade_programs, "asserts": grade_asserts}[job.kind]
    verdicts: list[Verdict] = []
    until = time.monotonic() + job.limits.total_time
    try:
        with contextlib.closing(run(zygote, job, until)) as cases:
            for outcome, reason in cases:
                verdicts.append((outcome, reason))
                if outcome == "timeout" or (job.stop_early and outcome != "passed"):
                    break
    except BrokenTests as error:
        return CodeResult("infrastructure_error", 0, len(job.tests), printable(str(error)))
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
    reason = printable(f"case {number + 1} of {total}: {reason}")
    return CodeResult(outcome, passed, total, reason, cases)


def printable(text: str) -> str:
    """The text, in which every character that UTF-8 cannot encode is written as an escape."""
    return text.encode(errors="backslashreplace").decode()


class Solution:
    """The child that holds the solution; forked again after it ended."""

    def __init__(self, zygote: Zygote, job: Job, until: float, read_files: bool = False) -> None:
        self._zygote = zygote
        self._job = job
        self._until = until
        self._read_files = read_files
        self._child: Child | None = None
        self.asked = False

    def deadline(self) -> float:
        """The end of a case that begins now."""
        return min(time.monotonic() + self._job.limits.time, self._until)

    def call(
        self, entry: str, arguments: list[Any], keywords: Any, deadline: float, mutated: bool
    ) -> list[Any]:
        """A reply of `guest/solution.py`, its form checked. `Ended` where the child is gone."""
        self.asked = True
        nonce = secrets.token_hex(8)
        limits, child = self._job.limits, self._child
        try:
            if child is None:
                child = self._child = self._zygote.fork(
                    "calls", limits, read_files=self._read_files
                )
                begin(child, {"source": self._job.source}, deadline)
            child.send([nonce, entry, arguments, keywords, mutated], deadline)
            reply = child.receive(deadline, limits.reply)
            if reply[0] != nonce or not _is_reply(reply[1:]):
                raise Garbled
        except Fault as error:
            assert child is not None
            self._child = None
            raise Ended(*ending(child, error, self._job)) from None
        return reply[1:]

    def end(self) -> None:
        """Ends the child; the next call has a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


def _is_reply(reply: list[Any]) -> bool:
    """Whether it has a form that `guest/solution.py` sends; a hostile child knows the nonce."""
    match reply:
        case ["value", _, None | [*_]] | ["memory"] | ["not_data", str()]:
            return True
        case ["error", [str(), str(), str(), _]]:
            return True
    return False


def begin(child: Child, job: dict[str, Any], deadline: float) -> None:
    """Sends a new child its job. `ZygoteLost` if it was not confined, else as `Child.send`."""
    with contextlib.suppress(Gone):  # what the child says first tells why
        child.send(job, deadline)
    try:
        if child.receive(time.monotonic() + 10.0, 1000) == ["confined"]:
            return
        cause = "it said something else"
    except Fault as error:
        cause = type(error).__name__.lower()
    raise ZygoteLost(f"a child could not be confined ({cause}, exit code {child.end()})")


def ending(child: Child, error: Exception, job: Job) -> Verdict:
    """Ends a child after `error`; the outcome."""
    code = child.ended(_ENDING) if isinstance(error, Gone) else None
    if code is None:
        child.end()
    if isinstance(error, Expired):
        return "timeout", f"no answer after {job.limits.time:g} s"
    if isinstance(error, TooMuch):
        return "limit", f"a value of more than {job.limits.reply} bytes"
    if isinstance(error, Garbled):
        return "crash", "the reply was malformed"
    return how_it_ended(code)


def how_it_ended(code: int | None) -> Verdict:
    """A child that ended in the middle of a case, from its exit code."""
    if code is None:
        return "crash", "the process closed its pipe"
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return "timeout", "out of processor time"
    if code < 0:
        known = {each.value: each.name for each in signal.Signals}
        return "crash", f"the process was ended by {known.get(-code, f'signal {-code}')}"
    return "crash", f"the process ended itself with exit code {code} before it answered"


def grade_calls(zygote: Zygote, job: Job, until: float) -> Cases:
    """Each case is one call whose value is compared here."""
    solution = Solution(zygote, job, until)
    try:
        for test in job.tests:
            yield _graded_call(solution, job, test)
            if job.fresh:
                solution.end()
    finally:
        solution.end()


def _graded_call(solution: Solution, job: Job, test: Call) -> Verdict:
    deadline = solution.deadline()
    try:
        reply = solution.call(job.entry or "", *test.encoded, deadline, mutated=False)
    except Ended as ended:
        return ended.verdict
    if reply[0] != "value":
        return failure(reply)
    if any(same_data(each, reply[1], job.tolerance, job.alike) for each in test.right):
        return "passed", ""
    return "failed", f"gave {_short(reply[1])}"


def failure(reply: list[Any]) -> Verdict:
    """The outcome of a call that gave no value."""
    if reply[0] == "memory":
        return "out_of_memory", "MemoryError"
    return "failed", reported_error(reply[1:])


def grade_programs(zygote: Zygote, job: Job, until: float) -> Cases:
    """Each case is one process that reads the input and prints; compared here."""
    for test in job.tests:
        child = zygote.fork("stdio", job.limits, stdin=test.stdin.encode())
        try:
            deadline = min(time.monotonic() + job.limits.time, until)
            yield _graded_program(child, job, test, deadline)
        finally:
            child.end()


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
        pass  # it left without a report, as os._exit does: its exit code decides
    code = child.end()
    if code == 0:
        if same_output(test.expected, printed.decode(errors="replace"), job.tolerance):
            return "passed", ""
        return "failed", f"printed {printed[:80].decode(errors='replace')!r}"
    match report:
        case ["memory"] | ["error", [str(), str(), str()]]:
            return failure(report)
        case ["ended", _]:
            return "failed", "it ended with an exit code that is not 0"
    return how_it_ended(code)


def grade_asserts(zygote: Zygote, job: Job, until: float) -> Cases:
    """The tests run in a tester; what they call is asked of the solution, through here."""
    solution = Solution(zygote, job, until)
    tester = zygote.fork("tester", job.limits)
    try:
        deadline = solution.deadline()
        tests = {"setup": job.setup, "tests": list(job.tests), "entry": job.entry}
        begin(tester, tests, deadline)
        for number, _ in enumerate(job.tests, 1):
            verdict = _graded_test(tester, solution, job, deadline)
            if not solution.asked and (verdict[1] or number == len(job.tests)):
                raise BrokenTests(f"{BROKEN_TESTS}: {verdict[1] or 'none calls the solution'}")
            yield verdict
            if job.fresh:
                solution.end()
            deadline = solution.deadline()
    except Fault as error:
        verdict = ending(tester, error, job)
        if not solution.asked:
            raise BrokenTests(f"{BROKEN_TESTS}: {': '.join(verdict)}") from None
        yield verdict
    finally:
        solution.end()
        tester.end()


def _graded_test(tester: Child, solution: Solution, job: Job, deadline: float) -> Verdict:
    """Relays the test's calls until its result; what ended the solution is the test's outcome.

    A test whose source evaluates a reply can be made to send anything, so its frames are checked
    like the solution's, and "broken" is believed until the solution is asked something.
    """
    cause: Verdict | None = None
    while True:
        match tester.receive(deadline, FRAME):
            case ["result", int(), bool(passed), str(reason)]:
                if cause is not None:
                    return cause
                return ("passed", "") if passed else ("failed", reason[:_REASON])
            case ["broken", str(why)]:
                if solution.asked:
                    return cause or ("failed", why[:_REASON])
                raise BrokenTests(f"{BROKEN_TESTS}: {why[:_REASON]}")
            case ["call", str(name), list(arguments), dict(keywords)]:
                try:
                    reply = solution.call(name, arguments, keywords, deadline, mutated=True)
                except Ended as ended:
                    cause = ended.verdict
                    if cause[0] == "timeout":
                        return cause
                    reply = ["gone", cause[1]]
            case _:
                raise Garbled
        if reply[0] in ("memory", "not_data"):  # not an exception that a test may wait for
            cause = failure(reply)
        tester.send(reply, deadline)


def reported_error(rest: list[Any]) -> str:
    """The exception in a checked reply, cut to one short line."""
    if isinstance(rest[0], str):
        return rest[0][:_REASON]
    name, message = (each[:_REASON] for each in rest[0][:2])
    return f"{name}: {message}" if message else name


def _short(data: Any) -> str:
    try:
        text = repr(decode(data))
    except ValueError:
        text = "a value that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."
