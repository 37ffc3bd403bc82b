"""What a verifier is, and the one function that calls it and holds it to its contract.

A verifier turns cases (a prompt and what was written) into scores, a batch at a time, in order.
`score_cases` is how everything else calls one: it checks length, type and finiteness, names the
verifier and the row when something raises, and applies the `skip` policy.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from groupwise.errors import RecipeError, VerifierError
from groupwise.texts import whole_text
from groupwise.types import FinishReason, Message, Prompt, Score
from groupwise.verifiers.core.scores import (
    BadAnswer,
    accepted_answers,
    as_score,
    bad_answer,
    best_of,
    shorten,
)
from groupwise.waiting.deadlines import DeadlinePassed, call_within, gather, is_user_error
from groupwise.waiting.worker import RemoteError

OnError = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class Case:
    """What a verifier reads: the prompt (with its answer and columns) and what the policy wrote.

    `text` is the policy's own text alone; `turns` are the messages after the prompt if there were
    several (environment and tool messages included). `result` is the environment's own verdict, if
    it gives one; the verifier `play` passes it on. `opened` is a tag at the prompt's end that
    belongs to the completion (a chat template that begins the reasoning): `whole` includes it.
    `turn_ends` are the character counts of `text` at which turns end, if it has several.

    >>> Case(Prompt("p", text="3+4=", answer="7"), "7").finish_reason
    'stop'
    >>> Case(Prompt("p", text="3+4=<think>", answer="7"), "it is 7", opened="<think>").whole
    '<think>it is 7'
    """

    prompt: Prompt
    text: str
    completion_ids: tuple[int, ...] = ()
    finish_reason: FinishReason = "stop"
    turns: tuple[Message, ...] | None = None
    result: Score | None = None
    opened: str = ""
    turn_ends: tuple[int, ...] = ()

    @property
    def whole(self) -> str:
        """The text behind the tag that the prompt opened for it."""
        return self.opened + self.text

    def column(self, name: str) -> Any:
        """A column of the prompt; `BadAnswer` if it is absent or None."""
        value = self.prompt.columns.get(name)
        if value is None:
            raise BadAnswer(f"the prompt has no column {name!r}")
        return value


@dataclass(slots=True)
class VerifierLogs:
    """What reward functions logged: table columns by name, and scalars by name.

    A column's values are stored by (prompt id, text): what was scored and what is recorded need
    not be the same rows in the same order.
    """

    columns: dict[str, dict[tuple[str, str], Any]] = field(
        default_factory=dict[str, dict[tuple[str, str], Any]]
    )
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, more: VerifierLogs) -> None:
        """Takes in `more`, whose values win."""
        for column, values in more.columns.items():
            self.columns.setdefault(column, {}).update(values)
        self.metrics.update(more.metrics)


class Verifier(ABC):
    """Text to score. Subclasses define `name` and `score_case`, or `score`; the rest has a default.

    Call a verifier through `score_cases`, which checks what it returns.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages and metrics call it."""

    def score_case(self, case: Case) -> Any:
        """A `Score`, a number, a bool, None (not applicable), or an awaitable of one.

        A `BadAnswer` that it raises leaves the row unscored.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither score_case nor score")

    def score(self, cases: Sequence[Case]) -> Any:
        """One result of `score_case` per case, in order, or an awaitable of such a list.

        By default each case alone, async ones together. In a failed row's place stands its error.
        """
        results: list[Any] = []
        for case in cases:
            try:
                results.append(self.score_case(case))
            except BaseException as error:
                if not is_user_error(error):
                    raise
                results.append(error)
        rows = [row for row, result in enumerate(results) if isawaitable(result)]
        for row, result in zip(rows, gather([results[row] for row in rows])):
            results[row] = result
        return [bad_answer(str(e)) if isinstance(e, BadAnswer) else e for e in results]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Its settings; JSON-able."""
        return {}

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns a prompt must have; checked when the data is loaded."""
        return frozenset()

    @property
    def needs_answer(self) -> bool:
        """Whether it compares with the prompt's gold answer."""
        return False

    @property
    def gives_steps(self) -> bool:
        """Whether every score of a completion carries `steps`, a reward for each of its steps."""
        return False

    @property
    def part_names(self) -> tuple[str, ...] | None:
        """The parts of every score; None where only scores tell."""
        return None

    @property
    def gives_verdicts(self) -> bool:
        """Whether its scores say what is right; else they are values alone (`no_verdict`)."""
        return True

    @property
    def judges_singly(self) -> bool:
        """Whether a case's score depends on that case alone, so that cases can come one by one."""
        return type(self).score is Verifier.score  # one that scores batches says so itself

    @property
    def waits(self) -> bool:
        """Whether it mostly waits for something outside this process and is thread-safe.

        A composition runs such verifiers at the same time as the others.
        """
        return iscoroutinefunction(self.score_case)

    @property
    def overlaps(self) -> bool:
        """Whether several calls at a time are safe, and faster than one after the other."""
        return self.waits

    def check_row(self, prompt: Prompt) -> None:
        """`BadAnswer` if the prompt's answer or columns cannot be used."""
        return

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Per prompt, why this verifier cannot accept its gold answer; None if it can.

        By default whether the row can be used, and its `gold_completion`, if any, is correct.
        """
        reasons: list[str | None] = [None] * len(prompts)
        cases: dict[int, Case] = {}
        for row, prompt in enumerate(prompts):
            try:
                self.check_row(prompt)
                completion = self.gold_completion(prompt)
            except BadAnswer as error:
                reasons[row] = str(error)
                continue
            if completion is not None:
                cases[row] = Case(prompt, completion)
        for row, score in zip(cases, score_cases(self, list(cases.values()))):
            if score.outcome != "correct":
                where = f"(on {shorten(cases[row].text)!r})"
                reasons[row] = f"{score.reason or score.outcome} {where}"
        return reasons

    def check_answer(self, prompt: Prompt) -> str | None:
        """`check_answers` of one prompt."""
        return self.check_answers([prompt])[0]

    def gold_completion(self, prompt: Prompt) -> str | None:
        """A completion that must be accepted, made from the gold answer; None if unknown."""
        return None

    def signature(self) -> str:
        """Name and arguments as canonical JSON: what the record hashes."""
        return json.dumps([self.name, dict(self.arguments)], sort_keys=True, default=str)

    def begin_step(self, step: int) -> None:
        """Called once per step, before scoring."""
        return

    def take_logs(self) -> VerifierLogs:
        """What was logged since the last call; empties it."""
        return VerifierLogs()

    def close(self) -> None:
        """Ends what it started (worker processes)."""
        return


class SettingsVerifier(BaseModel, Verifier):
    """A verifier whose arguments are its validated fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    verifier_name: ClassVar[str]

    @property
    def name(self) -> str:
        return self.verifier_name

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json")


class BatchVerifier(SettingsVerifier):
    """A verifier whose cases become jobs that are judged together, each by itself.

    Subclasses define `prepare` and `run`.
    """

    @abstractmethod
    def prepare(self, case: Case) -> Any:
        """The case's job, or its score where that is known; `BadAnswer` for an unusable row."""

    @abstractmethod
    def run(self, jobs: Sequence[Any]) -> Sequence[Score]:
        """A score for each job, in order."""

    @property
    def judges_singly(self) -> bool:
        return True

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return self.judged(cases, self.run)

    def judged(
        self, cases: Sequence[Case], run: Callable[[Sequence[Any]], Sequence[Score]]
    ) -> list[Score]:
        """The cases' scores, their jobs judged by `run`."""
        prepared: list[Any] = []
        for case in cases:
            try:
                prepared.append(self.prepare(case))
            except BadAnswer as error:
                prepared.append(bad_answer(str(error)))
        jobs = [each for each in prepared if not isinstance(each, Score)]
        rest = iter(run(jobs) if jobs else ())
        return [each if isinstance(each, Score) else next(rest) for each in prepared]


class AnswerVerifier(SettingsVerifier):
    """A verifier that compares with the gold answer; of several accepted answers, any is right.

    Subclasses define `compare` and `write`. `scores.accepted_answers` says what an answer may be.
    """

    @property
    def needs_answer(self) -> bool:
        return True

    @abstractmethod
    def compare(self, case: Case, gold: str) -> Score:
        """What the completion is worth if `gold` is the answer; `BadAnswer` for an unusable one."""

    @abstractmethod
    def write(self, gold: str) -> str:
        """A completion that states `gold` in the form that this verifier reads."""

    def score_case(self, case: Case) -> Score:
        return best_of(case.prompt.answer, lambda gold: self.compare(case, gold))

    def gold_completion(self, prompt: Prompt) -> str | None:
        """The first accepted answer that can be read; the first of all if none can."""
        first, *others = [self.write(gold) for gold in accepted_answers(prompt.answer)]
        for completion in [first, *others] if others else []:
            if self.score_case(Case(prompt, completion)).outcome == "correct":
                return completion
        return first


def check_verdicts(verifier: Verifier, reader: str) -> None:
    """Raises RecipeError where `reader` asks what is right and the verifier does not say."""
    if not verifier.gives_verdicts:
        raise RecipeError(
            f"{reader} asks which completions are right, and verifier {verifier.name!r} gives "
            "values without a verdict; set correct_from in its [[environment.verifiers]] to the "
            "value of a right answer"
        )


def score_cases(
    verifier: Verifier, cases: Sequence[Case], on_error: OnError = "stop", *, deadline: float = 0.0
) -> list[Score]:
    """Scores of a batch, in order, with the contract enforced.

    `on_error = "stop"`: an exception becomes a `VerifierError` naming verifier, row and original
    error. `"skip"`: the failing rows become `infrastructure_error` (no value, excluded, counted);
    if every row of the batch fails it stops all the same, so pass a whole step's cases. A wrong
    length or type and a number that is not finite always raise `VerifierError`.

    A batch without scores after `deadline` seconds (0: no deadline) is named in a warning. If it
    runs in a background thread (a verifier that `waits`; any verifier outside the main thread) it
    is abandoned and its cases are `verifier_timeout`; in the main thread it is waited for.
    """
    if not cases:
        return []
    try:
        name = f"verifier {verifier.name!r}, on a batch of {len(cases)}"
        call = partial(_results, verifier, cases)
        result = call_within(deadline, call, name=name, abandon=verifier.waits)
    except VerifierError:
        raise
    except DeadlinePassed as error:
        return [Score(None, "verifier_timeout", f"no verdict: {error}") for _ in cases]
    except BaseException as error:
        if not is_user_error(error):
            raise
        result = [error]
        if len(cases) > 1:
            result = _one_by_one(verifier, cases, on_error, deadline, error)
    if hasattr(result, "tolist") and not isinstance(result, (list, tuple)):
        result = result.tolist()
    wanted, got = f"{len(cases)} scores", ""
    if not isinstance(result, (list, tuple)):
        wanted = f"a list of {len(cases)} numbers or None"
        got = f"{type(result).__name__} ({shorten(repr(result))})"
    elif len(result) != len(cases):
        got = str(len(result))
    if got:
        raise VerifierError(
            f"verifier {verifier.name!r}: expected {wanted}, one a completion; got {got}"
        )
    scores: list[Score] = []
    failed: BaseException | None = None
    for row, value in enumerate(result):
        if not isinstance(value, BaseException):
            scores.append(as_score(verifier.name, row, value))
            continue
        if on_error == "stop":
            raise _stopped(verifier, cases, row, value) from value
        failed = value
        reason = f"{verifier.name} raised {describe_error(value)}"
        scores.append(Score(None, "infrastructure_error", reason))
    if failed is not None and all(score.value is None for score in scores):
        raise VerifierError(
            f"verifier {verifier.name!r} failed on all {len(cases)} rows of the batch, which stops "
            f"the run under any policy; the last error was {describe_error(failed)}"
        ) from failed
    return scores


def _results(verifier: Verifier, cases: Sequence[Case]) -> Any:
    """What the verifier returns for the batch, awaited if necessary."""
    result = verifier.score(cases)
    if isawaitable(result):
        (result,) = gather([result])
        if isinstance(result, BaseException):
            raise result
    return result


def _one_by_one(
    verifier: Verifier,
    cases: Sequence[Case],
    on_error: OnError,
    deadline: float,
    error: BaseException,
) -> list[Any]:
    """Each case's score alone after `error` in their batch, or the error that it raises.

    The search for the row that stops the run has the batch's deadline as a whole.
    """
    results: list[Any] = []
    began = time.monotonic()
    for row, case in enumerate(cases):
        try:
            results += score_cases(verifier, [case], deadline=deadline)
        except VerifierError as raised:
            results.append(raised.__cause__ or raised)
            if on_error == "stop":
                raise _stopped(verifier, cases, row, results[-1]) from results[-1]
        if on_error == "stop" and 0 < deadline < time.monotonic() - began:
            break
    if on_error == "stop":
        raise _stopped(verifier, cases, None, error) from error
    return results


def _stopped(
    verifier: Verifier, cases: Sequence[Case], row: int | None, error: BaseException
) -> VerifierError:
    where = f"a batch of {len(cases)} rows" if row is None else f"row {row} of {len(cases)}"
    if row is not None:
        where += f" (prompt {cases[row].prompt.id!r}, completion {shorten(cases[row].text)!r})"
    return VerifierError(f"verifier {verifier.name!r} raised on {where}: {describe_error(error)}")


def describe_error(error: BaseException) -> str:
    """The error's type and message in one line."""
    words = whole_text(str(error))
    if isinstance(error, RemoteError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
