"""Finished groups in, scored groups out, in the order of their verdicts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from groupwise.instants import passed
from groupwise.rollouts.member import Setting
from groupwise.rollouts.rounds import Started, score_group
from groupwise.types import Group
from groupwise.verifiers import VerifierLogs
from groupwise.waiting.deadlines import BackgroundCall
from groupwise.waiting.threads import work_through

_AT_ONCE = 16
"""Calls of a verifier that waits, at a time."""
_LOOK = 0.2
"""Seconds between two looks at whether what is waited for can still come."""
_LAST_CALL = 10.0
"""Seconds that `close` waits for the verifier's calls in hand."""

logger = logging.getLogger("groupwise")


class Arrived(NamedTuple):
    """A scored group, with what its verifier logged meanwhile."""

    started: Started
    group: Group
    logs: VerifierLogs


class Arrivals:
    """Scores groups in the background, one a call, and one after the other unless the verifier's
    calls may overlap. Whoever holds `judging` keeps it from working."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.judging = threading.Lock()
        self._changed = threading.Condition()
        self._finished: list[Started] = []
        self._arrived: list[Arrived] = []
        self._work: BackgroundCall[None] | None = None
        self._closed = False

    def put(self, group: Started) -> None:
        """All rollouts of a group have ended; from any thread."""
        passed("scoring")
        with self._changed:
            if self._closed:
                return
            self._finished.append(group)
            self._work = self._work or BackgroundCall(self._score)

    def take(self, fits: Callable[[Started], bool], check: Callable[[], bool]) -> Arrived | None:
        """The first group that arrived and `fits`, waited for; None where none will come.

        `check` says whether groups may still finish; it may raise. Raises what scoring raised.
        """
        with self._changed:
            while True:
                sampling = check()
                for place, each in enumerate(self._arrived):
                    if fits(each.started):
                        return self._arrived.pop(place)
                if self._work is not None and self._work.error is not None:
                    raise self._work.error
                if not sampling and self._work is None:
                    return None
                self._changed.wait(_LOOK)

    def close(self) -> None:
        """Score no further group; the calls in hand are waited for."""
        with self._changed:
            self._closed = True
            self._finished.clear()
            work = self._work
        if work is not None:
            with suppress(Exception):  # of a group that no step takes
                work.result(_LAST_CALL)
            if work.runs:
                logger.warning(
                    "a verifier's call goes on %g s after the run has ended, and is abandoned",
                    _LAST_CALL,
                )

    def _score(self) -> None:
        verifier = self.setting.environment.verifier
        while True:
            with self._changed:
                if not self._finished:
                    self._work = None
                    return
                version = self._finished[0].version
                some = [group for group in self._finished if group.version == version]
                some = some if verifier.overlaps else some[:1]
                self._finished = [group for group in self._finished if group not in some]

            def attempt(place: int, some: list[Started] = some) -> bool:
                if self._closed:
                    return False
                group = score_group(self.setting, some[place])
                with self._changed:
                    self._arrived.append(Arrived(some[place], group, verifier.take_logs()))
                    self._changed.notify()
                return False

            with self.judging:
                verifier.begin_step(version)
                work_through(len(some), attempt, num_threads=_AT_ONCE, name="groupwise-judging")
