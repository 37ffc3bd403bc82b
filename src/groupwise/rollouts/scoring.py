"""Scores of finished rollouts, in order, made while others still run.

A verifier that judges case by case works in a thread of its own, on whatever has finished; one that
reads the whole batch gets the whole batch at the end. Left out: what a verifier does with a case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from groupwise.types import Score
from groupwise.verifiers import Case

ScoreCases = Callable[[Sequence[Case]], list[Score]]


class Scoring:
    """Cases in, by place; one score a place out.

    A failed rollout has its score already: it is not judged, but a verifier of whole batches still
    sees its case, so that what it logs stays aligned with the rollouts.
    """

    def __init__(self, score: ScoreCases, places: int, *, singly: bool) -> None:
        self._score = score
        self._cases: list[Case | None] = [None] * places
        self._scores: list[Score | None] = [None] * places
        self._singly = singly
        self._news = threading.Condition()
        self._waiting: list[int] = []
        self._ended = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def put(self, place: int, case: Case, failed: Score | None = None) -> None:
        """A rollout has ended; from any thread. Raises what scoring an earlier one raised."""
        with self._news:
            if self._error is not None:
                raise self._error
            self._cases[place] = case
            self._scores[place] = failed
            if not self._singly or failed is not None:
                return
            self._waiting.append(place)
            self._news.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def results(self) -> list[Score]:
        """Every score, in order of places; all must have been put. Raises what scoring raised."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._singly:
            cases = [case for case in self._cases if case is not None]
            made = self._score(cases)
            self._scores = [own or other for own, other in zip(self._scores, made, strict=True)]
        scores = [score for score in self._scores if score is not None]
        assert len(scores) == len(self._scores), "a rollout was never put"
        return scores

    def stop(self) -> None:
        """Nothing more will be put; the thread ends when its work is done."""
        with self._news:
            self._ended = True
            self._news.notify()

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._ended:
                    self._news.wait()
                if not self._waiting:
                    return
                places, self._waiting = sorted(self._waiting), []
            try:
                cases = [case for place in places if (case := self._cases[place]) is not None]
                for place, score in zip(places, self._score(cases), strict=True):
                    self._scores[place] = score
            except BaseException as error:  # noqa: BLE001 (raised in the collecting thread)
                with self._news:
                    self._error = error
                return
