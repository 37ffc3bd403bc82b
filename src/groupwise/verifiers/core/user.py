"""Users' own code as verifiers: TRL reward functions, and any verifier in killable processes.

A reward function is `def f(prompts, completions, completion_ids, <columns>, trainer_state=None,
log_extra=None, log_metric=None, **kwargs) -> list[float | None]`, called by keyword, plain or
`async`. Prompts and completions are strings, or chats if the prompt is one. A function gets only
the arguments it names.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from groupwise.errors import RecipeError, VerifierError
from groupwise.imports import raised_at
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.composition import VerifierGroup
from groupwise.verifiers.core.contract import (
    Case,
    Verifier,
    VerifierLogs,
    describe_error,
    score_cases,
)
from groupwise.waiting.processes import Reply, WorkerPool
from groupwise.waiting.worker import RemoteError

PROVIDED = frozenset({"prompts", "completions", "completion_ids", "trainer_state", "log_extra",
                      "log_metric", "answer", "environments"})  # fmt: skip
MAX_TIMEOUTS = 8
"""After so many timeouts in a row the rest of a batch is not asked: a verifier that hangs on
everything costs a few limits, not one for every completion."""

logger = logging.getLogger("groupwise.verifiers")


def call_user(function: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """What a user's class or function returns; `where` names it in messages.

    Raises RecipeError if the arguments are not those it takes, or if it raises.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = None  # unknown for some functions written in C
    try:
        if signature is not None:
            signature.bind(**arguments)
    except TypeError as error:
        raise RecipeError(
            f"{where} cannot be called with {sorted(arguments)}: {error}; it takes {signature}"
        ) from error
    try:
        return function(**arguments)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RecipeError(f"{where} raised {describe_error(error)}{raised_at(error)}") from error


class RewardFunction(Verifier):
    """One reward function over a whole batch, in TRL's form.

    `arguments` are fixed keyword arguments from the recipe. Every column of the batch's prompts is
    passed as a list aligned with the completions; `answer` is the gold answer if no column has
    that name; a column that only some prompts have is None for the others.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        reference: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """`reference` is its `module:function`, for the record."""
        self.function = function
        self.reference = reference or f"{function.__module__}:{self.name}"
        self._arguments = dict(arguments or {})
        self._parameters = inspect.signature(function).parameters
        self._state = SimpleNamespace(global_step=0)
        self._logs = VerifierLogs()

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def arguments(self) -> Mapping[str, Any]:
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            source = repr(self.function)
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        return {"function": self.reference, "source_hash": digest, **self._arguments}

    @property
    def waits(self) -> bool:
        """An `async` function waits for something; it runs in its own event loop."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def required_columns(self) -> frozenset[str]:
        """Its parameters without a default that are neither provided nor set in the recipe."""
        needed = {
            name
            for name, each in self._parameters.items()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            and each.default is each.empty
        }
        return frozenset(needed - PROVIDED - self._arguments.keys())

    def score(self, cases: Sequence[Case]) -> Any:
        for row, case in enumerate(cases):
            for column in sorted(self.required_columns - case.prompt.columns.keys()):
                available = sorted({*case.prompt.columns, "answer"})
                raise VerifierError(
                    f"verifier {self.name!r} needs a column {column!r}, which row {row} (prompt "
                    f"{case.prompt.id!r}) does not have; it has {', '.join(available)}"
                )
        keywords = self._keywords(cases)
        if not any(each.kind is each.VAR_KEYWORD for each in self._parameters.values()):
            keywords = {name: each for name, each in keywords.items() if name in self._parameters}
        return self.function(**keywords)

    def _keywords(self, cases: Sequence[Case]) -> dict[str, Any]:
        columns = {name: None for case in cases for name in case.prompt.columns}
        return {
            "answer": [_own(case.prompt.answer) for case in cases],
            **{name: [_own(case.prompt.columns.get(name)) for case in cases] for name in columns},
            **self._arguments,
            "prompts": [_prompt(case.prompt) for case in cases],
            "completions": [_completion(case) for case in cases],
            "completion_ids": [list(case.completion_ids) for case in cases],
            "trainer_state": self._state,
            "log_extra": partial(self._log_extra, cases),
            "log_metric": self._log_metric,
        }

    def begin_step(self, step: int) -> None:
        self._state = SimpleNamespace(global_step=step)

    def _log_extra(self, cases: Sequence[Case], column: str, values: Sequence[Any]) -> None:
        given = list(values)
        if len(given) != len(cases):
            raise VerifierError(
                f"verifier {self.name!r} logged {len(given)} values in column {column!r} for "
                f"{len(cases)} completions; pass log_extra one value per completion"
            )
        keys = [(case.prompt.id, case.text) for case in cases]
        self._logs.columns.setdefault(column, {}).update(zip(keys, given))

    def _log_metric(self, name: str, value: float) -> None:
        self._logs.metrics[name] = float(value)

    def take_logs(self) -> VerifierLogs:
        logs, self._logs = self._logs, VerifierLogs()
        return logs


def _own(value: Any) -> Any:
    """A copy of what the function could change: it belongs to the whole run's data."""
    return copy.deepcopy(value) if isinstance(value, (list, dict, set)) else value


def _prompt(prompt: Prompt) -> Any:
    return prompt.text if prompt.text is not None else [dict(each) for each in prompt.messages]


def _completion(case: Case) -> Any:
    if case.prompt.text is not None:
        return case.text
    return [dict(each) for each in case.turns or ({"role": "assistant", "content": case.text},)]


Job = tuple[int, Sequence[Case]]
Judged = tuple[list[Score], VerifierLogs] | str


class Isolated(VerifierGroup):
    """`verifier`, loaded again by name in each worker, with `time_limit` seconds a call.

    A verifier that scores whole batches (a reward function) gets the batch in one call; if that
    call overruns, each completion is scored alone, so that the rest is scored. A completion that
    overruns alone is `verifier_timeout`: not scored, and counted.
    """

    def __init__(
        self, name: str, arguments: Mapping[str, Any], verifier: Verifier, time_limit: float
    ) -> None:
        self.verifier = verifier
        self.time_limit = time_limit
        self._pool = WorkerPool("groupwise.verifiers.core.user:make", (name, dict(arguments)))
        self._logs = VerifierLogs()
        self._step = 0

    @property
    def members(self) -> Sequence[Verifier]:
        return [self.verifier]

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {**self.verifier.arguments, "time_limit": self.time_limit}

    @property
    def waits(self) -> bool:
        return True

    def score(self, cases: Sequence[Case]) -> list[Any]:
        if len(cases) > 1 and type(self.verifier).score is not Verifier.score:
            (reply,) = self._pool.map([(self._step, cases)], self.time_limit)
            if reply.kind in ("ok", "error"):
                return self._read(reply)
        jobs: list[Job] = [(self._step, [case]) for case in cases]
        replies = self._pool.map(jobs, self.time_limit, max_timeouts=MAX_TIMEOUTS)
        if unasked := sum(reply.kind == "unasked" for reply in replies):
            logger.warning(
                f"verifier {self.name!r}: {MAX_TIMEOUTS} completions in a row had no verdict "
                f"within its time_limit of {self.time_limit:g} s; {unasked} others of the batch "
                "were not asked and count as timeouts too"
            )
        reasons = {
            "timeout": f"no verdict after {self.time_limit:g} s",
            "unasked": f"not asked: {MAX_TIMEOUTS} others in a row had no verdict in time",
        }
        scores: list[Any] = []
        for reply in replies:
            try:
                late = reasons.get(reply.kind)
                scores += [Score(None, "verifier_timeout", late)] if late else self._read(reply)
            except RemoteError as error:
                scores.append(error)
        return scores

    def _read(self, reply: Reply) -> list[Any]:
        """The scores of a call that ended; its logs are kept."""
        if reply.kind != "ok":
            raise RemoteError(str(reply.value or reply.kind))
        judged: Judged = reply.value
        if isinstance(judged, str):
            raise VerifierError(judged)
        self._logs.add(judged[1])
        return judged[0]

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
            if error.__cause__ is None:  # what it returned breaks the contract
                return str(error)
            raise RemoteError(describe_error(error.__cause__)) from None
        return scores, verifier.take_logs()

    return score
