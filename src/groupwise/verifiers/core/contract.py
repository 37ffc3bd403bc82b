"""What a verifier is, and the one place that holds it to its contract.

A verifier turns cases (a prompt and what was written) into scores, a batch at a time, in order.
`score_cases` is how everything else calls one: it checks length, type and finiteness, names the
verifier and the row when something raises, and applies the opt-in `skip` policy. Left out: what any
verifier looks for, and how several are combined (`composition.py`).
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from numbers import Real
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from groupwise.errors import VerifierError
from groupwise.texts import whole_text
from groupwise.types import FinishReason, Message, Prompt, Score, StepReward
from groupwise.waiting.deadlines import DeadlinePassed, gather, is_theirs, within
from groupwise.waiting.worker import ToldError

OnError = Literal["stop", "skip"]

LARGEST_VALUE = (2 - 2**-23) * 2.0**127
"""The largest number of float32."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a verifier reads: the prompt (with its answer and columns) and what the policy wrote.

    `text` is the policy's own text alone; `turns` are the messages after the prompt where there
    were several (environment and tool messages included), for verifiers that read them. `result`
    is the environment's own verdict, from plays that give one; the verifier `play` passes it on.
    `opened` is a tag that stands at the prompt's end and belongs to what was written (a chat
    template that begins the reasoning): `whole` is the text behind it.

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

    @property
    def whole(self) -> str:
        """The text with the tag that the prompt opened for it, where reasoning ends first."""
        return self.opened + self.text


@dataclass(slots=True)
class VerifierLogs:
    """What reward functions logged on the side: table columns by name, and scalars by name.

    A column's values stand under the case that each is of, as (prompt id, text): what was scored
    and what is recorded need not be the same rows in the same order.
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
    """Text to score. Subclasses give `name` and `score`; the rest has a default.

    Call a verifier through `score_cases`, which checks what comes back.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages and metrics call it."""

    @abstractmethod
    def score(self, cases: Sequence[Case]) -> Sequence[Any]:
        """One result a case, in order: a `Score`, a number, a bool, or None (not applicable).

        May also return an awaitable of such a list.
        """

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it was set up with; JSON-able."""
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
    def judges_singly(self) -> bool:
        """Whether a case's score depends on that case alone, so that cases can come one by one."""
        return False

    @property
    def waits(self) -> bool:
        """Whether it mostly waits for something outside this process, safely from any thread.

        In a composition such a verifier runs beside the others.
        """
        return False

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Per prompt, why this verifier cannot accept its gold answer; None where it can."""
        return [None] * len(prompts)

    def check_answer(self, prompt: Prompt) -> str | None:
        """`check_answers` of one prompt."""
        return self.check_answers([prompt])[0]

    def gold_completion(self, prompt: Prompt) -> str | None:
        """A completion that must be accepted, made from the gold answer; None where unknown."""
        return None

    def signature(self) -> str:
        """Name and arguments as canonical JSON: what the record hashes."""
        return json.dumps([self.name, dict(self.arguments)], sort_keys=True, default=str)

    def begin_step(self, step: int) -> None:
        """Told once a step, before scoring; for functions that read the step."""
        return

    def take_logs(self) -> VerifierLogs:
        """What was logged on the side since the last call; empties it."""
        return VerifierLogs()

    def close(self) -> None:
        """Ends what it started (worker processes)."""
        return


class RowFailure(Exception):  # noqa: N818 (it carries an error, it is not one for users)
    """Inside this room: the verifier raised `error` on row `row` of the batch."""

    def __init__(self, row: int, error: BaseException) -> None:
        super().__init__(f"row {row}: {error!r}")
        self.row = row
        self.error = error


class CaseVerifier(Verifier):
    """A verifier that judges one case at a time; `score_case` may be async.

    Async cases of a batch run together, and their order is kept.
    """

    @abstractmethod
    def score_case(self, case: Case) -> Any:
        """A `Score`, a number, a bool, None (not applicable), or an awaitable of one."""

    @property
    def judges_singly(self) -> bool:
        return type(self).score is CaseVerifier.score  # one that scores batches says so itself

    def score(self, cases: Sequence[Case]) -> list[Any]:
        results: list[Any] = []
        waiting: dict[int, Awaitable[Any]] = {}
        for row, case in enumerate(cases):
            try:
                result = self.score_case(case)
            except BaseException as error:
                if not is_theirs(error):
                    raise
                for awaitable in waiting.values():
                    getattr(awaitable, "close", lambda: None)()
                raise RowFailure(row, error) from error
            if isawaitable(result):
                waiting[row] = result
            results.append(result)
        for row, result in zip(waiting, gather(list(waiting.values()))):
            if isinstance(result, BaseException):
                raise RowFailure(row, result) from result
            results[row] = result
        return results

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        completions = [self.gold_completion(prompt) for prompt in prompts]
        rows = [row for row, completion in enumerate(completions) if completion is not None]
        cases = [Case(prompts[row], completions[row] or "") for row in rows]
        reasons: list[str | None] = [None] * len(prompts)
        for row, case, score in zip(rows, cases, score_cases(self, cases)):
            if score.outcome != "correct":
                reasons[row] = f"{score.reason or score.outcome} (on {_shorten(case.text)!r})"
        return reasons


class SettingsVerifier(BaseModel, CaseVerifier):
    """A built-in verifier: its arguments are its validated fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    verifier_name: ClassVar[str]

    @property
    def name(self) -> str:
        return self.verifier_name

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json")

    @property
    def needs_answer(self) -> bool:
        return True


def score_cases(
    verifier: Verifier,
    cases: Sequence[Case],
    on_error: OnError = "stop",
    *,
    deadline: float = 0.0,
) -> list[Score]:
    """Scores of a batch, in order, with the contract enforced.

    `on_error = "stop"`: an exception becomes a `VerifierError` naming verifier, row and original
    error. `"skip"`: the failing rows become `infrastructure_error` (no value, excluded, counted);
    where every row of the batch fails it stops all the same, so give it a whole step's cases.
    A wrong length, type or a non-finite number always raises `VerifierError`, and so does a batch
    that has no scores after `deadline` seconds (0: no deadline).
    """
    if not cases:
        return []
    try:
        result = within(deadline, lambda: _results(verifier, cases))
    except VerifierError:
        raise
    except DeadlinePassed as error:
        raise _overran(verifier, cases, deadline) from error
    except RowFailure as failure:
        if on_error == "stop":
            raise _stopped(verifier, cases, failure.row, failure.error) from failure.error
    except BaseException as error:
        if not is_theirs(error):
            raise
        if on_error == "stop":
            row = _failing_row(verifier, cases, deadline)
            raise _stopped(verifier, cases, row, error) from error
    else:
        return _checked(verifier, cases, result)
    return _score_each(verifier, cases, deadline)


def _results(verifier: Verifier, cases: Sequence[Case]) -> Any:
    """What the verifier gives for the batch, awaited where it has to be."""
    result = verifier.score(cases)
    if isawaitable(result):
        (result,) = gather([result])
        if isinstance(result, BaseException):
            raise result
    return result


def _score_each(verifier: Verifier, cases: Sequence[Case], deadline: float) -> list[Score]:
    """One row at a time after a batch failed: what fails alone is excluded and says why."""
    scores: list[Score] = []
    last: BaseException | None = None
    for case in cases:
        error = _error_of(verifier, case, deadline)
        if isinstance(error, Score):
            scores.append(error)
            continue
        last = error
        scores.append(
            Score(None, "infrastructure_error", f"{verifier.name} raised {describe_error(error)}")
        )
    if last is not None and all(score.value is None for score in scores):
        raise VerifierError(
            f"verifier {verifier.name!r} failed on all {len(cases)} rows of the batch, which stops "
            f"the run under any policy; the last error was {describe_error(last)}"
        ) from last
    return scores


def _error_of(verifier: Verifier, case: Case, deadline: float) -> Score | BaseException:
    try:
        (score,) = score_cases(verifier, [case], deadline=deadline)
    except VerifierError as error:
        if isinstance(error.__cause__, DeadlinePassed):
            raise
        return error.__cause__ or error
    return score


def _failing_row(verifier: Verifier, cases: Sequence[Case], deadline: float) -> int | None:
    """Which row makes a batched function raise, found by trying each alone; None if none does.

    The search as a whole has the batch's deadline.
    """
    if len(cases) == 1:
        return 0

    def search() -> int | None:
        for row, case in enumerate(cases):
            try:
                _results(verifier, [case])
            except BaseException as error:
                if not is_theirs(error):
                    raise
                return row
        return None

    try:
        return within(deadline, search)
    except DeadlinePassed:
        return None


def _stopped(
    verifier: Verifier, cases: Sequence[Case], row: int | None, error: BaseException
) -> VerifierError:
    where = f"a batch of {len(cases)} rows" if row is None else f"row {row} of {len(cases)}"
    if row is not None:
        where += f" (prompt {cases[row].prompt.id!r}, completion {_shorten(cases[row].text)!r})"
    return VerifierError(f"verifier {verifier.name!r} raised on {where}: {describe_error(error)}")


def _overran(verifier: Verifier, cases: Sequence[Case], deadline: float) -> VerifierError:
    return VerifierError(
        f"verifier {verifier.name!r} gave no scores for a batch of {len(cases)} rows within its "
        f"deadline of {deadline:g} s (the first is prompt {cases[0].prompt.id!r}, completion "
        f"{_shorten(cases[0].text)!r}); raise `deadline` where it is only slow, or set "
        "`time_limit`: then it runs in worker processes, and what overruns is left out and counted"
    )


def _checked(verifier: Verifier, cases: Sequence[Case], result: Any) -> list[Score]:
    if hasattr(result, "tolist") and not isinstance(result, (list, tuple)):
        result = result.tolist()
    if not isinstance(result, (list, tuple)):
        raise VerifierError(
            f"verifier {verifier.name!r}: expected a list of {len(cases)} numbers or None, one a "
            f"completion; got {type(result).__name__} ({_shorten(repr(result))})"
        )
    if len(result) != len(cases):
        raise VerifierError(
            f"verifier {verifier.name!r}: expected {len(cases)} scores, one a completion; "
            f"got {len(result)}"
        )
    return [as_score(verifier.name, row, value) for row, value in enumerate(result)]


def as_score(name: str, row: int, value: Any) -> Score:
    """A verifier's own return value as a `Score`; `VerifierError` where it is not a number.

    Numbers: 1 and above is `correct`, 0 and below `incorrect`, between `partial`. None is
    `not_applicable`. numpy and torch scalars count as numbers.
    """
    if isinstance(value, Score):
        for number in (value.value, *(step.value for step in value.steps or ())):
            _refuse_too_large(name, row, number)
        return _recordable(name, row, value)
    if value is None:
        return Score(None, "not_applicable", f"{name} does not apply")
    if not isinstance(value, (bool, int, float)) and getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise VerifierError(
            f"verifier {name!r}, row {row}: expected a number, a bool, a Score or None; "
            f"got {type(value).__name__} ({_shorten(repr(value))})"
        )
    try:
        number = float(value)
    except OverflowError:  # a whole number above the largest float
        number = math.inf
    if not math.isfinite(number):
        raise VerifierError(
            f"verifier {name!r}, row {row}: expected a finite number, got {number}; "
            "return None where it does not apply"
        )
    _refuse_too_large(name, row, number)
    if number >= 1:
        return Score(number, "correct", f"{name} gave {number:g}")
    return Score(number, "incorrect" if number <= 0 else "partial", f"{name} gave {number:g}")


def _recordable(name: str, row: int, score: Score) -> Score:
    """The score in plain floats, its reason and its parts' names texts of whole characters.

    Raises VerifierError for a part that is no number.
    """
    given: Mapping[str, Any] = score.parts
    for part, value in given.items():
        if not (value is None or isinstance(value, Real)):
            raise VerifierError(
                f"verifier {name!r}, row {row}: the score's parts[{part!r}] is {value!r:.80}; "
                "give a number, or None"
            )
    reason: Any = score.reason
    return Score(
        _plain(score.value),
        score.outcome,
        whole_text("" if reason is None else str(reason)),
        {whole_text(str(part)): _plain(value) for part, value in score.parts.items()},
        None
        if score.steps is None
        else tuple(StepReward(float(step.value), step.end) for step in score.steps),
    )


def _plain(number: float | None) -> float | None:
    return None if number is None else float(number)


def _refuse_too_large(name: str, row: int, number: float | None) -> None:
    if number is not None and abs(number) > LARGEST_VALUE:
        raise VerifierError(
            f"verifier {name!r}, row {row}: {number:g} is too large; rewards are learned from in "
            f"float32, which ends at {LARGEST_VALUE:g}"
        )


def describe_error(error: BaseException) -> str:
    """The error's type and message in one line."""
    words = whole_text(str(error))
    if isinstance(error, ToldError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
