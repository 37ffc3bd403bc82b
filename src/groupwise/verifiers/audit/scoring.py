"""Scoring for an audit: every verdict timed, every outcome counted, no exception lost.

An exception is a finding here, not the end: the audit asks what a verifier does with texts that
nobody expected, so it is caught, kept with its text, and the row is left unscored. A verifier that
hangs, or a budget that is spent, ends the asking: what is left is `UNASKED`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.errors import VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import Case, Verifier, describe_error, score_cases

SINGLES = 1000
"""So many verdicts are asked for one at a time, so that each has its own time."""
CONCURRENT_SINGLES = 8
"""The same for a verifier whose cases wait for something outside and run together."""

LIMIT = 60.0
"""Seconds within which a call of the verifier must have ended, where nothing else is said."""
MAX_TIMEOUTS = 3
"""After so many texts in a row without a verdict in time, nothing further is asked."""
UNASKED = Score(None, "not_applicable", "not asked: the audit had stopped")
"""In the place of a verdict after the end of the asking; in no count."""

Encode = Callable[[str], Sequence[int]]


def asks_a_model(verifier: Verifier) -> bool:
    """Whether each verdict waits for a model (`concurrent`), in a composition for any part's."""
    parts = getattr(verifier, "components", None) or ()
    return bool(getattr(verifier, "concurrent", False)) or any(
        asks_a_model(part.verifier) for part in parts
    )


@dataclass(frozen=True, slots=True)
class Raised:
    """A text on which the verifier raised, and what."""

    text: str
    error: str


class Scorer:
    """One verifier under audit. `encode` gives the ids that a text would have had.

    `budget` is in seconds, looked at before every verdict; `limit` is in seconds, for one call of
    the verifier, after which its texts count as timeouts. `stopped` says why nothing further is
    asked, where it is not the budget.
    """

    def __init__(
        self,
        verifier: Verifier,
        encode: Encode | None = None,
        budget: float | None = None,
        limit: float = LIMIT,
    ) -> None:
        self.verifier = verifier
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.raised: list[Raised] = []
        self.started = time.monotonic()
        self.budget = budget
        self.limit = limit
        self.stopped = ""
        self._timeouts = 0
        self._encode = encode or (lambda text: tuple(text.encode()))
        self._singles = CONCURRENT_SINGLES if asks_a_model(verifier) else SINGLES

    @property
    def spent(self) -> float:
        """Seconds since the audit began."""
        return time.monotonic() - self.started

    @property
    def ended(self) -> bool:
        """Whether nothing further is asked."""
        return bool(self.stopped) or (self.budget is not None and self.spent > self.budget)

    def check_batch(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> None:
        """Asks for several verdicts in one call; stops here where that alone raises.

        One text at a time hides a function that returns a list of the wrong length.
        """
        try:
            scores = self._ask(self._cases(prompts, texts))
        except VerifierError as error:
            if error.__cause__ is not None:  # its own error: found again text by text
                return
            self._raise(" | ".join(texts), error)
            self.outcomes["infrastructure_error"] += 1
            self.stopped = "what the verifier returns breaks its contract: stopped"
        else:
            self._count(scores)
        self.verifier.take_logs()

    def score(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Score]:
        """One score a text, in order."""
        cases = self._cases(prompts, texts)
        alone = max(0, min(len(cases), self._singles - len(self.seconds)))
        scores = [self._timed(case) for case in cases[:alone]]
        if cases[alone:]:
            scores += self._together(cases[alone:])
        self.verifier.take_logs()
        return scores

    def _cases(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Case]:
        return [
            Case(prompt, text, tuple(self._encode(text)))
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def _count(self, scores: Sequence[Score]) -> None:
        """Counts outcomes, and ends the asking after too many timeouts in a row."""
        for score in scores:
            self.outcomes[score.outcome] += 1
            self._timeouts = self._timeouts + 1 if score.outcome == "verifier_timeout" else 0
            if self._timeouts >= MAX_TIMEOUTS and not self.stopped:
                self.stopped = (
                    f"{self._timeouts} texts in a row got no verdict in time ({score.reason}), so "
                    "the verifier hangs or its time limit is too short: stopped"
                )

    def _timed(self, case: Case) -> Score:
        if self.ended:
            return UNASKED
        began = time.perf_counter()
        score = self._one(case)
        self.seconds.append(time.perf_counter() - began)
        self._count([score])
        return score

    def _ask(self, cases: Sequence[Case]) -> list[Score]:
        """The verifier's scores, with `limit` seconds a case."""
        return score_cases(self.verifier, cases, deadline=self.limit * len(cases))

    def _one(self, case: Case) -> Score:
        try:
            (score,) = self._ask([case])
        except VerifierError as error:
            cause = self._raise(case.text, error)
            return Score(None, "infrastructure_error", f"raised {cause}")
        return score

    def _raise(self, text: str, error: VerifierError) -> str:
        cause = describe_error(error.__cause__ or error)
        self.raised.append(Raised(text, cause))
        return cause

    def _together(self, cases: Sequence[Case]) -> list[Score]:
        if self.ended:
            return [UNASKED] * len(cases)
        try:
            scores = self._ask(cases)
        except VerifierError:
            return [self._timed(case) for case in cases]
        self._count(scores)
        return scores
