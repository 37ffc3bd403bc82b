"""A policy behind the API without training: what `groupwise serve` runs."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

from groupwise.policies import Policy
from groupwise.randomness import stream_key
from groupwise.samplers import Sampler, make_sampler
from groupwise.serving.conversation import Conversation
from groupwise.serving.desk import Client, Desk
from groupwise.serving.protocol import ApiError, Asked
from groupwise.serving.server import Running, application
from groupwise.types import Request
from groupwise.waiting.deadlines import BackgroundCall

WINDOW = 0.005
"""Seconds in which requests that arrive together become one batch."""
REMEMBERED = 256
"""Answers whose ids are continued; an older history is encoded anew."""
MAX_TOKENS = 512
"""Tokens of an answer where the request does not say."""


class Served(Conversation):
    """All requests of the server: sampled as each of them asks."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.template, keep=REMEMBERED)
        self.max_length = policy.max_length

    def request(self, asked: Asked, ids: tuple[int, ...], depth: int, name: str) -> Request:
        room = self.max_length - len(ids)
        if room < 1 or (asked.max_tokens or 0) > room:
            wanted = f" and max_tokens is {asked.max_tokens}" if asked.max_tokens else ""
            raise ApiError(
                f"the prompt has {len(ids)} tokens{wanted}; the model has positions for "
                f"{self.max_length}, prompt and answer together",
                code="context_length_exceeded",
                param="messages" if asked.is_chat else "prompt",
            )
        seeded = asked.seed is not None
        return Request(
            prompt_ids=ids,
            key=stream_key(asked.seed or 0, "probe", name) if seeded else secrets.randbits(64),
            max_tokens=asked.max_tokens or min(MAX_TOKENS, room),
            temperature=asked.temperature or 1.0,
            greedy=asked.temperature == 0,
            stop_strings=asked.stop,
            keep_top_p=asked.top_p or 1.0,
        )


class Server:
    """A policy served at `address` to whoever has `key`, until `close`.

    `listening` is bound (`desk.listening`). `name` is what requests call the model; the policy's
    own name by default.
    """

    def __init__(
        self,
        policy: Policy,
        listening: socket.socket,
        *,
        sampler: Sampler | None = None,
        name: str | None = None,
    ) -> None:
        self.key = f"sk-{secrets.token_urlsafe(24)}"
        self.model = name or policy.name
        self.sampler = sampler or make_sampler("auto", policy)
        self.desk, client = Desk(), Client(self.key, Served(policy))
        self.desk.admit(client)
        self._stopped = threading.Event()
        app = application(self.desk, self._client_of(client), [self.model])
        self._running = Running(app, listening)
        self.address = self._running.address
        sampler, stopped = self.sampler, self._stopped
        self._sampling = BackgroundCall(lambda: self.desk.serve(sampler, WINDOW, stopped))

    def _client_of(self, client: Client) -> Callable[[str], Client | None]:
        def find(key: str) -> Client | None:
            same = secrets.compare_digest(key.encode(), self.key.encode())
            return client if same else None

        return find

    def wait(self) -> None:
        """Until it is interrupted. Raises what the sampler raised."""
        self._sampling.result()

    def close(self) -> None:
        """Ends the server and frees the sampler's memory."""
        self._stopped.set()
        self._running.close()
        self.sampler.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
