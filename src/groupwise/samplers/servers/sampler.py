"""`ServerSampler`: the sampler contract over servers, vLLM's or SGLang's.

They draw from a seed a request and their own noise, not by the inverse CDF of the other samplers:
the same key gives the same seed, and the same tokens as far as the engine repeats itself.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.distributed import ALONE, Ranks
from groupwise.distributed.launch import sigterm_leaves
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies.adapters import has_adapter
from groupwise.policies.heads import text_config
from groupwise.policies.policy import Policy
from groupwise.samplers.contract import Pause, Then, check_length
from groupwise.samplers.rows import Row
from groupwise.samplers.servers.probe import Probe, probe_ids
from groupwise.samplers.servers.process import ServerProcess, start_server
from groupwise.samplers.servers.refresh import refresh, same_model
from groupwise.samplers.servers.server import Server, ServerError
from groupwise.samplers.servers.settings import ServerSettings, VllmSettings, check_here
from groupwise.samplers.servers.sglang import SglangServer
from groupwise.samplers.servers.transfer import transfer
from groupwise.samplers.servers.vllm import VllmServer, load_adapter
from groupwise.samplers.servers.weights import Handover
from groupwise.types import Completion, Request
from groupwise.waiting.calls import EventLoop

ENGINES: dict[str, type[Server]] = {"vllm": VllmServer, "sglang": SglangServer}
_WATCH = 1.0  # seconds between looks at servers that are silent
_TICK = 0.05  # seconds between questions whether it is to pause
_PATIENCE = 30.0
_FOREVER = 1e9
_IDLE = 5.0  # seconds without a token in which a server may have started again
_REVIVALS = (0.5, 2.0, 8.0)  # seconds before lost servers are asked again where none is left


@dataclass(slots=True)
class _Flight:
    """A row that a server is sampling."""

    row: Row
    server: Server


class ServerSampler:
    """Samples on servers that hold the policy's weights; see `Sampler` for the contract.

    Raises RecipeError for a server of another model, tokenizer or vocabulary, GroupwiseError where
    a server cannot be started or reached. Nothing is sampled before a server has taken the weights
    and passed the probe. `notes` are for a person; `take_notes` gives what happened since.

    On several `ranks` each samples for itself, and all call `load` and the constructor together:
    rank 0 gives the servers the weights.
    """

    def __init__(
        self,
        policy: Policy,
        settings: ServerSettings,
        *,
        batch_rows: int = 128,
        ranks: Ranks = ALONE,
    ) -> None:
        self.settings, self.batch_rows, self.ranks = settings, batch_rows, ranks
        self._engine = ENGINES[settings.engine]
        self._vllm = settings if isinstance(settings, VllmSettings) else None
        self.policy, self.version = policy, policy.version
        self.process: ServerProcess | None = None
        self.servers: list[Server] = []
        self._news: list[tuple[str, str]] = []
        self._probe: Probe | None = None
        self._transfers: dict[str, Callable[[], Any]] = {}
        self._loaded = False
        self._running: Future[Any] | None = None
        absent = policy.absent_ids
        self._biases = {} if absent is None else {str(each): -100.0 for each in absent.tolist()}
        is_lora = self._vllm is not None and self._vllm.refresh == "lora"
        check_here(settings, adapter=has_adapter(policy.model))
        headers = settings.headers()
        is_started = self._vllm is not None and self._vllm.python is not None
        untied = is_started and policy.device.type == "cpu"
        self._handover = Handover(policy, settings.folder, adapter=is_lora, untied=untied)
        self._loop = EventLoop()
        try:
            urls = settings.servers or (ranks.first(lambda: self._started(policy)),)
            self.servers = [self._engine(url, headers, self._has) for url in urls]
            ranks.together(lambda: self._connect(policy))
        except BaseException:
            self.close()
            raise

    def _connect(self, policy: Policy) -> None:
        self._leave_out(self._together(same_model(each, policy) for each in self.servers))

    def _has(self, token: int) -> bool:
        size = text_config(self.policy.model).vocab_size
        return isinstance(token, int) and 0 <= token < size and str(token) not in self._biases

    def _started(self, policy: Policy) -> str:
        """The address of a server that the run starts."""
        assert self._vllm is not None
        self.process = start_server(policy, self._vllm, self._handover, self.batch_rows)
        self.process.wait(self._vllm.start_seconds)
        return self.process.url

    # --- weights --------------------------------------------------------------------------------

    def load(self, policy: Policy, version: int) -> None:
        """Every server takes `policy`'s present weights and is probed.

        A server that fails is left out until the next load, and named. Raises GroupwiseError where
        none is left; no server is left paused.
        """
        self._loaded = False
        self.policy, self.version = policy, version
        longest = min((each.max_length for each in self.servers if each.max_length), default=0)
        ids = self.ranks.gather(probe_ids(policy, longest or policy.max_length))[0]
        self._probe = Probe(policy, ids, self._probe)
        found = self.ranks.first(self._hand_over)
        if not self.ranks.leads:
            for server, (lost, weights, model, length) in zip(self.servers, found, strict=True):
                self._lose(server, lost)
                server.probed = lost is None
                server.weights, server.model, server.max_length = weights, model, length
        self._loaded = True

    def _hand_over(self) -> list[tuple[str | None, str | None, str, int]]:
        """The servers take the weights; what the other ranks need to know of each."""
        folder = None
        if self._vllm is not None and self._vllm.refresh == "nccl":
            self._handover.check(self.policy)
        else:
            folder = self._handover.write(self.policy)
        with sigterm_leaves():  # no server is left paused, even before the run handles signals
            failed = self._together(self._refreshed(each, folder) for each in self.servers)
        self._handover.drop(folder) if all(failed) else self._handover.keep(folder)
        self._leave_out(failed)
        return [(each.lost, each.weights, each.model, each.max_length) for each in self.servers]

    async def _refreshed(self, server: Server, folder: Path | None) -> None:
        """One server takes the weights; ServerError where it does not, or fails the probe."""
        assert self._probe is not None
        probe, seconds, good = self._probe, self.settings.refresh_seconds, self._handover.good
        server.probed = False
        server.weights = f"version-{self.version}-{probe.name}"  # the same from every sampler
        if server.lost is not None:  # it may be another one now
            await same_model(server, self.policy)
        await server.wake(seconds)
        if folder is None:
            await refresh(
                server, partial(transfer, server, self.policy, seconds, self._transfers), None
            )
        elif self._handover.adapter:
            name = f"version-{self.version}-{uuid.uuid4().hex[:8]}"
            assert isinstance(server, VllmServer)
            await load_adapter(server, folder, name, seconds)
        else:
            back = None if good is None else partial(server.load_folder, good, seconds)
            take = partial(server.load_folder, folder, seconds)
            await refresh(server, take, back)
        await self._pass_probe(server)
        whole = not self._handover.adapter
        if whole and await server.same_as_before(seconds) and probe.moved:
            problem = "its checksums are those of the version before: it kept its weights"
            raise ServerError(f"{server.url} is not used: {problem}")
        server.probed = True

    async def _pass_probe(self, server: Server) -> None:
        assert self._probe is not None
        seconds = self.settings.refresh_seconds
        reply = await server.score(self._probe.ids, self._biases, seconds)
        problem = await asyncio.to_thread(self._probe.problem, reply, server.raw, server.hint)
        if problem is not None:
            raise ServerError(f"{server.url} is not used: {problem}")

    def _together(
        self, calls: Sequence[Coroutine[Any, Any, None]] | Any
    ) -> list[ServerError | None]:
        """What failed of one call a server, all at once. Other errors are raised."""

        async def outcomes() -> Any:
            return await asyncio.gather(*calls, return_exceptions=True)  # none is left half done

        self._running = self._loop.start(outcomes(), _FOREVER)
        try:
            found: list[Any] = self._running.result()
        except CancelledError as error:
            raise GroupwiseError("the sampler was closed during a refresh") from error
        for each in found:
            if each is not None and not isinstance(each, ServerError):
                raise each
        return found

    def _leave_out(
        self, failed: Sequence[ServerError | None], servers: Sequence[Server] | None = None
    ) -> None:
        for server, error in zip(servers or self.servers, failed, strict=True):
            self._lose(server, None if error is None else str(error))
        self._some_server()

    def _lose(self, server: Server, reason: str | None) -> None:
        if reason is None and server.lost is not None:
            self._news.append(("sampler_server", f"{server.url} samples again"))
        if reason is not None and server.lost is None:
            self._news.append(("sampler_server", f"lost a {server.kind} server: {reason}"))
        server.lost = reason

    def _some_server(self) -> list[Server]:
        """The servers that sample. Raises GroupwiseError where none does."""
        found = [server for server in self.servers if server.lost is None]
        if not found:
            reasons = "; ".join(str(server.lost) for server in self.servers)
            raise GroupwiseError(
                f"no {self._engine.kind} server is left: {reasons}{self._log_of_process()}"
            )
        return found

    def _log_of_process(self) -> str:
        return "" if self.process is None else f". The server printed: {self.process.last_words()}"

    @property
    def notes(self) -> tuple[str, ...]:
        """How far the servers' draws repeat, the least first."""
        found = {each.draws for each in self.servers} or {self._engine.draws}
        return tuple(sorted(found, key=lambda each: each == self._engine.draws))

    def facts(self) -> dict[str, Any]:
        """What the record says of the sampler."""
        servers = {server.url: server.version for server in self.servers}
        return {
            "sampler": {"name": self.settings.engine, "servers": servers, "draws": self.notes[0]}
        }

    def take_notes(self) -> list[tuple[str, str]]:
        """(subject, message) of what happened since the last call."""
        found, self._news = self._news, []
        return found

    # --- sampling -------------------------------------------------------------------------------

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order. Raises as `play` does."""
        made: dict[int, Completion] = {}
        self.play(requests, made.__setitem__)
        return [made[place] for place in range(len(requests))]

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Sample every request and its follow-ups; see `Sampler.play`.

        A request whose server fails is sampled again, from its start, on another. Raises
        RecipeError for a request that does not fit or asks for what servers do not give,
        GroupwiseError where no server is left.
        """
        if not requests:
            return
        if not self._loaded:
            self.load(self.policy, self.version)
        else:
            servers = self._some_server()
            self._leave_out(self._together(map(self._ready, servers)), servers)
        for server in self._some_server():
            server.heard = time.monotonic()
        rows = deque(self._row(place, request) for place, request in enumerate(requests))
        flying: dict[Future[Any], _Flight] = {}
        answers: dict[Future[Any], int] = {}
        tick = _WATCH if pause is None else _TICK
        revivals = iter(_REVIVALS)
        try:
            while rows or flying or answers:
                if pause is not None and pause():
                    self._pause(flying, rows, then)
                    return
                while rows and len(flying) < self.batch_rows:
                    if all(server.lost for server in self.servers):
                        self._revive(next(revivals, None))
                    self._launch(rows.popleft(), flying)
                done, _ = wait([*flying, *answers], tick, FIRST_COMPLETED)
                for future in done:
                    if future in answers:
                        self._follow(answers.pop(future), future.result(), rows, answers)
                    elif (row := self._landed(flying.pop(future), future)).finish_reason is None:
                        rows.appendleft(self._row(row.place, row.request, row.started))
                    else:
                        completion = row.completion(self.policy.template, self.version)
                        self._follow(row.place, then(row.place, completion), rows, answers)
                self._watch(flying)
        finally:
            for future in flying:
                future.cancel()
            if self._vllm is not None and self._vllm.sleep:
                awake = [server for server in self.servers if server.lost is None]
                seconds = self.settings.refresh_seconds
                failed = self._together(server.sleep(seconds) for server in awake)
                for server, error in zip(awake, failed, strict=True):
                    self._lose(server, None if error is None else str(error))

    def _revive(self, seconds: float | None) -> None:
        """Lost servers sample again where they are well and have the weights: one reply of a proxy
        does not end a run. Raises GroupwiseError where none is, or `seconds` is None."""
        if seconds is not None:
            time.sleep(seconds)
            for server, error in zip(
                self.servers, self._together(map(self._well, self.servers)), strict=True
            ):
                if error is None:
                    self._lose(server, None)
        self._some_server()

    async def _well(self, server: Server) -> None:
        """Raises ServerError where the server cannot sample from the weights of now."""
        trouble = await server.trouble() if server.probed else str(server.lost)
        if trouble is not None:
            raise ServerError(trouble)
        if self._handover.adapter or not await server.check_weights():
            await self._pass_probe(server)

    async def _complete(self, server: Server, row: Row) -> None:
        if not self._handover.adapter and time.monotonic() - server.heard > _IDLE:
            await server.check_weights()
        stops = self.policy.template.stop_ids
        await server.complete(row, stop_ids=stops, biases=self._biases)

    async def _ready(self, server: Server) -> None:
        """Raises ServerError where the server has not the weights that it took last."""
        await server.wake(self.settings.refresh_seconds)
        if not self._handover.adapter:
            await server.check_weights()

    def _pause(self, flying: dict[Future[Any], _Flight], rows: deque[Row], then: Then) -> None:
        """Give every unfinished completion to `then`, as far as it has come."""
        for future in flying:
            future.cancel()
        self._loop.responds(_PATIENCE)  # nothing arrives after this
        for row in (*(flight.row for flight in flying.values()), *rows):
            row.pause()
            then(row.place, row.completion(self.policy.template, self.version))
        flying.clear()

    def _row(self, place: int, request: Request, started: float | None = None) -> Row:
        check_length(self.policy, place, request)
        if request.entropies or (request.truncates and not request.greedy):
            what = "entropies" if request.entropies else "a cut distribution (top_p, top_k, min_p)"
            raise RecipeError(
                f"request {place}: {self._engine.kind} does not give {what}; sample with `local`"
            )
        longest = min(server.max_length for server in self.servers if server.max_length)
        if len(request.prompt_ids) + request.max_tokens > longest:
            raise RecipeError(
                f"request {place}: {len(request.prompt_ids)} prompt tokens and max_tokens = "
                f"{request.max_tokens} are more than the {longest} tokens that the "
                f"{self._engine.kind} server takes; start it for longer rows, or lower "
                "sampling.max_tokens"
            )
        row = Row.of(place, request, self.policy.template)
        row.started = started or row.started
        return row

    def _launch(self, row: Row, flying: dict[Future[Any], _Flight]) -> None:
        """Give a row to the server with the fewest; ties by the prompt, so that a group shares one
        server's cache."""
        servers = self._some_server()
        load = [sum(flight.server is server for flight in flying.values()) for server in servers]
        home = hash(row.request.prompt_ids) % len(servers)
        # A server with a few rows more still wins where the prompt's first keys and values are.
        chosen = min(
            range(len(servers)), key=lambda each: (load[each] - (4 if each == home else 0), each)
        )
        server = servers[chosen]
        limit = row.request.deadline
        left = _FOREVER if limit is None else limit - (time.monotonic() - row.started)
        call = self._loop.start(self._complete(server, row), max(left, 0.0))
        flying[call] = _Flight(row, server)

    def _landed(self, flight: _Flight, future: Future[None]) -> Row:
        """The row, without a finish reason where another server has to sample it."""
        row, server = flight.row, flight.server
        try:
            future.result()
        except TimeoutError:
            row.finish_reason = "deadline"
        except CancelledError:  # its server was silent
            pass
        except ServerError as error:
            if error.status in (400, 422):
                raise RecipeError(f"request {row.place} is refused: {error}") from error
            self._lose(server, str(error))
        return row

    def _follow(
        self,
        place: int,
        answer: Request | Future[Request | None] | None,
        rows: deque[Row],
        answers: dict[Future[Any], int],
    ) -> None:
        if isinstance(answer, Future):
            answers[answer] = place
        elif answer is not None:
            rows.append(self._row(place, answer))

    def _watch(self, flying: dict[Future[Any], _Flight]) -> None:
        """Servers that have been silent with requests are asked why; their rows go elsewhere."""
        now = time.monotonic()
        for server in self.servers:
            mine = [future for future, flight in flying.items() if flight.server is server]
            if not mine or server.lost or now - server.heard < self.settings.silent_seconds:
                continue
            server.heard = now
            trouble = self._loop.start(server.trouble(), _FOREVER).result()
            if trouble is None:
                continue
            self._lose(server, f"{server.url}: {trouble}")
            for future in mine:
                future.cancel()

    def close(self) -> None:
        """Resume what is paused, delete the folders, and end a server that was started here."""
        try:
            if self._running is not None:  # a refresh that was interrupted: not waited for
                self._running.cancel()
            if self.process is None:
                self._together(each.resume() for each in self.servers if each.paused)
                self._together(each.wake(_PATIENCE) for each in self.servers)
            self._together(each.close() for each in self.servers)
        finally:
            self._loop.stop()
            if self.process is not None:
                self.process.close()
            self._handover.close()
