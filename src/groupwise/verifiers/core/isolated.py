"""A user's verifier under a time limit, in worker processes that can be killed.

A verifier that scores whole batches (a reward function) gets the batch in one call; if that call
overruns, each completion is scored alone, so that the rest is scored. A completion that overruns
alone is `verifier_timeout`: not scored, and counted.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.errors import VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.composition import VerifierGroup
from groupwise.verifiers.core.contract import (
    Case,
    CaseVerifier,
    RowFailure,
    Verifier,
    VerifierLogs,
    describe_error,
    score_cases,
)
from groupwise.waiting.processes import Reply, WorkerPool
from groupwise.waiting.worker import RemoteError

WORKER = "groupwise.verifiers.core.isolated:make"

MAX_TIMEOUTS = 8
"""After so many timeouts in a row the rest of a batch is not asked: a verifier that hangs on
everything costs a few limits, not one for every completion."""

logger = logging.getLogger("groupwise.verifiers")

Job = tuple[int, Sequence[Case]]
Judged = tuple[list[Score], VerifierLogs] | str


class Isolated(VerifierGroup):
    """`verifier`, loaded again by name in each worker, with `time_limit` seconds a call."""

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
        self._reads_batches = type(verifier).score is not CaseVerifier.score

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
    def members(self) -> Sequence[Verifier]:
        return [self.verifier]

    @property
    def gives_steps(self) -> bool:
        return self.verifier.gives_steps

    @property
    def waits(self) -> bool:
        return True

    def gold_completion(self, prompt: Prompt) -> str | None:
        return self.verifier.gold_completion(prompt)

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return self.verifier.check_answers(prompts)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        if len(cases) > 1 and self._reads_batches:
            (reply,) = self._pool.map([(self._step, cases)], self.time_limit)
            if reply.kind in ("ok", "error"):
                return self._read(reply)
        jobs: list[Job] = [(self._step, [case]) for case in cases]
        replies = self._pool.map(jobs, self.time_limit, max_timeouts=MAX_TIMEOUTS)
        unasked = sum(reply.kind == "unasked" for reply in replies)
        if unasked:
            logger.warning(
                "verifier %r: %d completions in a row had no verdict within its time_limit of "
                "%g s; %d others of the batch were not asked and count as timeouts too",
                self.name,
                MAX_TIMEOUTS,
                self.time_limit,
                unasked,
            )
        reasons = {
            "timeout": f"no verdict after {self.time_limit:g} s",
            "unasked": f"not asked: {MAX_TIMEOUTS} others in a row had no verdict in time",
        }
        scores: list[Score] = []
        for row, reply in enumerate(replies):
            if reply.kind in reasons:
                scores.append(Score(None, "verifier_timeout", reasons[reply.kind]))
                continue
            try:
                scores += self._read(reply)
            except RemoteError as error:
                raise RowFailure(row, error) from error
        return scores

    def _read(self, reply: Reply) -> list[Score]:
        """The scores of a call that ended; its logs are kept."""
        if reply.kind != "ok":
            raise RemoteError(str(reply.value or reply.kind))
        judged: Judged = reply.value
        if isinstance(judged, str):
            raise VerifierError(judged)
        scores, logs = judged
        self._logs.add(logs)
        return scores

    def begin_step(self, step: int) -> None:
        self._step = step

    def take_logs(self) -> VerifierLogs:
        logs, self._logs = self._logs, VerifierLogs()
        return logs

    def close(self) -> None:
        self._pool.close()


def make(name: str, arguments: Mapping[str, Any]) -> Callable[[Job], Judged]:
    """In the worker: the verifier by name, and a function that scores a batch with it."""
    registry = importlib.import_module("groupwise.verifiers.core.registry")
    verifier: Verifier = registry.load_verifier(name, **arguments)

    def score(job: Job) -> Judged:
        step, cases = job
        verifier.begin_step(step)
        try:
            scores = score_cases(verifier, cases)
        except VerifierError as error:
            cause = error.__cause__
            if cause is None:  # what it returned breaks the contract
                return str(error)
            raise RemoteError(describe_error(cause)) from None
        return scores, verifier.take_logs()

    return score
