"""Groups that are sampled in rounds: a round ends where the weights change, and what it leaves
unfinished continues in the next one, under the new weights.

A round is one call of the sampler with every rollout that is not finished, so what is decoded
together follows from the groups that were started and from the number of decoding steps after which
each round was paused. A clock decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from groupwise.errors import GroupwiseError
from groupwise.instants import passed
from groupwise.rollouts.collect import UNJUDGED, finished_group
from groupwise.rollouts.judged import case_of
from groupwise.rollouts.member import Member, Setting
from groupwise.samplers import Sampler
from groupwise.samplers.contract import Pause
from groupwise.types import Completion, Group, Prompt, Request


class Progress(NamedTuple):
    """What a rollout has sampled: its finished completions, the one that is `begun`, and the prompt
    ids of the last request, which hold everything that its environment has said."""

    completions: tuple[Completion, ...] = ()
    begun: Completion | None = None
    prompt_ids: tuple[int, ...] = ()
    parked: bool = False


class _Rollout:
    """One rollout in progress. `parked` = it has had its tokens of this version."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._clock = member.setting.clock
        self._asked = self._clock()
        self.following: Request | Future[Request | None] | None = member.request()
        self.progress = Progress()

    def request(self) -> Request | None:
        """The next request, None where the rollout has ended; waits for the environment."""
        if isinstance(self.following, Future):
            self.following = self.following.result()
        asked = self.following
        if asked is None:
            return None
        left = asked.deadline
        if left is not None:
            left = max(left - (self._clock() - self._asked), 0.0)
        return replace(asked, begun=self.progress.begun, deadline=left)

    def take(self, completion: Completion) -> Request | Future[Request | None] | None:
        """A completion of `request()`, finished or paused; what follows it (`Sampler.play`)."""
        asked = self.request()
        assert asked is not None
        before, begun = self.progress, asked.begun
        if completion.finish_reason == "paused":
            if completion.num_tokens:
                new = completion.num_tokens - (0 if begun is None else begun.num_tokens)
                parked = 0 < asked.pause_after <= new
                self.progress = Progress(before.completions, completion, asked.prompt_ids, parked)
            return None
        self.progress = Progress((*before.completions, completion), None, asked.prompt_ids)
        self.following = self.member.on_completion(completion)
        self._asks()
        if isinstance(self.following, Future):
            self.following.add_done_callback(self._asks)
        return self.following

    def _asks(self, _: object = None) -> None:
        """The deadline of the next request counts from now on."""
        self._asked = self._clock()


@dataclass(eq=False)
class Started:
    """A group in progress: `number` counts the groups that were started, `version` is that of the
    weights then, `max_tokens` the limit on its completions."""

    number: int
    version: int
    prompt: Prompt
    visit: int
    size: int
    greedy: bool
    max_tokens: int
    rollouts: list[_Rollout] = field(default_factory=list[_Rollout])

    @property
    def progress(self) -> list[Progress]:
        """What its rollouts have sampled, for a checkpoint."""
        return [each.progress for each in self.rollouts]


def score_group(setting: Setting, group: Started) -> Group:
    """A finished group, scored in one call of the verifier."""
    environment = setting.environment
    singly = environment.verifier.judges_singly
    members = [each.member for each in group.rollouts]
    judged = [each for each in members if not (singly and each.verdict)]
    form = environment.judged_for(group.prompt)
    cases = [case_of(each.rollout(UNJUDGED, group.version), form) for each in judged]
    scores = dict(zip(map(id, judged), environment.score(cases), strict=True))
    scored = [(each, each.verdict or scores[id(each)]) for each in members]
    return finished_group(setting, group.prompt, scored, group.version, greedy=group.greedy)


class Rounds:
    """The groups in progress. `complete` gets each once all of its rollouts have ended, from any
    thread. `start`, `state` and `unpark` are for between rounds."""

    def __init__(
        self, setting: Setting, sampler: Sampler, complete: Callable[[Started], None]
    ) -> None:
        self.setting = setting
        self.sampler = sampler
        self.complete = complete
        self.num_parked = 0
        self._clocked: tuple[float, float | None] = (0.0, None)
        self._unfinished: list[_Rollout] = []
        self._lock = threading.Lock()

    def clock(self) -> float:
        """Seconds of sampling so far; those between two calls of `run` are left out."""
        seconds, since = self._clocked
        return seconds if since is None else seconds + time.monotonic() - since

    def start(self, group: Started, progress: Sequence[Progress] = ()) -> None:
        """Start a group's rollouts, or those of a checkpoint at the point that they had reached.

        Raises GroupwiseError where the environment now answers the same turns in another way.
        """
        environment, template = self.setting.environment, self.setting.template
        sampling = self.setting.sampling.model_copy(update={"max_tokens": group.max_tokens})
        setting = replace(self.setting, sampling=sampling, clock=self.clock)
        ids = environment.prompt_ids(group.prompt, template)
        left = group.size + group.greedy

        def ended() -> None:
            nonlocal left
            with self._lock:
                left -= 1
                last = left == 0
            if last:
                self.complete(group)

        for index in [*range(group.size), *([-1] if group.greedy else [])]:
            member = Member(setting, group.prompt, group.visit, index, ids, ended)
            group.rollouts.append(_Rollout(member))
        for rollout, each in zip(group.rollouts, progress):
            _play_again(rollout, each)
        self._unfinished += group.rollouts

    def run(self, pause: Pause) -> None:
        """Round after round, until no rollout is left or `pause` says so.

        Parked rollouts continue once no other is left to sample.
        """
        self._clocked = (self.clock(), time.monotonic())
        try:
            self._run(pause)
        finally:
            self._clocked = (self.clock(), None)

    def _run(self, pause: Pause) -> None:
        while (asked := self._asked()) and not pause():
            rollouts = [rollout for rollout, _ in asked]

            def then(
                place: int, completion: Completion, rollouts: list[_Rollout] = rollouts
            ) -> Request | Future[Request | None] | None:
                if completion.finish_reason != "paused":
                    passed("sampling")
                return rollouts[place].take(completion)

            self.sampler.play([request for _, request in asked], then, pause)
            self.num_parked += sum(rollout.progress.parked for rollout in rollouts)

    def _asked(self) -> list[tuple[_Rollout, Request]]:
        """What the next round samples."""
        asked = [(each, request) for each in self._unfinished if (request := each.request())]
        self._unfinished = [rollout for rollout, _ in asked]
        if all(rollout.progress.parked for rollout, _ in asked):
            self.unpark()
        return [each for each in asked if not each[0].progress.parked]

    def unpark(self) -> None:
        """All unfinished rollouts continue."""
        for rollout in self._unfinished:
            rollout.progress = rollout.progress._replace(parked=False)


def _play_again(rollout: _Rollout, progress: Progress) -> None:
    """Bring a rollout to where it was: its environment answers the stored completions again."""
    asked = rollout.request()
    for completion in progress.completions:
        asked = rollout.request()
        if asked is not None:
            rollout.take(completion)
    if progress.begun is not None:
        asked = rollout.request()
    if progress.prompt_ids and (asked is None or asked.prompt_ids != progress.prompt_ids):
        member = rollout.member
        raise GroupwiseError(
            f"environment {member.setting.environment.name!r} answers an unfinished rollout of "
            f"prompt {member.prompt.id!r} otherwise than before the checkpoint: its turns are "
            "played again on resume, so its answers must depend on nothing else. Set "
            "compute.max_staleness = 0 for this environment, and start the run again"
        )
    rollout.progress = progress
