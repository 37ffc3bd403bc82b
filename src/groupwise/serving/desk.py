"""Where requests wait until they are sampled together, and the server that puts them there.

The server's threads only read, wait and write. Histories become ids, and completions answers, in
the thread that owns the sampler, in the order of the clients and not of arrival.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from groupwise.errors import RecipeError
from groupwise.samplers import Sampler
from groupwise.serving.conversation import Conversation, Draw
from groupwise.serving.protocol import ApiError, Asked, Choice


@dataclass(eq=False)
class Client:
    """One key and its conversation; `place` orders clients. `waits` while a request of it is at the
    desk, `ended` once it will ask no more."""

    key: str
    conversation: Conversation
    place: int = 0
    waits: int = 0
    ended: bool = False


@dataclass(eq=False)
class Ticket:
    """One request at the desk, and the answer that its client waits for."""

    client: Client
    asked: Asked
    answer: Future[list[Choice]] = field(default_factory=Future)
    draws: list[Draw] = field(default_factory=list[Draw])

    def refuse(self, error: ApiError) -> None:
        with suppress(InvalidStateError):  # the client has gone
            self.answer.set_exception(error)

    def end(self) -> None:
        """Its rollout is over."""
        self.refuse(ApiError("the rollout has ended", status=410, code="rollout_ended"))

    def give(self, choices: list[Choice]) -> None:
        with suppress(InvalidStateError):
            self.answer.set_result(choices)


class Desk:
    """Clients by key, and their requests that wait. `changed` is notified of every arrival and of
    every end."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.changed = threading.Condition()
        self._tickets: list[Ticket] = []

    def admit(self, client: Client) -> None:
        with self.changed:
            self.clients[client.key] = client

    def put(self, client: Client, asked: Asked) -> Future[list[Choice]]:
        """A request arrives; from any thread. Raises ApiError where the client has ended."""
        with self.changed:
            if client.ended:
                raise ApiError("this key's rollout has ended", status=401, code="invalid_api_key")
            ticket = Ticket(client, asked)
            client.waits += 1
            self._tickets.append(ticket)
            self.changed.notify_all()
        return ticket.answer

    def end(self, client: Client) -> None:
        """The client asks no more; what it still waits for is refused."""
        with self.changed:
            client.ended = True
            self.clients.pop(client.key, None)
            gone = [each for each in self._tickets if each.client is client]
            self._tickets = [each for each in self._tickets if each.client is not client]
            self.changed.notify_all()
        for each in gone:
            each.end()

    def wave(self, ready: Callable[[], bool], seconds: float) -> tuple[list[Ticket], bool]:
        """The requests that wait once `ready()`, at the latest after `seconds`, by client; and
        whether it was ready. `ready` reads clients; it is asked again after every change."""
        with self.changed:
            in_time = self.changed.wait_for(ready, seconds)
            tickets, self._tickets = self._tickets, []
        return sorted(tickets, key=lambda ticket: ticket.client.place), in_time

    def drawn(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Those of the requests that can be sampled; the others are refused, and their clients may
        ask again."""
        good = []
        for ticket in tickets:
            try:
                ticket.draws = ticket.client.conversation.draws(ticket.asked)
                good.append(ticket)
            except ApiError as error:
                self._done(ticket)
                ticket.refuse(error)
        return good

    def sample(self, tickets: Sequence[Ticket], sampler: Sampler) -> None:
        """One batch; every client gets its answer. Raises what the sampler raises."""
        draws = [draw for ticket in tickets for draw in ticket.draws]
        left = iter(sampler.sample([draw.request for draw in draws]))
        for ticket in tickets:
            take = ticket.client.conversation.take
            choices = [take(draw, next(left)) for draw in ticket.draws]
            self._done(ticket)
            ticket.give(choices)

    def _done(self, ticket: Ticket) -> None:
        """Before its client hears of it, so that a following request is not taken for this one."""
        with self.changed:
            ticket.client.waits -= 1

    def serve(self, sampler: Sampler, window: float, stopped: threading.Event) -> None:
        """Samples what arrives until `stopped`; requests within `window` seconds of the first are
        one batch."""
        while not stopped.is_set():
            first, came = self.wave(lambda: bool(self._tickets), 0.5)
            if not came:
                continue
            time.sleep(window)
            more, _ = self.wave(lambda: True, 0.0)
            tickets = self.drawn([*first, *more])
            try:
                self.sample(tickets, sampler)
            except Exception as error:
                for ticket in tickets:
                    ticket.refuse(ApiError(str(error), status=500, code="server_error"))
                raise


def listening(host: str, port: int) -> socket.socket:
    """A bound socket; `port` 0 takes a free one. Raises RecipeError naming what cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise RecipeError(
            f"host = {host!r}, port = {port} cannot be used ({error.strerror}); port 0 takes a "
            "free one"
        ) from error
    return found
