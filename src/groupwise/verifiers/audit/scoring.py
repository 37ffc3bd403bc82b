"""Scoring for an audit: every verdict timed, every outcome counted, no exception lost.

An exception is a finding here: the audit asks what a verifier does with texts that nobody expected,
so it is kept with its text and the row is left unscored. After a verifier hangs or the budget is
spent nothing further is asked: the rest is `UNASKED`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from groupwise.errors import VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import Case, Verifier, describe_error, score_cases

SINGLES = 1000
"""So many verdicts are asked for one at a time, so that each is timed."""
CONCURRENT_SINGLES = 8
"""The same for a verifier whose cases wait for a model and run together."""
LIMIT = 60.0
"""Default seconds for one verdict."""
MAX_TIMEOUTS = 3
"""After so many texts in a row without a verdict in time, nothing further is asked."""
UNASKED = Score(None, "not_applicable", "not asked: the audit had stopped")
"""In place of a verdict after the audit stopped; not counted."""

Encode = Callable[[str], Sequence[int]]


def asks_a_model(verifier: Verifier) -> bool:
    """Whether each verdict waits for a model (`concurrent`), in a composition for any part's."""
    parts = getattr(verifier, "components", None) or ()
    return bool(getattr(verifier, "concurrent", False)) or any(
        asks_a_model(part.verifier) for part in parts
    )


class Scorer:
    """One verifier under audit. `encode` gives the ids that a text would have had.

    `budget` is in seconds, checked before every verdict; `limit` is in seconds, for one verdict.
    `raised` holds the texts on which the verifier raised, with the error; `stopped` says why
    nothing further is asked, if it is not the budget.
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
        self.raised: list[tuple[str, str]] = []
        self.started = time.monotonic()
        self.budget = budget
        self.limit = limit
        self.stopped = ""
        self._timeouts = 0
        self._encode = encode or (lambda text: tuple(text.encode()))
        self._singles = CONCURRENT_SINGLES if asks_a_model(verifier) else SINGLES

    @property
    def ended(self) -> bool:
        """Whether nothing further is asked."""
        spent = time.monotonic() - self.started
        return bool(self.stopped) or (self.budget is not None and spent > self.budget)

    def score(
        self, prompts: Sequence[Prompt], texts: Sequence[str], together: bool = False
    ) -> list[Score]:
        """One score per text, in order; in one call of the verifier if `together`.

        One text at a time hides a function that returns a list of the wrong length.
        """
        cases = [
            Case(prompt, text, tuple(self._encode(text)))
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        alone = 0 if together else max(0, min(len(cases), self._singles - len(self.seconds)))
        scores = [self._ask([case])[0] for case in cases[:alone]]
        scores += self._ask(cases[alone:]) if cases[alone:] else []
        self.verifier.take_logs()
        return scores

    def _ask(self, cases: Sequence[Case]) -> list[Score]:
        if self.ended:
            return [UNASKED] * len(cases)
        began = time.perf_counter()
        try:
            scores = score_cases(self.verifier, cases, deadline=self.limit * len(cases))
        except VerifierError as error:
            if len(cases) > 1 and error.__cause__ is not None:
                return [self._ask([case])[0] for case in cases]
            reason = describe_error(error.__cause__ or error)
            self.raised.append((" | ".join(case.text for case in cases), reason))
            scores = [Score(None, "infrastructure_error", f"raised {reason}")] * len(cases)
            if len(cases) > 1:
                self.stopped = "what the verifier returns breaks its contract: stopped"
        if len(cases) == 1:
            self.seconds.append(time.perf_counter() - began)
        for score in scores:
            self.outcomes[score.outcome] += 1
            self._timeouts = self._timeouts + 1 if score.outcome == "verifier_timeout" else 0
            if self._timeouts >= MAX_TIMEOUTS and not self.stopped:
                self.stopped = (
                    f"{self._timeouts} texts in a row got no verdict in time ({score.reason}), so "
                    "the verifier hangs or its time limit is too short: stopped"
                )
        return scores
