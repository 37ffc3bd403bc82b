"""Scoring for an audit: every verdict timed, every outcome counted, no exception lost.

An exception is a finding here, not the end: the audit asks what a verifier does with texts that
nobody expected, so it is caught, kept with its text, and the row is left unscored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.errors import VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers.contract import Case, Verifier, describe_error, score_cases

SINGLES = 1000
"""So many verdicts are asked for one at a time, so that each has its own time."""
CONCURRENT_SINGLES = 8
"""The same for a verifier whose cases wait for something outside and run together."""

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Raised:
    """A text on which the verifier raised, and what."""

    text: str
    error: str


class Scorer:
    """One verifier under audit. `encode` gives the ids that a text would have had."""

    def __init__(self, verifier: Verifier, encode: Encode | None = None) -> None:
        self.verifier = verifier
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.raised: list[Raised] = []
        self.started = time.monotonic()
        self._encode = encode or (lambda text: tuple(text.encode()))
        together = getattr(verifier, "concurrent", False)
        self._singles = CONCURRENT_SINGLES if together else SINGLES

    @property
    def spent(self) -> float:
        """Seconds since the audit began."""
        return time.monotonic() - self.started

    def score(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Score]:
        """One score a text, in order."""
        cases = [
            Case(prompt, text, tuple(self._encode(text)))
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        alone = max(0, min(len(cases), self._singles - len(self.seconds)))
        scores = [self._timed(case) for case in cases[:alone]]
        if cases[alone:]:
            scores += self._together(cases[alone:])
        self.outcomes.update(score.outcome for score in scores)
        self.verifier.take_logs()
        return scores

    def _timed(self, case: Case) -> Score:
        began = time.perf_counter()
        score = self._one(case)
        self.seconds.append(time.perf_counter() - began)
        return score

    def _one(self, case: Case) -> Score:
        try:
            (score,) = score_cases(self.verifier, [case])
        except VerifierError as error:
            cause = describe_error(error.__cause__ or error)
            self.raised.append(Raised(case.text, cause))
            return Score(None, "infrastructure_error", f"raised {cause}")
        return score

    def _together(self, cases: Sequence[Case]) -> list[Score]:
        try:
            return score_cases(self.verifier, cases)
        except VerifierError:
            return [self._one(case) for case in cases]
