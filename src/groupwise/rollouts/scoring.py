"""Scores of finished rollouts, in order, made while others still run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from groupwise.instants import passed
from groupwise.types import Score
from groupwise.verifiers import Case
from groupwise.waiting.deadlines import BackgroundCall

ScoreCases = Callable[[Sequence[Case]], list[Score]]


class Scoring:
    """Cases in, by place; one score a place out.

    A verifier that judges case by case works in a background thread, on whatever has finished; one
    that reads the whole batch gets it at the end, in the calling thread. A failed rollout has its
    score already: it is not judged, but a verifier of whole batches still sees its case, so that
    what it logs stays aligned with the rollouts.
    """

    def __init__(self, score: ScoreCases, places: int, *, singly: bool) -> None:
        self._score = score
        self._cases: list[Case | None] = [None] * places
        self._scores: list[Score | None] = [None] * places
        self._singly = singly
        self._changed = threading.Condition()
        self._waiting: list[int] = []
        self._ended = False
        self._work: BackgroundCall[None] | None = None

    def put(self, place: int, case: Case, failed: Score | None = None) -> None:
        """A rollout has ended; from any thread. Raises what scoring an earlier one raised."""
        passed("scoring")
        with self._changed:
            if self._work is not None and self._work.error is not None:
                raise self._work.error
            self._cases[place] = case
            self._scores[place] = failed
            if self._singly and failed is None:
                self._waiting.append(place)
                self._changed.notify()
                self._work = self._work or BackgroundCall(self._score_waiting)

    def results(self) -> list[Score]:
        """Every score, in order of places; all must have been put. Raises what scoring raised."""
        self.stop()
        if self._work is not None:
            self._work.result()
        cases = [case for case in self._cases if case is not None]
        if cases and not self._singly:  # one of several processes may have none
            made = self._score(cases)
            self._scores = [own or other for own, other in zip(self._scores, made, strict=True)]
        scores = [score for score in self._scores if score is not None]
        assert len(scores) == len(self._scores), "a rollout was never put"
        return scores

    def stop(self) -> None:
        """Nothing more will be put; the thread ends when its work is done."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _score_waiting(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                places, self._waiting = sorted(self._waiting), []
            cases = [case for place in places if (case := self._cases[place]) is not None]
            for place, score in zip(places, self._score(cases), strict=True):
                self._scores[place] = score
