"""Plays the rollouts of the `agent` environment: agents ask, what they ask is sampled together.

A batch is sampled when every agent that runs waits for an answer. So which requests share a batch
is decided by the agents and not by a clock: deterministic agents give the same bits again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.instants import passed
from groupwise.rollouts.member import Place, Played, Setting
from groupwise.samplers import Sampler
from groupwise.serving.conversation import Conversation, Draw
from groupwise.serving.desk import Client, Desk, Ticket, listening
from groupwise.serving.processes import Ended, Process, variables
from groupwise.serving.protocol import ApiError, Asked, Choice
from groupwise.serving.server import LOOPBACK, Running, application
from groupwise.serving.settings import POLICY, AgentSettings
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


class AgentRun(Conversation):
    """One rollout: an agent's process and the conversation that it has with the policy."""

    def __init__(self, settings: AgentSettings, setting: Setting, place: Place) -> None:
        super().__init__(setting.template)
        self.settings, self.setting = settings, setting
        self.prompt, self.visit, self.index = place
        self.ended: Ended | None = None
        self.limit: TurnLimit | None = None
        self._granted = 0

    # What is sampled.

    def draws(self, asked: Asked) -> list[Draw]:
        made = super().draws(asked)
        self._granted += sum(draw.request.max_tokens for draw in made)
        return made

    def request(self, asked: Asked, ids: tuple[int, ...], depth: int, name: str) -> Request:
        sampling = self.setting.sampling
        wanted = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": None}
        for field, own in wanted.items():
            if getattr(asked, field) not in (None, own):
                self.counts[f"replaced_{field}"] += 1
        tokens = self._tokens(asked, len(ids))
        return self.setting.request(
            (self.prompt, self.visit, self.index),
            depth,
            name,
            prompt_ids=ids,
            max_tokens=tokens,
            stop_strings=tuple(dict.fromkeys((*asked.stop, *sampling.stop))),
        )

    def _tokens(self, asked: Asked, length: int) -> int:
        """The most tokens of one choice. Raises ApiError where a limit is reached."""
        limits, sampling = self.setting.environment.limits, self.setting.sampling
        left: dict[TurnLimit, int] = {
            "turns": limits.turns - sum(map(len, self.branches)),
            "tokens": sampling.max_tokens - self._granted,
        }
        if limits.length is not None:
            left["length"] = limits.length - length
        for limit, number in left.items():
            if number < (1 if limit == "length" else asked.n):
                self.limit = limit
                code = "context_length_exceeded" if limit == "length" else "rollout_limit_reached"
                raise ApiError(f"{_LIMITS[limit]}; the rollout cannot go on", code=code)
        tokens = min(left["tokens"], left.get("length", left["tokens"]))
        given = (limits.turn_tokens, asked.max_tokens)
        tokens = min(tokens, *(each for each in given if each is not None), tokens)
        return min(tokens, left["tokens"] // asked.n)

    def check_rewrite(self, asked: Asked) -> None:
        if self.settings.on_rewrite == "refuse":
            self.counts["refused_rewrites"] += 1
            raise ApiError(
                "the messages do not go on from the last answer; this environment refuses that "
                '(environment.on_rewrite = "branch" allows it)',
                code="history_rewritten",
                param="messages" if asked.is_chat else "prompt",
            )

    def take(self, draw: Draw, completion: Completion) -> Choice:
        self._granted -= draw.request.max_tokens - completion.num_tokens  # what was not used
        return super().take(draw, completion)

    # What is left of it.

    @property
    def failure(self) -> str | None:
        """Why the rollout is not the policy's: the agent failed before the policy said a word."""
        ended = self.ended
        return None if ended is None or ended.kind == "done" or self.branches else ended.reason

    @property
    def verdict(self) -> Score | None:
        if self.failure is not None:
            return Score(None, "infrastructure_error", self.failure)
        if self.ended is None or self.ended.kind == "done":
            return None
        if self.ended.kind == "crash" and self.limit is not None:
            return Score(0.0, "limit", f"{_LIMITS[self.limit]}; {self.ended.reason}")
        return Score(0.0, self.ended.kind, self.ended.reason)

    def rollout(self, score: Score, step: int) -> Rollout:
        others = tuple(tuple(turns) for turns in self.branches if turns is not self.main)
        extras = Extras(
            messages=self._messages(),
            counts={"branches": len(others), **self.counts},
            limit=self.limit,
            failure=self.failure,
            output=self._output(),
        )
        turns, prompt = self._turns(), self.prompt
        return Rollout(prompt, turns, score, self.index, self.visit, step, extras, branches=others)

    def _turns(self) -> tuple[Turn, ...]:
        """The main branch; the task's own ids and an empty completion where there is none."""
        reason: FinishReason | None = None if self.failure is None else "error"
        if self.ended is not None and self.ended.kind == "timeout":
            reason = "deadline"
        elif self.limit is not None:
            reason = "length"
        if not self.main:
            ids = self.setting.environment.prompt_ids(self.prompt, self.template)
            return (Turn(ids, Completion((), "", (), reason or "stop")),)
        last = self.main[-1]
        if reason is None:
            return tuple(self.main)
        completion = replace(last.completion, finish_reason=reason)
        return (*self.main[:-1], replace(last, completion=completion))

    def _messages(self) -> tuple[Message, ...]:
        """The main branch's messages, the first ones included: they are the agent's own."""
        node = next((each for each in reversed(self.nodes) if each.turns is self.main), None)
        if node is None or not node.history.is_chat:
            return ()
        messages: Any = node.history.content
        return tuple(messages)

    def _output(self) -> str | None:
        """What is judged in place of the policy's words."""
        if self.settings.answer == "completion" or self.ended is None:
            return None
        return self.ended.output.strip()


_LIMITS: dict[TurnLimit, str] = {
    "turns": "environment.max_turns is reached",
    "tokens": "sampling.max_tokens of the rollout are used up",
    "length": "the prompt fills the model's positions",
    "seconds": "environment.max_seconds have passed",
}


class AgentPlayer:
    """`rollouts.member.Player` of the `agent` environment. The server starts with the first
    collection and ends with `close`."""

    def __init__(
        self, settings: AgentSettings, command: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        """`variables` are set for the agent beside those that it always gets."""
        self.settings, self.command, self.variables = settings, tuple(command), dict(variables)
        self.models = (POLICY, *settings.models)
        self.desk = Desk()
        self._running: Running | None = None

    def play(
        self,
        setting: Setting,
        sampler: Sampler,
        places: Sequence[Place],
        members: list[Played],
        ended: Callable[[int], None],
    ) -> None:
        """Runs an agent for every place, `at_once` of them at a time."""
        runs = [AgentRun(self.settings, setting, place) for place in places]
        members += runs
        if self._running is None:
            app = application(self.desk, self.desk.clients.get, self.models)
            self._running = Running(app, listening(LOOPBACK, 0))
        _Round(self, self._running.address, runs, sampler, ended).play()

    def task(self, prompt: Prompt) -> str:
        """What the agent reads on standard input: never the answer."""
        task = {
            "id": prompt.id,
            "prompt": prompt.last_text,
            "messages": [dict(message) for message in prompt.messages]
            or [{"role": "user", "content": prompt.text}],
            **{name: prompt.columns[name] for name in self.settings.columns},
        }
        return json.dumps(task, ensure_ascii=False, default=str)

    def close(self) -> None:
        """Ends the server; may be called twice."""
        if self._running is not None:
            self._running.close()
            self._running = None


class _Round:
    """One collection: agents start, wait together, and end."""

    def __init__(
        self,
        player: AgentPlayer,
        address: str,
        runs: Sequence[AgentRun],
        sampler: Sampler,
        ended: Callable[[int], None],
    ) -> None:
        self.player, self.address, self.runs = player, address, runs
        self.sampler, self.ended = sampler, ended
        self.active: dict[Client, Process] = {}
        self.ready: list[Ticket] = []
        self.held: list[Ticket] = []

    def play(self) -> None:
        places = iter(range(len(self.runs)))
        waiting = True
        wave_ends = time.monotonic() + self.player.settings.gather_seconds
        try:
            while waiting or self.active:
                while waiting and len(self.active) < self.player.settings.at_once:
                    place = next(places, None)
                    waiting = place is not None
                    if place is not None:
                        self._start(place)
                tickets, _ = self.player.desk.wave(self._is_due, wave_ends - time.monotonic())
                self._draw(tickets)
                if self._take_ended():
                    continue
                late = {*self.active} - {ticket.client for ticket in self.ready}
                if late and time.monotonic() < wave_ends:
                    continue
                self._sample(late)
                wave_ends = time.monotonic() + self.player.settings.gather_seconds
        finally:
            for client, process in self.active.items():
                process.stop()
                self.player.desk.end(client)
            for ticket in (*self.ready, *self.held):
                ticket.end()

    def _is_due(self) -> bool:
        return any(each.ended for each in self.active) or all(each.waits for each in self.active)

    def _start(self, place: int) -> None:
        player, run = self.player, self.runs[place]
        client = Client(secrets.token_urlsafe(24), run, place)
        player.desk.admit(client)
        limits = run.setting.environment.limits

        def on_end(ended: Ended) -> None:
            run.ended = ended
            player.desk.end(client)

        known = variables(self.address, client.key, player.models[0], player.settings.pass_on)
        self.active[client] = Process(
            player.command,
            player.task(run.prompt),
            {**known, **player.variables},
            seconds=limits.seconds,
            characters=limits.characters,
            on_end=on_end,
        )

    def _take_ended(self) -> bool:
        """Takes out the agents that have ended; whether there were any."""
        over = sorted((each for each in self.active if each.ended), key=lambda each: each.place)
        for client in over:
            del self.active[client]
            self.ended(client.place)
        for ticket in (*self.ready, *self.held):
            if ticket.client.ended:
                ticket.end()
        self.ready = [ticket for ticket in self.ready if not ticket.client.ended]
        self.held = [ticket for ticket in self.held if not ticket.client.ended]
        return bool(over)

    def _draw(self, tickets: Sequence[Ticket]) -> None:
        """One request of a client at a time: whether another one came before the batch was sampled
        is a clock's decision, and would change what is left of the limits and what is a rewrite."""
        waiting, self.held = [*self.held, *tickets], []
        for ticket in waiting:
            if any(each.client is ticket.client for each in self.ready):
                self.held.append(ticket)
            else:
                self.ready += self.player.desk.drawn([ticket])

    def _sample(self, late: set[Client]) -> None:
        """One batch, without the clients that are late."""
        if not self.ready:
            return
        for client in late:
            client.conversation.counts["late"] += 1
        self.ready.sort(key=lambda ticket: ticket.client.place)
        passed("sampling")
        self.player.desk.sample(self.ready, self.sampler)
        self.ready = []
