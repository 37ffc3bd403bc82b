"""One server over HTTP: control calls, and completions as a stream of ids.

Everything but the wire format, which a subclass an engine gives."""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx2

from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.samplers.rows import Row
from groupwise.samplers.servers.probe import TEXT, Reply
from groupwise.texts import from_json

CALL_SECONDS = 10.0
"""Seconds for a call that computes nothing."""
SEEDS = 2**63
"""An engine's seeds are below it."""
_STRIDE = 0x9E3779B97F4A7C15


class ServerError(GroupwiseError):
    """A server did not do what it was asked; `status` is its reply's, None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of a completion: `top` are (log-probability, id) of the likeliest of each, and
    `reason` is why the server ended it, None where it goes on."""

    ids: Sequence[int] = ()
    logprobs: Sequence[float | None] = ()
    top: Sequence[Sequence[tuple[float, int]]] = ()
    reason: str | None = None


class Server(ABC):
    """A server at `url`. `lost` says why it gets no requests, None for one that does.

    `weights` names those that it took last, `probed` says that it passed the probe with them,
    `checksums` are its own of them. `model` is the name that requests ask for, `version` its
    engine's, `max_length` the longest row that it takes. `heard` is the monotonic time of its last
    token. `has` says whether the policy has an id. All calls run in one event loop.
    """

    kind: ClassVar[str]  # the engine's name
    kept_back: ClassVar[int] = 0  # tokens of its longest row that no request gets
    completions: ClassVar[str]  # the path that samples
    pause_call: ClassVar[tuple[str, Any]]  # paths with their bodies
    resume_call: ClassVar[tuple[str, Any]]
    sleep_call: ClassVar[tuple[str, Any]]
    wake_call: ClassVar[tuple[str, Any]]
    weights_path: ClassVar[str]  # says the name of the weights
    missing: ClassVar[str]  # which servers have the calls that are needed
    raw: ClassVar[str]  # what makes a server report the log-probabilities that are needed
    hint: ClassVar[str] = ""  # what else explains other weights
    draws: str  # how far its draws repeat

    def __init__(self, url: str, headers: Mapping[str, str], has: Callable[[int], bool]) -> None:
        self._has = has
        self.url = url
        self.lost: str | None = None
        self.model = self.version = ""
        self.max_length = 0
        self.heard = 0.0
        self.paused = self.asleep = self.probed = False
        self.weights: str | None = None
        self.checksums: Any = None
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers=dict(headers),
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
            verify=url.startswith("https:") and ssl.create_default_context(),
        )

    async def call(
        self, method: str, path: str, body: Any = None, seconds: float = CALL_SECONDS
    ) -> Any:
        """The decoded reply, None for an empty one. Raises ServerError within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                reply = await self._client.request(method, path, json=body)
        except TimeoutError as error:
            raise ServerError(f"{self.url}{path}: no reply within {seconds:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            message = f"{self.url}{path}: {type(error).__name__}: {error}"
            raise ServerError(message) from error
        return self._decoded(path, reply.status_code, reply.text)

    async def read(
        self,
        method: str,
        path: str,
        part: Callable[[Any], Any],
        body: Any = None,
        seconds: float = CALL_SECONDS,
    ) -> Any:
        """A part of the reply. Raises ServerError as `call` does, and where it has no such part."""
        reply = await self.call(method, path, body, seconds)
        try:
            return part(reply)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            said = " ".join(str(reply).split())[:200]
            raise ServerError(
                f"{self.url} does not answer as a {self.kind} server: {path} replied {said!r}"
            ) from error

    def _decoded(self, path: str, status: int, text: str) -> Any:
        if status != 200:
            said = " ".join(text.split())[:300]
            raise ServerError(f"{self.url}{path} replied {status}: {said}", status)
        try:
            return from_json(text) if text.strip() else None
        except ValueError:
            return text

    async def trouble(self) -> str | None:
        """Why the server cannot sample now, None for nothing."""
        try:
            if await self.is_paused():
                return "it is paused"
            await self.call("GET", "/health")
        except ServerError as error:
            return str(error)
        return None

    async def pause(self) -> None:
        """Abort what runs; later requests wait for `resume`."""
        self.paused = True
        await self.call("POST", *self.pause_call)

    async def resume(self) -> None:
        await self.call("POST", *self.resume_call)
        if await self.is_paused():
            raise ServerError(f"{self.url} stays paused after {self.resume_call[0]}")
        self.paused = False

    async def sleep(self, seconds: float) -> None:
        """Give back GPU memory; the weights wait in the machine's own, the cache is dropped."""
        self.asleep = True
        await self.call("POST", *self.sleep_call, seconds)

    async def wake(self, seconds: float) -> None:
        if self.asleep:
            await self.call("POST", *self.wake_call, seconds)
            self.asleep = False

    async def check_weights(self) -> bool:
        """True where the server says that it has the weights that it took last, False where it does
        not say. Raises ServerError where it has others: it has started again, or another program
        gave it some."""
        try:
            found = await self.read("GET", self.weights_path, lambda reply: reply["weight_version"])
        except ServerError as error:
            if error.status == 404:
                return False
            raise
        if found != self.weights:
            raise ServerError(f"{self.url} has the weights {found!r} and not {self.weights!r}")
        return True

    async def same_as_before(self, seconds: float) -> bool:
        """Whether its own checksums of all weights are those of the last call; False where it does
        not give any."""
        try:
            found = await self.own_checksums(seconds)
        except ServerError as error:
            if error.status in (400, 404):
                return False
            raise
        if found is None:
            return False
        before, self.checksums = self.checksums, found
        return bool(found == before)

    async def complete(
        self, row: Row, *, stop_ids: frozenset[int], biases: Mapping[str, float]
    ) -> None:
        """Sample one row to its end; `row` holds what has arrived if it is cancelled.

        Raises ServerError where the server did not finish it, NonFiniteError for log-probabilities
        that are not numbers.
        """
        path, begun, sent = self.completions, len(row.ids), list(row.context)
        body = self.body(row, stop_ids, biases)
        try:
            async with self._client.stream("POST", path, json=body) as reply:
                if reply.status_code != 200:
                    text = (await reply.aread()).decode("utf-8", "replace")
                    self._decoded(path, reply.status_code, text)
                async for line in reply.aiter_lines():
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        self.heard = time.monotonic()
                        piece = self.piece(
                            self._checked(from_json(data)), sent, len(row.ids) - begun
                        )
                        self._take(row, piece, stop_ids)
                    if row.finish_reason is not None:
                        return
        except (httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            message = f"{self.url}{path}: {type(error).__name__}: {error}"
            raise ServerError(message) from error
        raise ServerError(f"{self.url}{path}: the reply ended before its completion did")

    def _checked(self, chunk: Mapping[str, Any]) -> Mapping[str, Any]:
        if "error" in chunk:
            error = chunk["error"]
            status = error.get("code") if isinstance(error, dict) else None
            raise ServerError(f"{self.url}: {error}", status if isinstance(status, int) else None)
        return chunk

    def _take(self, row: Row, piece: Piece, stop_ids: frozenset[int]) -> None:
        """The tokens of one piece of the stream."""
        if len(piece.ids) != len(piece.logprobs):
            raise ServerError(
                f"{self.url}: {len(piece.ids)} ids with {len(piece.logprobs)} logprobs"
            )
        for place, (token, logprob) in enumerate(zip(piece.ids, piece.logprobs)):
            if not self._has(token):
                raise ServerError(f"{self.url} sampled {token!r}, which is not an id it may")
            if logprob is None or not logprob <= 1e-6:
                raise NonFiniteError(
                    f"request {row.place} (key {row.request.key}): {self.url} gave the "
                    f"log-probability {logprob} of completion token {len(row.ids)}"
                )
            row.ids.append(token)
            row.logprobs.append(logprob)
            if row.request.top_k:
                best = sorted((-value, each) for value, each in piece.top[place])
                best = best[: row.request.top_k]
                row.top_ids.append(tuple(each for _, each in best))
                row.top_logprobs.append(tuple(-value for value, _ in best))
            row.end_at(token, stop_ids)
            if row.finish_reason is not None:
                return
        if piece.reason == "stop":  # a stop string whose text this template decodes otherwise
            row.finish_reason = "stop"
        elif piece.reason is not None:
            raise ServerError(f"{self.url} ended a request early: {piece.reason}")

    def read_as_sent(self, same: bool, read: Any, sent: Sequence[int]) -> None:
        if not same:
            raise GroupwiseError(
                f"{self.url} read other ids than it was sent: {read} for {sent[:8]}..."
            )

    async def connect(self) -> list[int]:
        """What a fixed text's ids are there; reads the server's model name and longest row. A
        server that was left paused is resumed."""
        self.version = await self.read_version()
        if await self.is_paused():
            await self.resume()
        self.model, longest = await self.read("GET", "/v1/models", _own_model)
        self.max_length = longest - self.kept_back
        asked = {"model": self.model, "prompt": TEXT, "add_special_tokens": False}
        found: list[int] = await self.read(
            "POST", "/tokenize", lambda reply: list(reply["tokens"]), asked
        )
        return found

    # --- the wire format of an engine -------------------------------------------------------------

    @abstractmethod
    async def read_version(self) -> str:
        """The engine's version, of a server that is up."""

    @abstractmethod
    async def is_paused(self) -> bool:
        """Whether requests wait."""

    @abstractmethod
    async def shape(self) -> dict[str, Any]:
        """What the server says of fields of its model's configuration."""

    @abstractmethod
    async def own_checksums(self, seconds: float) -> Any:
        """Its own checksums of all weights, None where they say nothing."""

    @abstractmethod
    async def reset_cache(self) -> None:
        """Forget what earlier weights made of prompts; blocks may still be held for a moment."""

    @abstractmethod
    async def load_folder(self, folder: Path, seconds: float) -> None:
        """Take the weights in a folder, which the server reads."""

    @abstractmethod
    async def score(self, ids: Sequence[int], biases: Mapping[str, float], seconds: float) -> Reply:
        """What the probe asks. Raises ServerError where the server gives something else."""

    @abstractmethod
    def body(
        self, row: Row, stop_ids: frozenset[int], biases: Mapping[str, float]
    ) -> dict[str, Any]:
        """The body of a request. Every sampling setting is written out: a server has defaults of
        its own, from the model's generation config."""

    @abstractmethod
    def piece(self, chunk: Mapping[str, Any], sent: list[int], taken: int) -> Piece:
        """A piece of the stream of a request with the ids `sent`, of which `taken` tokens have been
        read. Raises GroupwiseError where the server read other ids."""

    async def close(self) -> None:
        await self._client.aclose()


def seed_of(row: Row) -> int:
    """What continues a completion draws other noise."""
    return (row.request.key + len(row.ids) * _STRIDE) % SEEDS


def _own_model(reply: Any) -> tuple[str, int]:
    """The name of the model that is no adapter, and the longest row that it takes."""
    own, *_ = (each for each in reply["data"] if not each.get("parent"))
    return str(own["id"]), int(own["max_model_len"])
