"""A sampler by name, and sampling in one call."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.distributed import ALONE, Ranks
from groupwise.errors import RecipeError
from groupwise.policies.logprobs import as_ids
from groupwise.policies.policy import Policy
from groupwise.randomness import stream_key
from groupwise.samplers.contract import Sampler
from groupwise.samplers.local.sampler import LocalSampler, why_not
from groupwise.samplers.servers.sampler import ENGINES, ServerSampler
from groupwise.samplers.servers.settings import ServerSettings
from groupwise.samplers.settings import SamplingSettings, why_no_sampler
from groupwise.samplers.transformers_sampler import TransformersSampler
from groupwise.texts import shortened
from groupwise.types import LEAST_TEMPERATURE, Completion, Prompt, Request


def sampler_of(settings: SamplingSettings, policy: Policy, ranks: Ranks = ALONE) -> Sampler:
    """The sampler that a recipe asks for, of one of the run's `ranks`."""
    return make_sampler(
        settings.sampler,
        policy,
        batch_rows=settings.batch_rows,
        cache_gigabytes=settings.cache_gigabytes,
        quantise=settings.quantise,
        servers=settings.servers,
        ranks=ranks,
    )


def make_sampler(
    name: str,
    policy: Policy,
    *,
    batch_rows: int = 128,
    cache_gigabytes: float | None = None,
    quantise: str | None = None,
    servers: ServerSettings | None = None,
    ranks: Ranks = ALONE,
) -> Sampler:
    """The sampler called `name`, loaded with `policy`; `auto` is the fastest that supports it.

    A policy that `local` cannot decode is sampled by `transformers`, whose `notes` say so.
    `servers` are those of the samplers `vllm` and `sglang`, which `ranks` share. Raises RecipeError
    for an unknown name, and where `quantise` ("int8") is not possible.
    """
    problem = why_no_sampler(name)
    if problem is not None:
        raise RecipeError(problem)
    if name in ENGINES:
        if servers is None or servers.engine != name:
            raise RecipeError(
                f"sampler = {name!r} needs servers: give a recipe's [sampling.{name}]"
            )
        return ServerSampler(policy, servers, batch_rows=batch_rows, ranks=ranks)
    if name == "transformers":
        return TransformersSampler(policy, batch_rows=batch_rows)
    reason = why_not(policy)
    if reason is None:
        cache_bytes = None if cache_gigabytes is None else int(cache_gigabytes * 1e9)
        return LocalSampler(
            policy,
            batch_rows=batch_rows,
            cache_bytes=cache_bytes,
            quantise=quantise is not None,
        )
    if quantise is not None:
        raise RecipeError(f"sampling.quantise = {quantise!r}: {reason}; leave it out")
    note = f"sampled by transformers, not by the faster local sampler: {reason}"
    return TransformersSampler(policy, batch_rows=batch_rows, notes=(note,))


def sample(
    policy: Policy,
    prompts: Sequence[Any],
    group_size: int = 8,
    max_tokens: int = 64,
    temperature: float | int = 1.0,
    seed: int = 0,
    sampler: str | Sampler = "auto",
) -> list[list[Completion]]:
    """`group_size` completions for each prompt, in order.

    A prompt is raw text, a chat (a list of messages), a list of token ids, or a `Prompt`.
    `temperature` 0 takes the most likely tokens. The noise of a completion is keyed by (seed,
    prompt ids, place in the group): it does not depend on the other prompts, and a prompt given
    twice draws different noise the second time.

    Raises ValueError for one text in place of a list, a negative seed or an id that the model does
    not have; TypeError where a prompt is none of these.
    """
    if isinstance(prompts, (str, Mapping, Prompt)):
        raise RecipeError(f"prompts = {prompts!r:.80}: one prompt; give a list, [prompt]")
    if seed < 0:
        raise RecipeError(f"seed = {seed}; give 0 or more")
    if not math.isfinite(temperature) or (temperature != 0 and temperature < LEAST_TEMPERATURE):
        raise RecipeError(
            f"temperature = {temperature}; give a finite number from {LEAST_TEMPERATURE} on, or 0 "
            "for the most likely tokens"
        )
    if group_size < 1:
        raise RecipeError(f"group_size = {group_size}; give 1 or more")
    greedy = temperature == 0
    seen: dict[tuple[int, ...], int] = {}
    requests: list[Request] = []
    for place, prompt in enumerate(prompts):
        ids = _prompt_ids(policy, prompt, place)
        visit = seen[ids] = seen.get(ids, -1) + 1
        digest = hashlib.sha256(repr(ids).encode()).hexdigest()
        requests.extend(
            Request(
                prompt_ids=ids,
                key=stream_key(seed, "probe", digest, visit, index),
                max_tokens=max_tokens,
                temperature=1.0 if greedy else float(temperature),
                greedy=greedy,
            )
            for index in range(group_size)
        )
    engine = make_sampler(sampler, policy) if isinstance(sampler, str) else sampler
    completions = engine.sample(requests)
    if isinstance(sampler, str):
        engine.close()
    return [
        completions[start : start + group_size] for start in range(0, len(completions), group_size)
    ]


def _prompt_ids(policy: Policy, prompt: Any, place: int) -> tuple[int, ...]:
    if isinstance(prompt, Prompt):
        return policy.template.encode_prompt(prompt)
    if isinstance(prompt, str):
        return policy.template.encode_prompt(Prompt(f"prompt {place}", text=prompt))
    items: list[Any] = list(prompt) if isinstance(prompt, Sequence) else [None]
    if items and all(isinstance(item, int) for item in items):
        return as_ids(policy, items, f"prompts[{place}]")
    if items and all(isinstance(item, Mapping) for item in items):
        return policy.template.encode_prompt(Prompt(f"prompt {place}", messages=tuple(items)))
    wanted = f"prompts[{place}]: give a text, a list of messages, or a list of token ids"
    if not items:
        raise RecipeError(f"{wanted}; not {shortened(repr(prompt), 80)}")
    raise TypeError(f"{wanted}; not {shortened(repr(prompt), 80)}")
