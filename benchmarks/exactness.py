"""Whether sampling and scoring are exact in float32: against `generate` and a plain forward pass.

Left out: speed (gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.workload import Workload, messages, questions
from groupwise.policies import Policy, sequence_logprobs
from groupwise.randomness import stream_key
from groupwise.samplers import make_sampler
from groupwise.types import Completion, Prompt, Request

Ids = tuple[int, ...]
TOLERANCE = {"cpu": 2e-5, "cuda": 1e-4}
"""Largest difference of a log-probability in float32; kernels on CUDA add in other orders."""
GRADIENT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Check:
    """One comparison: `error` is at most `limit` where it passes."""

    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit


def prompts_of(policy: Policy, workload: Workload) -> list[Ids]:
    """Prompts of different lengths, so that padding is seen."""
    texts = questions(workload.model, workload.rollout_prompts)
    ids = [
        policy.template.encode_prompt(Prompt(str(number), messages=tuple(messages(text))))
        for number, text in enumerate(texts)
    ]
    return [each[: len(each) - number % 3] for number, each in enumerate(ids)]


def left_padded(prompts: Sequence[Ids], pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, [prompts, longest]."""
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    return ids, mask


def plain_logprobs(policy: Policy, prompt: Ids, completion: Ids) -> Tensor:
    """[T] float32 by one plain forward pass over one row: the definition."""
    ids = torch.tensor([[*prompt, *completion]], device=policy.device)
    logits = policy.model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    targets = ids[0, len(prompt) :, None]
    return logits.log_softmax(-1).gather(1, targets)[:, 0]


def greedy_by_generate(policy: Policy, prompt: Ids, tokens: int) -> Ids:
    """What `generate` gives for one prompt by itself, without padding, its stop id included."""
    ids = torch.tensor([prompt], device=policy.device)
    policy.model.generation_config.eos_token_id = sorted(policy.template.stop_ids)
    with torch.inference_mode():
        output = policy.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            pad_token_id=policy.template.pad_id,
        )
    return tuple(output[0, len(prompt) :].tolist())


def completions_of(
    policy: Policy, prompts: Sequence[Ids], workload: Workload, *, greedy: bool, number: int = 0
) -> list[Completion]:
    """One greedy completion a prompt, or a group a prompt, by the fastest sampler there is."""
    sampler = make_sampler("auto", policy)
    try:
        return sampler.sample(requests_of(prompts, workload, greedy=greedy, number=number))
    finally:
        sampler.close()


def requests_of(
    prompts: Sequence[Ids], workload: Workload, *, greedy: bool, number: int
) -> list[Request]:
    members = 1 if greedy else workload.group_size
    return [
        Request(
            prompt_ids=ids,
            key=stream_key(workload.seed, "probe", str(place), number, index, 0),
            max_tokens=workload.rollout_tokens,
            greedy=greedy,
        )
        for place, ids in enumerate(prompts)
        for index in range(members)
    ]


def correctness(policy: Policy, workload: Workload) -> list[Check]:
    """Every check on a float32 policy."""
    prompts = prompts_of(policy, workload)
    greedy = completions_of(policy, prompts, workload, greedy=True)
    expected = [greedy_by_generate(policy, ids, workload.rollout_tokens) for ids in prompts]
    different = sum(each.token_ids != ids for each, ids in zip(greedy, expected, strict=True))
    sampled = completions_of(policy, prompts, workload, greedy=False)
    rows = [ids for ids in prompts for _ in range(workload.group_size)]
    completions = [each.token_ids for each in sampled]
    limit = TOLERANCE[policy.device.type]
    return [
        Check("greedy ids that differ from generate's", float(different), 0.0),
        Check("sampler log-probabilities", sampler_error(policy, rows, sampled), limit),
        Check("scored log-probabilities", _scored_error(policy, rows, completions), limit),
        Check("gradient", gradient_error(policy, rows, completions), GRADIENT_TOLERANCE),
    ]


def sampler_error(policy: Policy, rows: Sequence[Ids], sampled: Sequence[Completion]) -> float:
    """Largest difference between what the sampler reported and the plain pass."""
    with torch.no_grad():
        return max(
            float(
                (
                    plain_logprobs(policy, ids, each.token_ids).cpu()
                    - torch.tensor(each.sampler_logprobs)
                )
                .abs()
                .max()
            )
            for ids, each in zip(rows, sampled, strict=True)
        )


def _scored_error(policy: Policy, rows: Sequence[Ids], completions: Sequence[Ids]) -> float:
    """Largest difference between the training pass and the plain one."""
    with torch.no_grad():
        scored = sequence_logprobs(policy, rows, completions).logprobs
        return max(
            float((plain_logprobs(policy, ids, each) - scored[row, : len(each)]).abs().max())
            for row, (ids, each) in enumerate(zip(rows, completions, strict=True))
        )


def gradient_error(policy: Policy, rows: Sequence[Ids], completions: Sequence[Ids]) -> float:
    """|g - g'| / |g'| over all parameters, of the mean of weighted log-probabilities."""
    weights = [1.0 + 0.5 * (row % 3) for row in range(len(rows))]

    def plain() -> Tensor:
        parts = [
            weight * plain_logprobs(policy, ids, each).sum()
            for weight, ids, each in zip(weights, rows, completions, strict=True)
        ]
        return torch.stack(parts).mean()

    def ours() -> Tensor:
        scored = sequence_logprobs(policy, rows, completions).logprobs
        factors = torch.tensor(weights, device=scored.device, dtype=scored.dtype)
        return (scored.sum(1) * factors).mean()

    expected, found = _gradient(policy, plain), _gradient(policy, ours)
    return float((found - expected).norm() / expected.norm())


def _gradient(policy: Policy, loss: Callable[[], Tensor]) -> Tensor:
    """[all parameters] float64 on the CPU."""
    policy.model.zero_grad(set_to_none=True)
    torch.autograd.backward(loss())
    parts = [
        (torch.zeros_like(p) if p.grad is None else p.grad).detach().double().cpu().flatten()
        for p in policy.model.parameters()
    ]
    policy.model.zero_grad(set_to_none=True)
    return torch.cat(parts)
