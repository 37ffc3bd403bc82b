"""Log-probabilities of completions under a policy, differentiable, never [B, T, V].

The decoder runs over every distinct prompt once (packing.py), the head only over the positions that
predict a completion token (chunked.py).
Shapes: B rows, T tokens of the longest completion, N completion tokens of all rows, D hidden, V
vocabulary, K ids asked for at a position, M = 1 + K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from operator import index
from typing import Any, Concatenate, ParamSpec

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from groupwise.errors import RecipeError
from groupwise.policies.attention import PASSES, packed, run
from groupwise.policies.chunked import Supports, token_logprobs
from groupwise.policies.heads import Head, head_of, text_config
from groupwise.policies.packable import packable
from groupwise.policies.packing import Layout, pack, packed_tokens
from groupwise.policies.policy import Policy
from groupwise.policies.routing import find_routers, routers_of

PADDED = "it trains on padded rows"

P = ParamSpec("P")


@dataclass(frozen=True)
class LogprobOutput:
    """Per-token values of B completions, float32 or better, 0 behind a row's end.

    `logprobs` [B, T]; `entropies` [B, T] in nats, of the same tempered distribution, with gradient;
    `top_logprobs` [B, T, K] of the ids asked for; `values` [B, T] of the value head that was given;
    `divergences` [B, T] as `compare` gave them, with gradient.
    """

    logprobs: Tensor
    entropies: Tensor | None = None
    top_logprobs: Tensor | None = None
    values: Tensor | None = None
    divergences: Tensor | None = None


Scoring = Callable[Concatenate[Policy, P], LogprobOutput]


def _through_root(score: Scoring[P]) -> Scoring[P]:
    """The same through the policy's `root`, whose hooks see the tensors of what it returns."""

    @wraps(score)
    def run(policy: Policy, /, *args: P.args, **kwargs: P.kwargs) -> LogprobOutput:
        if policy.root is None:
            return score(policy, *args, **kwargs)

        def tensors() -> tuple[Tensor | None, ...]:
            output = score(policy, *args, **kwargs)
            return tuple(getattr(output, each.name) for each in fields(output))

        return LogprobOutput(*policy.root(tensors))

    return run


@_through_root
def sequence_logprobs(
    policy: Policy,
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    entropies: bool = False,
    top_ids: Tensor | None = None,
    value_head: nn.Module | None = None,
    compare: Callable[[Tensor, Head], Tensor] | None = None,
    supports: Sequence[Sequence[Sequence[int] | None]] | None = None,
    experts: Sequence[Sequence[bytes]] | None = None,
    chunk_tokens: int | None = None,
) -> LogprobOutput:
    """log p(completion token | prompt, tokens before it) for every row, T as long as the longest.

    Dropout is always off; activation checkpointing stays on if the policy uses it. Under
    `torch.no_grad` nothing is kept for a backward pass.

    Args:
        prompt_ids: one list of ids a row, each at least one id long.
        completion_ids: one list a row; may be empty.
        temperature: divides the logits, as it did when the completions were sampled.
        entropies: also give the entropies, from the same pass.
        top_ids: [B, >=T, K] ids whose log-probabilities are wanted too.
        value_head: [N, D] hidden states to [N, 1]: also give its values (a critic's shared trunk).
        compare: [N, D] hidden states and the head to [N]: also give its values (a teacher's).
        supports: for every completion token the ids that sampling kept, None where it kept all: the
            distribution is then over those, log-probabilities and entropies included.
        experts: for every token of prompt and completion but the last the experts that the sampler
            chose (`Rollout.experts`), which are taken again; empty where the policy chooses.
        chunk_tokens: completion tokens projected at once; memory only. Default: by vocabulary.
    Raises:
        RecipeError: a temperature of 0 or less, or a row longer than the model has positions for.
        ValueError: an empty prompt, or a token that is not in its own support.
    """
    _check(policy, prompt_ids, completion_ids, temperature)
    with PASSES:
        head = head_of(policy.model)
    lengths = [len(ids) for ids in completion_ids]
    row, column = _slots(lengths, policy.device)
    targets = torch.tensor(
        [token for ids in completion_ids for token in ids], dtype=torch.int64, device=policy.device
    ).unsqueeze(1)
    if top_ids is not None:
        targets = torch.cat([targets, top_ids.to(policy.device)[row, column]], dim=1)
    hidden = completion_states(policy, policy.model, head, prompt_ids, completion_ids, experts)
    chosen, entropy = token_logprobs(
        hidden,
        head,
        targets,
        temperature=temperature,
        supports=None if supports is None else _supports(policy, completion_ids, supports),
        absent=policy.absent_ids,
        entropies=entropies,
        products=policy.dtype,
        chunk_tokens=chunk_tokens,
    )
    return LogprobOutput(
        logprobs=token_table(chosen[:, 0], lengths),
        entropies=token_table(entropy, lengths) if entropies and entropy is not None else None,
        top_logprobs=token_table(chosen[:, 1:], lengths) if top_ids is not None else None,
        values=None if value_head is None else token_table(value_head(hidden)[:, 0], lengths),
        divergences=None if compare is None else token_table(compare(hidden, head), lengths),
    )


def _supports(
    policy: Policy,
    completion_ids: Sequence[Sequence[int]],
    supports: Sequence[Sequence[Sequence[int] | None]],
) -> Supports:
    for row, (ids, kept) in enumerate(zip(completion_ids, supports, strict=True)):
        if len(ids) != len(kept):
            raise ValueError(f"row {row}: {len(ids)} completion tokens and {len(kept)} supports")
        for place, (token, some) in enumerate(zip(ids, kept)):
            if some and token not in some:
                raise ValueError(
                    f"row {row}: completion token {place} (id {token}) is not in its own support"
                )
    return Supports.of([some for kept in supports for some in kept], policy.device)


def runs_packed(policy: Policy) -> bool:
    """Whether a prompt shared by several rows runs once; if not, rows run separately, padded."""
    return packable(head_of(policy.model).decoder)


def forward_tokens(
    policy: Policy, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
) -> int:
    """Tokens that the policy's decoder runs over for these rows, padding included."""
    if runs_packed(policy):
        return packed_tokens(prompt_ids, completion_ids)
    widths = [len(p) + max(len(c) - 1, 0) for p, c in zip(prompt_ids, completion_ids)]
    return len(widths) * max(widths, default=0)


def completion_states(
    policy: Policy,
    model: nn.Module,
    head: Head,
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
    experts: Sequence[Sequence[bytes]] | None = None,
) -> Float[Tensor, "N D"]:
    """Hidden states from which each completion token is predicted, row by row.

    `head` holds the policy's own decoder or a critic's; `model` is the module that it is part of.
    A prompt that rows share runs once (packing.py), where the decoder can do that. Threads that
    score at once run one after the other. `experts` as in `sequence_logprobs`; they need a decoder
    that runs packed rows. Raises RecipeError where it cannot replay them.
    """
    if not prompt_ids:
        weight = next(head.linear.parameters())
        return weight.new_zeros(0, weight.shape[-1])
    with PASSES:
        if packable(head.decoder):
            layout = pack(prompt_ids, completion_ids, policy.device)
            chosen = None if experts is None else _experts(head.decoder, layout, experts)
            with _scoring(model), policy.compute(), packed(head.decoder, layout, chosen):
                return run(head.decoder, layout)
        if experts is not None:
            raise RecipeError(f"experts: {policy.name} cannot replay them: {PADDED}")
        inputs, index = _layout(policy, prompt_ids, completion_ids)
        with _scoring(model), policy.compute():
            hidden = head.hidden_states(inputs)
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, index)


def _experts(
    decoder: nn.Module, layout: Layout, experts: Sequence[Sequence[bytes]]
) -> Int[Tensor, "N L K"]:
    """Those of the packed row's tokens."""
    flat = [each for row, start, end in layout.sources for each in experts[row][start:end]]
    return routers_of(decoder).tensor(flat, layout.input_ids.device)


def why_no_replay(policy: Policy) -> str | None:
    """None for a policy that can repeat the sampler's choice of experts, else the reason."""
    decoder = head_of(policy.model).decoder
    found = find_routers(decoder)
    if isinstance(found, str):
        return found
    return None if packable(decoder) else PADDED


def token_table(values: Float[Tensor, "N ..."], lengths: Sequence[int]) -> Float[Tensor, "B T ..."]:
    """Values of all completion tokens as a table, 0 behind a row's end."""
    row, column = _slots(lengths, values.device)
    empty = values.new_zeros((len(lengths), max(lengths, default=0), *values.shape[1:]))
    return empty.index_put((row, column), values)


def score(
    policy: Policy,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    temperature: float | int = 1.0,
) -> Float[Tensor, " T"]:
    """log p of each completion token, float32 on the CPU, no gradient.

    Raises RecipeError as `sequence_logprobs` does, and TypeError and ValueError as `as_ids` does.
    """
    prompt = as_ids(policy, prompt_ids, "prompt_ids")
    completion = as_ids(policy, completion_ids, "completion_ids")
    with torch.no_grad():
        output = sequence_logprobs(policy, [prompt], [completion], temperature=float(temperature))
    return output.logprobs[0].float().cpu()


def as_ids(policy: Policy, ids: Any, what: str) -> tuple[int, ...]:
    """Token ids of one row that the model has an embedding for; `what` is their name in messages.

    Raises TypeError for anything that is not whole numbers (a text, say), ValueError for an id
    outside the vocabulary.
    """
    try:
        whole = tuple(index(each) for each in ids)
    except TypeError as error:
        raise TypeError(
            f"{what}: expected a list of token ids, whole numbers; got {repr(ids)[:80]}; "
            "policy.template.encode(text) gives the ids of a text"
        ) from error
    rows = int(text_config(policy.model).vocab_size)
    absent = policy.template.absent_ids(rows)
    for each in whole:
        if not 0 <= each < rows or each in absent:
            raise ValueError(
                f"{what}: id {each} is not within the vocabulary of {rows - len(absent)} tokens"
            )
    return whole


def _check(
    policy: Policy,
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
    temperature: float,
) -> None:
    if not 0 < temperature < math.inf:
        raise RecipeError(
            f"temperature = {temperature}: log-probabilities at a temperature of 0 do not exist; "
            "give the temperature that the completions were sampled at, above 0 and finite"
        )
    if len(prompt_ids) != len(completion_ids):
        raise ValueError(
            f"{len(prompt_ids)} prompts and {len(completion_ids)} completions; give one per prompt"
        )
    for row, (prompt, completion) in enumerate(zip(prompt_ids, completion_ids)):
        if not len(prompt):
            raise ValueError(f"row {row} has an empty prompt; the first token has no context")
        if len(prompt) + len(completion) > policy.max_length:
            raise RecipeError(
                f"row {row}: {len(prompt)} prompt and {len(completion)} completion tokens; "
                f"{policy.name} has positions for {policy.max_length}"
            )


def _layout(
    policy: Policy, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
) -> tuple[Int[Tensor, "B S"], Int[Tensor, " N"]]:
    """Right-padded inputs, and the flat positions whose next token is a completion token.

    A row's last token predicts nothing that is scored, so it is not an input.
    """
    lengths = [len(p) + max(len(c) - 1, 0) for p, c in zip(prompt_ids, completion_ids)]
    width = max(lengths, default=0)
    inputs = torch.full((len(lengths), width), policy.template.pad_id, dtype=torch.int64)
    index: list[Tensor] = []
    for row, (prompt, completion) in enumerate(zip(prompt_ids, completion_ids)):
        ids = (*prompt, *completion)[: lengths[row]]
        inputs[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        first = row * width + len(prompt) - 1
        index.append(torch.arange(first, first + len(completion)))
    flat = torch.cat(index) if index else torch.zeros(0, dtype=torch.int64)
    return inputs.to(policy.device), flat.to(policy.device)


def _slots(
    lengths: Sequence[int], device: torch.device
) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"]]:
    """Row and column, in the [B, T] table, of every completion token."""
    counts = torch.tensor(list(lengths), dtype=torch.int64)
    row = torch.repeat_interleave(torch.arange(len(lengths)), counts)
    starts = torch.cumsum(counts, 0) - counts
    column = torch.arange(int(counts.sum())) - starts[row]
    return row.to(device), column.to(device)


@contextmanager
def _scoring(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, so no dropout; checkpointed layers keep checkpointing.

    transformers checkpoints a layer only while that layer itself is in training mode; its dropout
    modules are children, and stay off.
    """
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = bool(getattr(module, "gradient_checkpointing", False)) and (
            torch.is_grad_enabled()
        )
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
