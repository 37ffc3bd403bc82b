"""Requests in progress: their tokens so far, the next draw, and why they ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from groupwise.errors import NonFiniteError
from groupwise.randomness import uniforms
from groupwise.samplers.draw import Draws, Truncation, draw
from groupwise.templates import StopStrings, Template
from groupwise.types import Completion, FinishReason, Request


class Picked:
    """`Draws` of R rows as plain lists, read once for all of them."""

    def __init__(self, draws: Draws) -> None:
        self.ids: list[int] = draws.ids.tolist()
        self.logprobs: list[float] = draws.logprobs.tolist()
        self.entropies = None if draws.entropies is None else draws.entropies.tolist()
        self.top_ids = None if draws.top_ids is None else draws.top_ids.tolist()
        self.top_logprobs = None if draws.top_logprobs is None else draws.top_logprobs.tolist()
        self.supports = draws.supports


@dataclass
class Row:
    """A request, its place in the call, and what was sampled for it.

    `started` is the monotonic time at which the request was given to the sampler.
    """

    request: Request
    place: int
    stops: StopStrings | None
    started: float = field(default_factory=time.monotonic)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    top_ids: list[tuple[int, ...]] = field(default_factory=list)
    top_logprobs: list[tuple[float, ...]] = field(default_factory=list)
    supports: list[tuple[int, ...]] = field(default_factory=list)
    experts: list[bytes] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @classmethod
    def of(cls, place: int, request: Request, template: Template) -> Row:
        """The row of a request that is given to the sampler now."""
        strings, begun = request.stop_strings, request.begun
        row = cls(request, place, template.stop_strings(strings) if strings else None)
        if begun is not None:
            row.ids, row.logprobs = list(begun.token_ids), list(begun.sampler_logprobs)
            row.entropies = list(begun.entropies or ())
            row.top_ids = list(begun.top_ids or ())
            row.top_logprobs = list(begun.top_logprobs or ())
            row.supports = list(begun.supports or ())
        return row

    @property
    def context(self) -> tuple[int, ...]:
        """The ids that a decoder runs before the row's next draw, from the prompt on."""
        return (*self.request.prompt_ids, *self.ids)

    def take(self, picked: Picked, index: int, stop_ids: frozenset[int]) -> None:
        """Append row `index` of the draws; the row ends where it says so."""
        token = picked.ids[index]
        request = self.request
        self.ids.append(token)
        self.logprobs.append(picked.logprobs[index])
        if picked.entropies is not None and request.entropies:
            self.entropies.append(picked.entropies[index])
        if picked.top_ids is not None and picked.top_logprobs is not None and request.top_k:
            self.top_ids.append(tuple(picked.top_ids[index][: request.top_k]))
            self.top_logprobs.append(tuple(picked.top_logprobs[index][: request.top_k]))
        if picked.supports is not None and request.truncates:
            self.supports.append(picked.supports[index])
        self.end_at(token, stop_ids)

    def end_at(self, token: int, stop_ids: frozenset[int]) -> None:
        """The row ends if its newest token says so, or is the last that it may have."""
        if token in stop_ids or (self.stops is not None and self.stops.ended(self.ids)):
            self.finish_reason = "stop"
        elif len(self.ids) >= self.request.max_tokens:
            self.finish_reason = "length"
        elif 0 < self.request.pause_after <= len(self.ids) - self._num_begun:
            self.finish_reason = "paused"

    @property
    def _num_begun(self) -> int:
        return 0 if self.request.begun is None else self.request.begun.num_tokens

    def pause(self) -> None:
        """End it here where it has not ended, to be continued."""
        self.finish_reason = self.finish_reason or "paused"

    def expire(self, now: float) -> bool:
        """End an unfinished row that is past its deadline. True where it has ended."""
        limit = self.request.deadline
        if self.finish_reason is None and limit is not None and now - self.started > limit:
            self.finish_reason = "deadline"
        return self.finish_reason is not None

    def _experts(self) -> tuple[bytes, ...]:
        """`Completion.experts`; what was begun keeps the experts that it was sampled with."""
        if not self.ids:
            return ()
        before = None if self.request.begun is None else self.request.begun.experts
        num_new = len(self.ids) - self._num_begun
        if not before:
            return tuple(self.experts)
        return (*before, *self.experts[len(self.experts) - num_new :])

    def completion(self, template: Template, version: int) -> Completion:
        """The completion that the sampler returns for this row."""
        text = template.decode_completion(self.ids)
        request = self.request
        asked_top = request.top_k > 0
        before = () if request.begun is None else request.begun.token_versions
        versions = (*before, *[version] * (len(self.ids) - len(before)))
        return Completion(
            token_ids=tuple(self.ids),
            text=self.stops.cut(text) if self.stops else text,
            sampler_logprobs=tuple(self.logprobs),
            finish_reason=self.finish_reason or "error",
            version=min(versions, default=version),
            versions=versions if len(set(versions)) > 1 else None,
            entropies=tuple(self.entropies) if request.entropies else None,
            top_ids=tuple(self.top_ids) if asked_top else None,
            top_logprobs=tuple(self.top_logprobs) if asked_top else None,
            supports=tuple(self.supports) if request.truncates and not request.greedy else None,
            experts=self._experts() if request.experts else None,
        )


class NextTokens:
    """The draws of R rows that are sampled together, their settings as tensors on `device`."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        requests = [row.request for row in rows]
        self.rows = list(rows)
        self.keys = np.array([request.key for request in requests], dtype=np.uint64)
        self.positions = np.array([len(row.ids) for row in rows], dtype=np.int64)
        self.temperatures = torch.tensor([r.temperature for r in requests], device=device)
        self.greedy = torch.tensor([r.greedy for r in requests], device=device)
        self.entropies = any(request.entropies for request in requests)
        self.top_k = max(request.top_k for request in requests)
        self.truncation = None
        if any(request.truncates and not request.greedy for request in requests):
            self.truncation = Truncation(
                top_k=torch.tensor([r.keep_top_k for r in requests], device=device),
                top_p=torch.tensor([r.keep_top_p for r in requests], device=device),
                min_p=torch.tensor([r.keep_min_p for r in requests], device=device),
            )

    def draw(self, logits: Tensor, version: int) -> Draws:
        """The next token of every row from logits [R, V]; positions count on.

        Raises NonFiniteError, naming the request, for an unfinished row without finite logits.
        """
        noise = torch.from_numpy(uniforms(self.keys, self.positions)).to(logits.device)
        draws = draw(
            logits,
            noise,
            temperatures=self.temperatures,
            greedy=self.greedy,
            entropies=self.entropies,
            top_k=self.top_k,
            truncation=self.truncation,
        )
        self.positions += 1
        if not bool(draws.finite.all()):
            self._refuse(draws.finite.tolist(), version)
        return draws

    def _refuse(self, finite: Sequence[bool], version: int) -> None:
        for row, good in zip(self.rows, finite):
            if not good and row.finish_reason is None:
                raise NonFiniteError(
                    f"request {row.place} (key {row.request.key}): the logits of completion token "
                    f"{len(row.ids)} are not finite; the weights of version {version} (that is "
                    f"after {version} steps) hold NaN or infinity, or the dtype is too narrow for "
                    "them"
                )
