"""The `transformers` sampler: any causal language model, one batch at a time, with a KV cache.

Each distinct prompt of a batch is prefilled once. Rows leave the batch as they finish.
Shapes: R rows in the batch, U distinct prompts, S tokens of the longest, V vocabulary.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from groupwise.errors import RecipeError
from groupwise.policies.heads import Head, head_of, text_config
from groupwise.policies.policy import Policy, evaluating
from groupwise.policies.routing import noting, packed_experts, stacked
from groupwise.samplers.contract import Pause, Then, check_length, play_in_waves
from groupwise.samplers.draw import Draws
from groupwise.samplers.rows import NextTokens, Picked, Row
from groupwise.samplers.weights import SamplingWeights
from groupwise.types import Completion, Request

# Finished rows are taken out once they are this share of the batch: taking them out copies the
# cache, leaving them in computes tokens that are not used.
_COMPACT_AT = 0.25


class TransformersSampler:
    """Samples with the learner's own weights in this process; see `Sampler` for the contract."""

    def __init__(
        self, policy: Policy, *, batch_rows: int = 128, notes: tuple[str, ...] = ()
    ) -> None:
        if batch_rows < 1:
            raise RecipeError(f"sampling.batch_rows = {batch_rows}; give 1 or more")
        self.batch_rows = batch_rows
        self.notes = notes
        self.load(policy, policy.version)

    def load(self, policy: Policy, version: int) -> None:
        """Sample from `policy`'s present weights; no key or value of older ones is kept."""
        weights = getattr(self, "_weights", None)
        if weights is None or not weights.follow(policy):
            self._weights = SamplingWeights(policy)
        else:
            weights.refresh()
        self.policy = policy
        self.version = version

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Whole lists, one after the other; see `Sampler.play`."""
        play_in_waves(partial(self.sample, pause=pause), requests, then)

    def close(self) -> None:
        """Drop the copies of weights."""
        del self._weights

    def sample(self, requests: Sequence[Request], pause: Pause | None = None) -> list[Completion]:
        """One completion per request, in order; paused ones where `pause` says so.

        Raises RecipeError where a request is longer than the model has positions for, and
        NonFiniteError, naming the request, where its logits are not finite.
        """
        rows = [self._row(place, request) for place, request in enumerate(requests)]
        model = self._weights.model
        with torch.inference_mode(), evaluating(model), self.policy.compute():
            for batch in self._batches(rows):
                _Decoding(self.policy, head_of(model), text_config(model), batch, pause).run()
        return [row.completion(self.policy.template, self.version) for row in rows]

    def _row(self, place: int, request: Request) -> Row:
        check_length(self.policy, place, request)
        return Row.of(place, request, self.policy.template)

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows of like prompt length together, so that little is padded; ties keep their order."""
        ordered = sorted(rows, key=lambda row: len(row.context))
        for start in range(0, len(ordered), self.batch_rows):
            yield ordered[start : start + self.batch_rows]


class _Decoding:
    """One batch from its prompts to its last token."""

    def __init__(
        self, policy: Policy, head: Head, config: Any, rows: list[Row], pause: Pause | None
    ) -> None:
        self.policy = policy
        self.pause = pause
        self.contexts = {row.place: row.context for row in rows}
        self.head = head
        self.rows = rows
        self.stop_ids = policy.template.stop_ids
        longest = max(len(row.context) for row in rows)
        self.prefill_width = longest
        capacity = longest + max(row.request.max_tokens for row in rows)
        self.cache = DynamicCache(config=config)
        names = inspect.signature(type(head.decoder).forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        self.mask = torch.zeros((0, capacity), dtype=torch.int64)
        self.notes_experts = any(row.request.experts for row in rows)
        self.experts: list[bytes] = []  # of the last pass, one entry a token; none unless noted
        self._index_rows()

    def run(self) -> None:
        """Decode until every row has its finish reason."""
        self._past_deadline()
        if all(row.finish_reason is not None for row in self.rows):
            return
        logits: Tensor | None = None
        step = 0
        while True:
            if self.pause is not None and self.pause():
                for row in self.rows:
                    row.pause()
                return
            logits = self._prefill() if logits is None else logits
            draws = self.next_tokens.draw(logits, self.policy.version)
            self._append(draws)
            alive = [place for place, row in enumerate(self.rows) if row.finish_reason is None]
            if not alive:
                return
            ids = draws.ids
            if len(alive) <= (1.0 - _COMPACT_AT) * len(self.rows):
                ids = ids[self._compact(alive)]
            logits = self._decode(ids, step)
            step += 1

    # One token for every row.

    def _index_rows(self) -> None:
        """Per-row settings as tensors, made again whenever rows leave."""
        self.next_tokens = NextTokens(self.rows, self.policy.device)
        self.prompt_lengths = torch.tensor(
            [len(self.contexts[row.place]) for row in self.rows], device=self.policy.device
        )

    def _append(self, draws: Draws) -> None:
        picked = Picked(draws)
        for index, row in enumerate(self.rows):
            if row.finish_reason is None:
                row.take(picked, index, self.stop_ids)
        self._past_deadline()

    def _past_deadline(self) -> None:
        now = time.monotonic()
        for row in self.rows:
            row.expire(now)

    # The forward passes.

    def _prefill(self) -> Tensor:
        """Every distinct prompt once, left-padded; then each row's own copy. Logits [R, V]."""
        device = self.policy.device
        contexts = [self.contexts[row.place] for row in self.rows]
        prompts = list(dict.fromkeys(contexts))
        width = self.prefill_width
        ids = torch.full((len(prompts), width), self.policy.template.pad_id, dtype=torch.int64)
        mask = torch.zeros((len(prompts), self.mask.shape[1]), dtype=torch.int64)
        for place, prompt in enumerate(prompts):
            ids[place, width - len(prompt) :] = torch.tensor(prompt)
            mask[place, width - len(prompt) :] = 1
        self.mask = mask.to(device)
        positions = (self.mask[:, :width].cumsum(-1) - 1).clamp(min=0)
        logits = self._forward(ids.to(device), positions, width)
        number = {prompt: place for place, prompt in enumerate(prompts)}
        for row, context in zip(self.rows, contexts) if self.experts else ():
            end = (number[context] + 1) * width
            row.experts.extend(self.experts[end - len(context) : end])
        expand = torch.tensor([number[each] for each in contexts], device=device)
        if len(prompts) != len(self.rows):
            self.cache.batch_select_indices(expand)
        self.mask = self.mask[expand]
        return logits[expand]

    def _decode(self, ids: Tensor, step: int) -> Tensor:
        positions = (self.prompt_lengths + step)[:, None]
        logits = self._forward(ids[:, None], positions, self.prefill_width + step + 1)
        for row, experts in zip(self.rows, self.experts):
            if row.finish_reason is None:
                row.experts.append(experts)
        return logits

    def _forward(self, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """Logits [R, V] after the newest token of every row; only those are projected."""
        with noting(self.head.decoder, self.notes_experts) as chosen:
            output = self.head.decoder(
                input_ids=ids,
                attention_mask=self.mask[:, :length],
                position_ids=positions,
                use_cache=True,
                **{self.cache_name: self.cache},
            )
        self.experts = packed_experts(stacked(chosen))
        with torch.autocast(ids.device.type, enabled=False):
            raw = self.head.linear(output.last_hidden_state[:, -1].to(self.head.dtype))
        logits = self.head.rule.apply_(raw)
        absent = self.policy.absent_ids
        return logits if absent is None else logits.index_fill_(1, absent, -torch.inf)

    def _compact(self, alive: list[int]) -> Tensor:
        """Keep only the rows in `alive`; returns their places."""
        keep = torch.tensor(alive, device=self.policy.device)
        self.rows = [self.rows[place] for place in alive]
        self.cache.batch_select_indices(keep)
        self.mask = self.mask[keep]
        self._index_rows()
        return keep
