"""The `code` verifier: a program judged by tests, in the sandbox.

What runs it and what that protects against: `groupwise.sandbox` and docs/security.md. Which part of
a completion is the program: `extraction.py`; how a row's tests are found: `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from groupwise.sandbox import (
    BROKEN_TESTS,
    CodeResult,
    Job,
    Limits,
    TierChoice,
    shared_sandbox,
)
from groupwise.types import Outcome, Prompt, Score
from groupwise.verifiers.code.extraction import defines, python_source
from groupwise.verifiers.code.lookups import is_lookup
from groupwise.verifiers.code.rows import Layout, Task, read_task, surroundings
from groupwise.verifiers.core.contract import Case, SettingsVerifier, VerifierLogs
from groupwise.verifiers.core.scores import TAG, bad_answer, no_answer
from groupwise.waiting.threads import work_through

COPIED = "code/literal_inputs"
LOOKUP = "it looks the tests' inputs up"

_OWN_FAULT: dict[str, Outcome] = {
    "failed": "incorrect",
    "timeout": "timeout",
    "out_of_memory": "out_of_memory",
    "crash": "crash",
    "limit": "limit",
}


class Code(SettingsVerifier):
    """Python that passes its row's tests: HumanEval, MBPP, APPS, or a column `tests`.

    A column `tests` holds assert sources, or pairs (input, output) for a program, or pairs
    (arguments, expected) for the function in the column `entry`. 1 where all cases pass; with
    `credit = "fraction"` the share that passes.
    """

    verifier_name: ClassVar[str] = "code"

    layout: Layout = Field(
        default="auto", description="How the row's columns are read; auto goes by their names."
    )
    tests_column: str = Field(
        default="tests",
        min_length=1,
        description="The column with the tests in the plain layout. Name another one for held-out "
        "tests that training never sees.",
    )
    credit: Literal["all", "fraction"] = Field(
        default="all", description="all: 1 or 0. fraction: the share of cases that pass."
    )
    tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Largest difference from an expected number that is equal, relative to it; "
        "numbers within 1e-9 of each other are equal too.",
    )
    literal_inputs: Literal["count", "reject"] = Field(
        default="count",
        description="What becomes of a submission that passes by looking the tests' inputs up: "
        f"counted in the metric {COPIED}, or value 0 as well.",
    )
    fresh: bool = Field(
        default=False, description="Every case in a process of its own: no state is shared."
    )
    time_limit: float = Field(
        default=5.0,
        gt=0,
        description="Seconds for one case. A run that overruns is tried again; twice is `timeout`.",
    )
    total_time_limit: float = Field(default=20.0, gt=0, description="Seconds for all cases.")
    memory_megabytes: int = Field(
        default=512, ge=16, description="Memory above the interpreter's own."
    )
    packages: tuple[str, ...] = Field(
        default=(), description='Installed packages that may be imported, as "numpy".'
    )
    tier: TierChoice = Field(
        default="auto",
        description='How strongly the code is shut in: auto takes "A" (bubblewrap), else "B".',
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    _copied: list[bool] = PrivateAttr(default_factory=list)

    @property
    def needs_answer(self) -> bool:
        return False

    def gold_completion(self, prompt: Prompt) -> str | None:
        """The gold answer as a completion, if it is a program."""
        answer = prompt.answer
        if not isinstance(answer, str) or not answer.strip():
            return None
        return answer if "```" in answer else f"```python\n{answer}\n```"

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """A row without tests that can be read and run; a gold program that does not pass."""
        sandbox = shared_sandbox(self.tier, self.packages)  # what cannot run is refused now
        reasons = super().check_answers(prompts)
        untried: dict[int, Job] = {}
        for row, prompt in enumerate(prompts):
            prepared = self._prepared(Case(prompt, "pass"))
            if isinstance(prepared, Score):
                reasons[row] = prepared.reason
            elif self.gold_completion(prompt) is None:
                untried[row] = prepared[0]
                if prompt.answer is not None and prompt.answer != "":
                    reasons[row] = f"answer {str(prompt.answer)[:50]!r}: give one program as text"
        jobs = {row: job for row, job in untried.items() if job.kind == "asserts"}
        for row, result in zip(jobs, sandbox.grade_all(list(jobs.values()))):
            if result.reason.startswith(BROKEN_TESTS):
                reasons[row] = result.reason
        self._copied.clear()
        return reasons

    @property
    def judges_singly(self) -> bool:
        return True

    def score(self, cases: Sequence[Case]) -> list[Any]:
        """As many at a time as the sandbox has processes; `SandboxUnavailable` if no tier works."""
        prepared = [self._prepared(case) for case in cases]
        scores: list[Any] = list(prepared)
        rows = [row for row, each in enumerate(prepared) if not isinstance(each, Score)]
        if not rows:
            return scores
        sandbox = shared_sandbox(self.tier, self.packages)
        graded = [each for each in prepared if not isinstance(each, Score)]
        results = sandbox.grade_all([job for job, _ in graded], tries=2)
        for row, result in zip(rows, results):
            scores[row] = self._score(result)
        earning = [place for place, row in enumerate(rows) if scores[row].value]
        lookups = [False] * len(rows)

        def look(number: int) -> bool:
            place = earning[number]
            (job, task), result = graded[place], results[place]
            outcomes = ["passed"] * result.total if result.passed_all else result.cases
            lookups[place] = is_lookup(sandbox, job.source, task, outcomes)
            return False

        work_through(len(earning), look, num_threads=sandbox.size, name="groupwise-lookups")
        self._copied += lookups
        if self.literal_inputs == "reject":
            for row, found in zip(rows, lookups):
                scores[row] = Score(0.0, "incorrect", LOOKUP) if found else scores[row]
        return scores

    def _prepared(self, case: Case) -> tuple[Job, Task] | Score:
        try:
            task = read_task(case.prompt, self.layout, self.tests_column)
        except ValueError as error:
            return bad_answer(str(error)[:300])
        source = python_source(case.whole, task.entry, self.reasoning_tag)
        if source is None:
            return no_answer("no program after the reasoning")
        limits = Limits(
            time=self.time_limit,
            total_time=self.total_time_limit,
            memory=self.memory_megabytes << 20,
        )
        try:
            job = Job(
                _completed(source, task),
                task.tests,
                task.kind,
                task.entry,
                task.setup,
                limits,
                self.tolerance,
                task.alike,
                self.fresh,
                stop_early=self.credit == "all",
            )
        except ValueError as error:
            return bad_answer(str(error)[:300])
        return job, task

    def _score(self, result: CodeResult) -> Score:
        reason = result.reason[:300]
        if reason.startswith(BROKEN_TESTS):
            return bad_answer(reason)
        if result.outcome == "infrastructure_error":
            return Score(None, "infrastructure_error", reason)
        if result.passed_all:
            return Score(1.0, "correct", reason)
        if self.credit == "fraction" and result.passed:
            share = result.passed / result.total
            return Score(share, "partial", f"{result.passed} of {result.total}; {reason}")
        return Score(0.0, _OWN_FAULT[result.outcome], reason)

    def take_logs(self) -> VerifierLogs:
        """The share of submissions that pass by looking the tests' inputs up."""
        copied = self._copied[:]
        self._copied.clear()
        metrics = {COPIED: sum(copied) / len(copied)} if copied else {}
        return VerifierLogs(metrics=metrics)


def _completed(source: str, task: Task) -> str:
    """The program behind the prompt's start, which it continues or whose rest it uses.

    One that defines the function itself gets what stands around it there: imports and helpers.
    """
    if not task.prefix or not task.entry:
        return source
    if not defines(source, task.entry):
        return task.prefix + ("" if task.prefix.endswith("\n") else "\n") + source
    if "__future__" in source:  # nothing may stand before it
        return source
    return f"{surroundings(task.prefix, task.entry)}\n{source}"
