"""One member of a group while it is played: its turns, its limits, what comes next.

The history grows by ids alone: a following request begins with every id before it, as sampled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

from groupwise.environments import Environment, Episode
from groupwise.environments.chat_messages import answer_messages
from groupwise.randomness import Purpose, stream_key
from groupwise.rollouts.episode_results import checked_counts, checked_result, checked_rewards
from groupwise.rollouts.judged import turn_steps, turns_read
from groupwise.samplers import Sampler, SamplingSettings
from groupwise.templates import Template
from groupwise.texts import shortened, whole_texts
from groupwise.types import (
    Completion,
    Extras,
    FinishReason,
    Message,
    Prompt,
    Request,
    Rollout,
    Score,
    Turn,
    TurnLimit,
)
from groupwise.verifiers.core.contract import describe_error


@dataclass(frozen=True, slots=True)
class Setting:
    """What all members of one collection share."""

    environment: Environment
    template: Template
    sampling: SamplingSettings
    seed: int
    purpose: Purpose
    entropies: bool = False
    top_k: int = 0
    park_after: int = 0
    clock: Callable[[], float] = time.monotonic
    encoding: threading.Lock = field(default_factory=threading.Lock)

    def request(
        self,
        place: Place,
        *parts: int | str,
        prompt_ids: tuple[int, ...],
        max_tokens: int,
        stop_strings: tuple[str, ...],
        room: int = 0,
    ) -> Request:
        """What one rollout asks the sampler for; `parts` tell its requests' noise apart."""
        (prompt, visit, index), sampling = place, self.sampling
        return Request(
            prompt_ids=prompt_ids,
            key=stream_key(self.seed, self.purpose, prompt.id, visit, index, *parts),
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            greedy=index < 0,
            stop_strings=stop_strings,
            deadline=sampling.deadline,
            entropies=self.entropies,
            top_k=self.top_k,
            experts=sampling.routing_replay and self.purpose == "training" and index >= 0,
            keep_top_k=sampling.top_k,
            keep_top_p=sampling.top_p,
            keep_min_p=sampling.min_p,
            room=room,
            pause_after=self.park_after,
        )


Place = tuple[Prompt, int, int]
"""A prompt, its visit and the index in the group (-1: greedy)."""


class Played(Protocol):
    """One rollout of a collection, while it is played and after."""

    @property
    def failure(self) -> str | None:
        """What of the environment failed, None for nothing."""

    @property
    def verdict(self) -> Score | None:
        """The score of a rollout that no verifier judges."""

    def rollout(self, score: Score, step: int) -> Rollout:
        """The rollout with its score."""


class Player(Protocol):
    """`Environment.player`: plays the rollouts of one that does more than answer turns."""

    def play(
        self,
        setting: Setting,
        sampler: Sampler,
        places: Sequence[Place],
        members: list[Played],
        ended: Callable[[int], None],
    ) -> None:
        """Appends a member for every place, then plays them; `ended` once a place, at its end."""


class Member:
    """The rollout of (prompt, visit, index) as it grows; `ended` is called once, at its end."""

    def __init__(
        self,
        setting: Setting,
        prompt: Prompt,
        visit: int,
        index: int,
        prompt_ids: tuple[int, ...],
        ended: Callable[[], None],
    ) -> None:
        self.setting = setting
        self.prompt, self.visit, self.index = prompt, visit, index
        self.turns: list[Turn] = []
        self.messages: list[Message] = []
        self.continued: list[int] = []
        self.failure: str | None = None
        self.limit: TurnLimit | None = None
        self.result: Score | None = None
        self.counts: dict[str, float] = {}
        self._ids = prompt_ids
        self._context = prompt_ids
        self._ended = ended
        self._started = setting.clock()
        self._answers = 0
        self._turn_tokens = 0
        self._episode: Episode | None = None
        try:
            self._episode = self._opened()
        except Exception as error:  # noqa: BLE001 (the environment's own: this rollout failed)
            self.failure = f"its start raised {describe_error(error)}"

    def _opened(self) -> Episode:
        """The episode, started with an answer's time limit where the user defined `start`."""
        environment = self.setting.environment
        call = partial(environment.open, self.prompt, self.setting.template)
        is_own = type(environment).start is not Environment.start
        opened: Episode = self._waited(call) if is_own else call()
        return opened

    @property
    def one_turn(self) -> bool:
        """Whether the first completion ends the rollout, whatever it says."""
        return self._episode is None or type(self._episode).next is Episode.next

    # What is sampled.

    def request(self) -> Request:
        """The next request: every id so far, and what is left of the tokens."""
        sampling = self.setting.sampling
        tokens = self._tokens_left(len(self._ids))
        if sampling.thinking_budget is not None and not self._turn_tokens:
            tokens = min(tokens, sampling.thinking_budget)
        return self.setting.request(
            (self.prompt, self.visit, self.index),
            len(self.turns),
            prompt_ids=self._ids,
            max_tokens=tokens,
            stop_strings=tuple(sampling.stop),
            room=0 if self.turns else sampling.max_tokens,
        )

    @property
    def num_tokens(self) -> int:
        return sum(turn.completion.num_tokens for turn in self.turns)

    def _tokens_left(self, length: int) -> int:
        """Tokens that this turn may still have behind `length` ids."""
        sampling, limits = self.setting.sampling, self.setting.environment.limits
        tokens = sampling.max_tokens - self.num_tokens
        if limits.turn_tokens is not None:
            tokens = min(tokens, limits.turn_tokens - self._turn_tokens)
        return tokens if limits.length is None else min(tokens, limits.length - length)

    # What follows a completion.

    def on_completion(self, completion: Completion) -> Request | Future[Request | None] | None:
        """Takes the completion of the last request; what follows it (see `Sampler.play`)."""
        self.turns.append(Turn(self._context, completion))
        self._ids = (*self._ids, *completion.token_ids)
        self._turn_tokens += completion.num_tokens
        if self._thinking_continues(completion):
            return self.request()
        words = completion.text
        self.messages.append({"role": "assistant", "content": self._written()})
        if self.failure is not None or completion.finish_reason != "stop" or self.one_turn:
            self._end()
            return None
        episode, environment = self._episode, self.setting.environment
        assert episode is not None
        self._answers += 1
        seconds = environment.limits.wait_seconds
        asked = environment.waits.start(lambda: episode.next(words), seconds)
        following: Future[Request | None] = Future()

        def answered(done: Future[Any]) -> None:
            try:
                continues = self._takes_answer(done)
                if not continues:
                    self._end()
                following.set_result(self.request() if continues else None)
            except BaseException as error:  # noqa: BLE001 (raised where the sampler waits)
                following.set_exception(error)

        asked.add_done_callback(answered)
        return following

    def _written(self) -> str:
        """All of this turn, forced text included, for the record."""
        first = len(self.turns) - 1
        while first in self.continued:
            first -= 1
        decode = self.setting.template.decode_completion
        parts = [self.turns[first].completion.text]
        for turn in self.turns[first + 1 :]:
            parts += [decode(turn.context_ids), turn.completion.text]
        return "".join(parts)

    def _takes_answer(self, done: Future[Any]) -> bool:
        """Adds the environment's answer to the context; False where the rollout has ended."""
        error = done.exception()
        if error is not None:
            self.failure = f"turn {self._answers}: {describe_error(error)}"
            return False
        if done.result() is None:
            return False
        try:
            messages = [self._limited(message) for message in answer_messages(done.result())]
        except ValueError as error:
            self.failure = f"turn {self._answers}: {error}"
            return False
        self.messages += messages
        with self.setting.encoding:  # a tokenizer's settings change while it encodes
            context = self.setting.template.continuation(
                self.turns[-1].completion.token_ids,
                messages,
                **self.setting.environment.variables_for(self.prompt),
            )
        self.limit = self._limit_reached(len(context))
        if self.limit is not None:
            return False
        self._context, self._turn_tokens = context, 0
        self._ids = (*self._ids, *context)
        return True

    def _limited(self, message: Message) -> Message:
        """The message in whole characters and within the limit; a tool's has a limit of its own."""
        found: dict[str, Any] = whole_texts(message)
        content, limit = found.get("content"), self.setting.environment.limits.characters
        if isinstance(content, str) and limit is not None and found["role"] != "tool":
            found["content"] = shortened(content, limit)
        return found

    def _limit_reached(self, context: int) -> TurnLimit | None:
        limits = self.setting.environment.limits
        if self._answers >= limits.turns:
            return "turns"
        if self.num_tokens >= self.setting.sampling.max_tokens:
            return "tokens"
        if limits.length is not None and len(self._ids) + context >= limits.length:
            return "length"
        if limits.seconds is not None and self.setting.clock() - self._started > limits.seconds:
            return "seconds"
        return None

    def _thinking_continues(self, completion: Completion) -> bool:
        """Whether this completion is thinking that spent its budget, and tokens are left.

        Open thinking is closed by the forced text; other text continues as it is.
        """
        sampling = self.setting.sampling
        budget = sampling.thinking_budget
        spent = completion.finish_reason == "length" and self._turn_tokens == budget
        if budget is None or not spent or completion.num_tokens < budget:
            return False
        template = self.setting.template
        opened = template.opened(self.prompt) or sampling.thinking_start in completion.text
        closed = sampling.thinking_stop in completion.text
        self._context = template.encode(sampling.thinking_end) if opened and not closed else ()
        ids = (*self._ids, *self._context)
        if self._tokens_left(len(ids)) < 1:
            return False
        self._ids = ids
        self.continued.append(len(self.turns))
        return True

    # Its end.

    @property
    def verdict(self) -> Score | None:
        """The score of a failed rollout; a verifier judges the others."""
        if self.failure is None:
            return None
        reason = f"environment {self.setting.environment.name!r}, {self.failure}"
        return Score(None, "infrastructure_error", reason)

    def _end(self) -> None:
        if self.limit is not None:
            self._last_reason("deadline" if self.limit == "seconds" else "length")
        if self._episode is not None:
            self.result = self._own_verdict(self._episode)
        if self.failure is not None:
            self._last_reason("error")
        self._ended()

    def _own_verdict(self, episode: Episode) -> Score | None:
        given: Any = None
        try:
            given = self._in_time("result")
        except Exception as error:  # noqa: BLE001 (the environment's own: this rollout failed)
            self.failure = self.failure or f"its result raised {describe_error(error)}"
        result: Score | None = None
        try:
            result = checked_result(given, type(episode).__name__)
            rewards = checked_rewards(episode.rewards)
            if result is not None and rewards:
                read = turns_read(self.turns, self.continued, "all")
                result = replace(result, steps=turn_steps(self.turns, read, rewards))
            self.counts = checked_counts(episode.counts)
        except ValueError as error:
            self.failure = self.failure or f"its {error}"
        try:
            self._in_time("close")
        except Exception as error:  # noqa: BLE001 (as above)
            self.failure = self.failure or f"its end raised {describe_error(error)}"
        return result

    def _in_time(self, method: Literal["result", "close"]) -> Any:
        """Calls a method of the episode; with an answer's time limit where the user defined it."""
        call = getattr(self._episode, method)
        is_own = getattr(call, "__func__", None) is not getattr(Episode, method)
        return self._waited(call) if is_own else call()

    def _waited(self, call: Callable[[], Any]) -> Any:
        environment = self.setting.environment
        # This thread may be one of the queue's own: a call that waited for another slot of the
        # queue would never end where all slots wait.
        return environment.waits.run(call, environment.limits.wait_seconds)

    def _last_reason(self, reason: FinishReason) -> None:
        last = self.turns[-1]
        completion = replace(last.completion, finish_reason=reason)
        self.turns[-1] = replace(last, completion=completion)

    def rollout(self, score: Score, step: int) -> Rollout:
        turns = tuple(self.turns)
        return Rollout(self.prompt, turns, score, self.index, self.visit, step, self.extras)

    @property
    def extras(self) -> Extras:
        """What the record and the verifier get besides the turns."""
        opened = self.setting.template.opened(self.prompt)
        if self.one_turn and not self.continued and self.failure is None and self.result is None:
            return Extras(opened=opened)
        return Extras(
            messages=tuple(self.messages),
            continued=tuple(self.continued),
            opened=opened,
            counts=self.counts,
            limit=self.limit,
            failure=self.failure,
            result=self.result,
        )
