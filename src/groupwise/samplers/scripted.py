"""The `scripted` sampler: returns completions from a script, without a model. For tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.policies.policy import Policy
from groupwise.samplers.contract import Pause, Then, play_in_waves
from groupwise.templates import Template
from groupwise.types import Completion, FinishReason, Request

Reply = str | Sequence[int]
Script = Callable[[Request, int], Reply] | Sequence[Reply]


class ScriptedSampler:
    """Completions from a script.

    The script is a function of (request, its place in the call), or a list of replies used in turn
    over all requests, which starts again when it is used up. A text reply is encoded and ended with
    a stop id; a reply of ids is taken as it is. Both are cut at `max_tokens`.
    """

    def __init__(
        self, template: Template, script: Script, *, logprob: float = -0.5, version: int = 0
    ) -> None:
        self.template = template
        self.script = script
        self.logprob = logprob
        self.version = version
        self.requests: list[Request] = []
        self._used = 0

    def load(self, policy: Policy, version: int) -> None:
        """Only the version is taken."""
        self.version = version

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Whole lists, one after the other; see `Sampler.play`."""
        play_in_waves(self.sample, requests, then)

    def close(self) -> None:
        """Nothing is held."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order; the requests are kept in `self.requests`."""
        self.requests.extend(requests)
        return [self._completion(request, place) for place, request in enumerate(requests)]

    def _completion(self, request: Request, place: int) -> Completion:
        reply = self._reply(request, place)
        if isinstance(reply, str):
            end = min(self.template.stop_ids, default=None)
            ids = (*self.template.encode(reply), *(() if end is None else (end,)))
        else:
            ids = tuple(reply)
        ids, reason = self._cut(ids, request)
        stops = self.template.stop_strings(request.stop_strings)
        return Completion(
            token_ids=ids,
            text=stops.cut(self.template.decode_completion(ids)),
            sampler_logprobs=(self.logprob,) * len(ids),
            finish_reason=reason,
            version=self.version,
            entropies=(0.0,) * len(ids) if request.entropies else None,
        )

    def _cut(self, ids: tuple[int, ...], request: Request) -> tuple[tuple[int, ...], FinishReason]:
        """End at the first stop id, stop string or at `max_tokens`, as a real sampler does."""
        stops = self.template.stop_strings(request.stop_strings)
        for end in range(1, min(len(ids), request.max_tokens) + 1):
            if ids[end - 1] in self.template.stop_ids or stops.ended(ids[:end]):
                return ids[:end], "stop"
        return ids[: request.max_tokens], "length"

    def _reply(self, request: Request, place: int) -> Reply:
        if callable(self.script):
            return self.script(request, place)
        self._used += 1
        return self.script[(self._used - 1) % len(self.script)]
