"""One vLLM server over HTTP: control calls, and completions as a stream of ids."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx2

from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.samplers.rows import Row
from groupwise.texts import from_json

CALL_SECONDS = 10.0
"""Seconds for a call that computes nothing."""
_NOTHING = hashlib.sha256(b"").hexdigest()
SEEDS = 2**63
_STRIDE = 0x9E3779B97F4A7C15
"""vLLM's seeds are below it."""


class ServerError(GroupwiseError):
    """A server did not do what it was asked; `status` is its reply's, None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """A server at `url`. `lost` says why it gets no requests, None for one that does.

    `weights` names those that it took last, `probed` says that it passed the probe with them,
    `checksums` are its own of them. `model` is the name that requests ask for, `engine` vLLM's
    version, `max_length` the longest row that it takes. `heard` is the monotonic time of its last
    token. `has` says whether the policy has an id. All calls run in one event loop.
    """

    def __init__(self, url: str, headers: Mapping[str, str], has: Callable[[int], bool]) -> None:
        self._has = has
        self.url = url
        self.lost: str | None = None
        self.model = self.engine = ""
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
                f"{self.url} does not answer as a vLLM server: {path} replied {said!r}"
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
            await self.call("GET", "/health")
            if await self.is_paused():
                return "it is paused"
        except ServerError as error:
            return str(error)
        return None

    async def is_paused(self) -> bool:
        return bool(await self.read("GET", "/is_paused", lambda reply: reply["is_paused"]))

    async def pause(self) -> None:
        """Abort what runs; later requests wait for `resume`."""
        self.paused = True
        await self.call("POST", "/pause?mode=abort")

    async def resume(self) -> None:
        await self.call("POST", "/resume")
        if await self.is_paused():
            raise ServerError(f"{self.url} stays paused after /resume")
        self.paused = False

    async def sleep(self, seconds: float) -> None:
        """Give back GPU memory; the weights wait in the machine's own, the cache is dropped."""
        self.asleep = True
        await self.call("POST", "/sleep?level=1", None, seconds)

    async def wake(self, seconds: float) -> None:
        if self.asleep:
            await self.call("POST", "/wake_up", None, seconds)
            self.asleep = False

    async def check_weights(self) -> bool:
        """True where the server says that it has the weights that it took last, False where it does
        not say. Raises ServerError where it has others: it has started again, or another program
        gave it some."""
        try:
            found = await self.read("GET", "/weight_info", lambda reply: reply["weight_version"])
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
            body = {"action": "checksum"}
            found = await self.read(
                "POST", "/weight_checker", lambda reply: dict(reply["checksums"]), body, seconds
            )
        except ServerError as error:
            if error.status == 404:
                return False
            raise
        if _NOTHING in found.values():  # a CPU's kernels hold copies of the weights
            return False
        before, self.checksums = self.checksums, found
        return bool(found == before)

    async def reset_cache(self) -> None:
        """Forget what earlier weights made of prompts; blocks may still be held for a moment."""
        deadline = time.monotonic() + CALL_SECONDS

        def is_done(reply: Any) -> bool:
            return reply is None or bool(reply.get("success", True))

        while not await self.read("POST", "/reset_prefix_cache", is_done):
            if time.monotonic() > deadline:
                raise ServerError(f"{self.url} does not reset its cache of prompts")
            await asyncio.sleep(0.02)

    async def complete(
        self, row: Row, *, stop_ids: frozenset[int], biases: Mapping[str, float]
    ) -> None:
        """Sample one row to its end; `row` holds what has arrived if it is cancelled.

        Raises ServerError where the server did not finish it, NonFiniteError for log-probabilities
        that are not numbers.
        """
        path = "/v1/completions"
        body = payload(row, self.model, stop_ids, biases)
        sent = body["prompt"]
        try:
            async with self._client.stream("POST", path, json=body) as reply:
                if reply.status_code != 200:
                    text = (await reply.aread()).decode("utf-8", "replace")
                    self._decoded(path, reply.status_code, text)
                async for line in reply.aiter_lines():
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        self.heard = time.monotonic()
                        self._take(row, from_json(data), sent, stop_ids)
                    if row.finish_reason is not None:
                        return
        except (httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            message = f"{self.url}{path}: {type(error).__name__}: {error}"
            raise ServerError(message) from error
        raise ServerError(f"{self.url}{path}: the reply ended before its completion did")

    def _take(
        self, row: Row, chunk: Mapping[str, Any], sent: list[int], stop_ids: frozenset[int]
    ) -> None:
        """The tokens of one piece of the stream."""
        if "error" in chunk:
            raise ServerError(f"{self.url}: {chunk['error']}")
        for choice in chunk["choices"]:
            read = choice.get("prompt_token_ids")
            if read is not None and read != sent:
                raise GroupwiseError(
                    f"{self.url} read other ids than it was sent: {read[:8]}... for {sent[:8]}..."
                )
            ids = choice.get("token_ids") or []
            found = choice.get("logprobs") or {}
            logprobs: Sequence[float | None] = found.get("token_logprobs") or []
            if len(ids) != len(logprobs):
                raise ServerError(f"{self.url}: {len(ids)} ids with {len(logprobs)} logprobs")
            for place, (token, logprob) in enumerate(zip(ids, logprobs)):
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
                    self._take_top(row, found["top_logprobs"][place])
                row.end_at(token, stop_ids)
                if row.finish_reason is not None:
                    return
            reason = choice.get("finish_reason")
            if reason == "stop":  # a stop string whose text this template decodes otherwise
                row.finish_reason = "stop"
            elif reason is not None:
                raise ServerError(f"{self.url} ended a request early: {reason}")

    def _take_top(self, row: Row, given: Mapping[str, float]) -> None:
        best = sorted(
            (-value, int(name.removeprefix("token_id:"))) for name, value in given.items()
        )
        best = best[: row.request.top_k]
        row.top_ids.append(tuple(token for _, token in best))
        row.top_logprobs.append(tuple(-value for value, _ in best))

    async def close(self) -> None:
        await self._client.aclose()


def payload(
    row: Row, model: str, stop_ids: frozenset[int], biases: Mapping[str, float]
) -> dict[str, Any]:
    """The body of a request. Every sampling setting is written out: a server has defaults of its
    own, from the model's generation config."""
    request = row.request
    return {
        "model": model,
        "prompt": list(row.context),
        "max_tokens": request.max_tokens - len(row.ids),
        "temperature": 0.0 if request.greedy else request.temperature,
        "seed": (request.key + len(row.ids) * _STRIDE) % SEEDS,  # what continues draws other noise
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": dict(biases),
        "stop": list(request.stop_strings),
        "stop_token_ids": sorted(stop_ids),
        "ignore_eos": True,  # the template's stop ids are all that end it
        "logprobs": request.top_k,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "stream": True,
        "stream_interval": 8,  # tokens a piece of the stream
    }
