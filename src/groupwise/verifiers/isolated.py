"""A user's verifier under a time limit, in worker processes that can be killed.

Each completion is scored by itself, so a function that compares completions of one batch cannot be
limited this way. One that overruns is `verifier_timeout`: not scored, and counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.types import Prompt, Score
from groupwise.verifiers.contract import Case, RowFailure, Verifier, VerifierLogs, score_cases
from groupwise.verifiers.workers import WorkerPool

WORKER = "groupwise.verifiers.isolated:make"


class WorkerError(Exception):
    """What the verifier raised in its worker, as text."""


class Isolated(Verifier):
    """`verifier`, loaded again by name in each worker, with `time_limit` seconds a completion."""

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        verifier: Verifier,
        time_limit: float,
        workers: int | None = None,
    ) -> None:
        self.verifier = verifier
        self.time_limit = time_limit
        self._pool = WorkerPool(WORKER, (name, dict(arguments)), size=workers)
        self._logs = VerifierLogs()
        self._step = 0

    @property
    def name(self) -> str:
        return self.verifier.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {**self.verifier.arguments, "time_limit": self.time_limit}

    @property
    def required_columns(self) -> frozenset[str]:
        return self.verifier.required_columns

    @property
    def needs_answer(self) -> bool:
        return self.verifier.needs_answer

    @property
    def gives_steps(self) -> bool:
        return self.verifier.gives_steps

    def gold_completion(self, prompt: Prompt) -> str | None:
        return self.verifier.gold_completion(prompt)

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return self.verifier.check_answers(prompts)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        jobs = [(self._step, case) for case in cases]
        scores: list[Score] = []
        for row, reply in enumerate(self._pool.map(jobs, self.time_limit)):
            if reply.kind == "timeout":
                reason = f"no verdict after {self.time_limit:g} s"
                scores.append(Score(None, "verifier_timeout", reason))
            elif reply.kind == "ok":
                score, logs = reply.value
                scores.append(score)
                for column, values in logs.columns.items():
                    self._logs.columns.setdefault(column, []).extend(values)
                self._logs.metrics.update(logs.metrics)
            else:
                raise RowFailure(row, WorkerError(str(reply.value or reply.kind)))
        return scores

    def begin_step(self, step: int) -> None:
        self._step = step

    def take_logs(self) -> VerifierLogs:
        logs, self._logs = self._logs, VerifierLogs()
        return logs

    def close(self) -> None:
        self._pool.close()


def make(
    name: str, arguments: Mapping[str, Any]
) -> Callable[[tuple[int, Case]], tuple[Score, VerifierLogs]]:
    """In the worker: the verifier by name, and a function that scores one case with it."""
    registry = importlib.import_module("groupwise.verifiers.registry")
    verifier: Verifier = registry.load_verifier(name, **arguments)

    def score(job: tuple[int, Case]) -> tuple[Score, VerifierLogs]:
        step, case = job
        verifier.begin_step(step)
        (result,) = score_cases(verifier, [case])
        return result, verifier.take_logs()

    return score
