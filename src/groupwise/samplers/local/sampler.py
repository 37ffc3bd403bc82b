"""`LocalSampler`: implements `Sampler` on the learner's own weights."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from groupwise.errors import RecipeError
from groupwise.policies.heads import head_of
from groupwise.policies.policy import Policy, evaluating
from groupwise.samplers.contract import Pause, Then, check_length
from groupwise.samplers.local.attention import Prefill
from groupwise.samplers.local.cache import Cache, bytes_per_token
from groupwise.samplers.local.decoder import Decoder, read_decoder
from groupwise.samplers.local.head import SamplingHead
from groupwise.samplers.local.run import Counts, Run
from groupwise.samplers.local.schedule import Schedule
from groupwise.samplers.local.static import StaticSteps
from groupwise.samplers.local.weights import Matrix, why_not_int8
from groupwise.types import Completion, Request

# Below this many parameters packing costs more than it saves.
SMALL = 10_000_000
# A description is tried in float32 up to this many parameters, on this many tokens.
_TRIED_EXACTLY = 500_000_000
_TOKENS_TRIED = 24
# Tokens that the sizes of a quantised decoder's inputs are read from.
_TOKENS_NOTED = 64
# The share of the machine's (or the device's) whole memory that keys and values may take unless a
# budget is set. Of the whole and not of what is free: what is decoded together must not depend on
# what else runs.
_SHARE = 0.25


class LocalSampler:
    """Samples with the learner's own weights in this process; see `Sampler` for the contract.

    `batch_rows` is the most completions decoded at once, `cache_bytes` what their keys and values
    may take; the tighter one decides. `counts` adds up over calls. `static` decodes on tensors of
    fixed shapes, which a GPU replays as a CUDA graph; it is on where there is one.
    `quantise` keeps the matrices in int8, the learner's stay as they are; see docs/sampling.md.
    Raises RecipeError where `why_not(policy)` has a reason, or the device cannot quantise.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        batch_rows: int = 128,
        cache_bytes: int | None = None,
        quantise: bool = False,
    ) -> None:
        if batch_rows < 1:
            raise RecipeError(f"sampling.batch_rows = {batch_rows}; give 1 or more")
        problem = why_not_int8(policy.device) if quantise else None
        if problem is not None:
            raise RecipeError(f"sampling.quantise = 'int8': {problem}; leave it out")
        self.batch_rows = batch_rows
        self.cache_bytes = cache_bytes
        self.quantise = quantise
        self.counts = Counts()
        self.static = policy.device.type == "cuda"
        self.decoder: Decoder | None = None
        self._read_from: tuple[torch.dtype, list[int]] | None = None
        self.load(policy, policy.version)

    # --- weights --------------------------------------------------------------------------------

    def load(self, policy: Policy, version: int) -> None:
        """Sample from `policy`'s present weights; no key or value of older ones is kept."""
        parameters = [id(parameter) for parameter in policy.model.parameters()]
        read = (policy.dtype, parameters)
        known = self.decoder is not None and read == self._read_from
        if not known:
            self._read(policy)
            self._read_from = read
        assert self.decoder is not None
        if self.quantise:
            _note_inputs(policy, self.decoder, self.head)
        if known or self.quantise:
            self.decoder.refresh()
            self.head.refresh()
        self.policy = policy
        self.version = version

    def _read(self, policy: Policy) -> None:
        decoder = _decoder_of(policy, quantise=self.quantise)
        if isinstance(decoder, str):
            raise RecipeError(f"sampling.sampler = 'local': {decoder}")
        self.decoder = decoder
        self.head = SamplingHead(
            head_of(policy.model),
            pack=policy.num_parameters >= SMALL,
            half=decoder.dtype == torch.bfloat16,
            quantise=self.quantise,
            absent=policy.absent_ids,
        )

    def close(self) -> None:
        """Drop the copies of weights."""
        self.decoder = None
        del self.head

    # --- sampling -------------------------------------------------------------------------------

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order.

        Raises RecipeError where a request is longer than the model has positions for or the budget
        too small for one row, and NonFiniteError, naming the request, where its logits are not
        finite.
        """
        made: dict[int, Completion] = {}
        self.play(requests, made.__setitem__)
        return [made[place] for place in range(len(requests))]

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Sample every request and its follow-ups; see `Sampler.play`."""
        if not requests:
            return
        assert self.decoder is not None
        for place, request in enumerate(requests):
            check_length(self.policy, place, request)
        with torch.inference_mode(), evaluating(self.policy.model):
            cache = self._cache(self.decoder, requests)
            schedule = Schedule(self.policy, cache, requests, then, self.version)
            static = self._static_steps(self.decoder, cache, requests) if self.static else None
            Run(self.decoder, self.head, cache, schedule, self.counts, static).run(pause)
        del cache, static
        self._play_left(schedule, then, pause)

    def _play_left(self, schedule: Schedule, then: Then, pause: Pause | None) -> None:
        """Sample the follow-ups of requests that ended while they waited."""
        answers = [
            (place, answer.result() if isinstance(answer, Future) else answer)
            for place, answer in schedule.left
        ]
        following = [(place, request) for place, request in answers if request is not None]
        places = [place for place, _ in following]
        self.play(
            [request for _, request in following],
            lambda number, completion: then(places[number], completion),
            pause,
        )

    def _cache(self, decoder: Decoder, requests: Sequence[Request]) -> Cache:
        """As many rows as the budget has room for, each at its longest."""
        token = bytes_per_token(decoder)
        prompt = max(len(request.prompt_ids) for request in requests)
        own = max(max(request.max_tokens, request.room) for request in requests)
        distinct = len({request.prompt_ids for request in requests})
        share = -(-len(requests) // distinct)
        budget = self.cache_bytes
        if budget is None:
            budget = memory_budget(self.policy.device)
        rows = min(self.batch_rows, len(requests))
        while rows and token * (_groups(rows, share, distinct) * prompt + rows * own) > budget:
            rows -= 1
        if not rows:
            least = token * (_groups(1, share, distinct) * prompt + own)
            raise RecipeError(
                f"sampling.cache_gigabytes = {budget / 1e9:.6g}: one completion of {own} tokens "
                f"behind a prompt of {prompt} needs {least / 1e9:.6g}; give at least that, or "
                "lower sampling.max_tokens"
            )
        return Cache(
            decoder,
            rows=rows,
            groups=_groups(rows, share, distinct),
            longest_prompt=prompt,
            device=self.policy.device,
            spare=self.static,
        )

    def _static_steps(
        self, decoder: Decoder, cache: Cache, requests: Sequence[Request]
    ) -> StaticSteps:
        group = Counter(request.prompt_ids for request in requests).most_common(1)[0][1]
        longest = max(len(request.prompt_ids) for request in requests)
        return StaticSteps(decoder, cache, largest=min(group, cache.rows), longest_prompt=longest)


def _groups(rows: int, share: int, distinct: int) -> int:
    """Prompts in the cache at once: those of full groups, and one that is just coming or going."""
    return min(distinct, -(-rows // share) + 1)


def memory_budget(device: torch.device) -> int:
    """Bytes that keys and values may take unless set: a quarter of the whole memory."""
    if device.type == "cuda":
        return int(_SHARE * torch.cuda.get_device_properties(device).total_memory)
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return int(_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 2 * 2**30


def why_not(policy: Policy) -> str | None:
    """None for a policy that can be decoded here, else the reason in a few words."""
    decoder = _decoder_of(policy)
    return decoder if isinstance(decoder, str) else None


def _decoder_of(policy: Policy, *, quantise: bool = False) -> Decoder | str:
    """The decoder of a policy, tested against the model itself; else the reason why not.

    The test is in float32 if a second copy of the weights is small.
    """
    exact = torch.promote_types(head_of(policy.model).dtype, torch.float32)
    dtype = policy.dtype if policy.dtype == torch.bfloat16 else exact
    tried = exact if policy.num_parameters <= _TRIED_EXACTLY else dtype
    probe = read_decoder(policy.model, tried, pack=False)
    if isinstance(probe, str):
        return probe
    if not _agrees(policy, probe):
        return "it differs from the other models of its family"
    if tried == dtype and policy.num_parameters < SMALL and not quantise:
        return probe
    pack = policy.num_parameters >= SMALL
    return read_decoder(policy.model, dtype, pack=pack, quantise=quantise)


@torch.no_grad()
def _note_inputs(policy: Policy, decoder: Decoder, head: SamplingHead) -> None:
    """Tell every matrix how large its inputs get, by a pass of the model over some tokens."""

    def noting(matrix: Matrix) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            matrix.largest = _largest(inputs[0])

        return note

    hooks = [each.layers[0].register_forward_pre_hook(noting(each)) for each in decoder.matrices]
    try:
        with evaluating(policy.model), policy.compute():
            ids = _some_ids(policy, min(_TOKENS_NOTED, policy.max_length))
            head.largest = _largest(head_of(policy.model).hidden_states(ids[None]))
    finally:
        for hook in hooks:
            hook.remove()


def _largest(inputs: Tensor) -> Tensor:
    return inputs.detach().abs().flatten(0, -2).amax(0).float()


def _some_ids(policy: Policy, count: int) -> Tensor:
    vocabulary = policy.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    ids: Tensor = torch.arange(1, count + 1, device=policy.device) * 7919 % vocabulary
    return ids


@torch.inference_mode()
def _agrees(policy: Policy, decoder: Decoder) -> bool:
    """Whether the description reproduces the model's hidden states on a few tokens; a variant with
    a feature that no field describes does not."""
    head = head_of(policy.model)
    ids = _some_ids(policy, _TOKENS_TRIED)
    half = decoder.dtype == torch.bfloat16
    with evaluating(policy.model):
        with policy.compute() if half else nullcontext():
            expected = head.hidden_states(ids[None])[0].to(torch.float32)
        cache = Cache(decoder, rows=1, groups=1, longest_prompt=len(ids), device=policy.device)
        positions = torch.arange(len(ids), device=policy.device)
        decoder.reserve(len(ids))
        got = decoder.run(ids, positions, Prefill(cache, [len(ids)], [0])).float()
    allowed = 0.05 if half else 1e-4
    return float((got - expected).abs().mean()) <= allowed * float(expected.abs().mean())
