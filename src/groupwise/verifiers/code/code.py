"""The `code` verifier: a program judged by tests, in the sandbox.

What runs it and what that protects against: `groupwise.sandbox` and docs/security.md. Which part of
a completion is the program: `extraction.py`; how a row's tests are found: `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

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
from groupwise.verifiers.code.rows import Layout, Task, read_task, surroundings
from groupwise.verifiers.core.contract import BatchVerifier, Case
from groupwise.verifiers.core.scores import TAG, BadAnswer, bad_answer, no_answer

_OWN_FAULT: dict[str, Outcome] = {
    "failed": "incorrect",
    "timeout": "timeout",
    "out_of_memory": "out_of_memory",
    "crash": "crash",
    "limit": "limit",
}


class Code(BatchVerifier):
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
            try:
                job = self.prepare(Case(prompt, "pass"))
            except BadAnswer as error:
                reasons[row] = str(error)
                continue
            if self.gold_completion(prompt) is None:
                if isinstance(job, Job) and job.kind == "asserts":
                    untried[row] = job
                if prompt.answer is not None and prompt.answer != "":
                    reasons[row] = f"answer {str(prompt.answer)[:50]!r}: give one program as text"
        for row, result in zip(untried, sandbox.grade_all(list(untried.values()))):
            if result.reason.startswith(BROKEN_TESTS):
                reasons[row] = result.reason
        return reasons

    def prepare(self, case: Case) -> Job | Score:
        try:
            task = read_task(case.prompt, self.layout, self.tests_column)
            source = python_source(case.whole, task.entry, self.reasoning_tag)
            if source is None:
                return no_answer("no program after the reasoning")
            return Job(
                _completed(source, task),
                task.tests,
                task.kind,
                task.entry,
                task.setup,
                Limits(self.time_limit, self.total_time_limit, self.memory_megabytes << 20),
                self.tolerance,
                task.alike,
                self.fresh,
                stop_early=self.credit == "all",
            )
        except ValueError as error:
            raise BadAnswer(str(error)[:300]) from error

    def run(self, jobs: Sequence[Any]) -> list[Score]:
        """As many at a time as the sandbox has processes; `SandboxUnavailable` if no tier works."""
        results = shared_sandbox(self.tier, self.packages).grade_all(jobs, tries=2)
        return list(map(self._score, results))

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
