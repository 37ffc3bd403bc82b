"""One policy, several threads: what one thread scores does not depend on the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from groupwise.policies import Policy, sequence_logprobs
from groupwise.policies.load import checkpoint_activations
from model_families import family_policy
from plain_pass import gradients

ROWS: list[tuple[list[list[int]], list[list[int]]]] = [
    ([[5, 2, 9], [5, 2, 9]], [[3, 2, 2, 17], [19]]),
    ([[7, 8, 11]], [[30, 31, 32, 33, 34]]),
    ([[4], [4], [6, 9]], [[20, 21], [22], [23, 24, 25]]),
]


def scored(policy: Policy, number: int) -> torch.Tensor:
    prompts, completions = ROWS[number % len(ROWS)]
    with torch.no_grad():
        return sequence_logprobs(policy, prompts, completions).logprobs


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_threads_that_score_at_once_get_what_each_gets_alone(family: str) -> None:
    policy = family_policy(family)
    before = policy.model.config._attn_implementation  # type: ignore[union-attr]
    alone = [scored(policy, number) for number in range(len(ROWS))]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda number: scored(policy, number), range(60)))
    for number, found in enumerate(together):
        torch.testing.assert_close(found, alone[number % len(ROWS)], atol=1e-6, rtol=0)
    assert policy.model.config._attn_implementation == before  # type: ignore[union-attr]


def test_a_backward_pass_recomputes_while_another_thread_scores() -> None:
    policy = family_policy("llama")
    checkpoint_activations(policy.model)
    prompts, completions = ROWS[0]

    def learned() -> torch.Tensor:
        value = sequence_logprobs(policy, prompts, completions).logprobs.sum()
        return torch.cat([each.flatten() for each in gradients(policy, value).values()])

    expected, alone = learned(), scored(policy, 1)
    with ThreadPoolExecutor(2) as threads:
        others = [threads.submit(scored, policy, 1) for _ in range(30)]
        for _ in range(10):
            torch.testing.assert_close(learned(), expected, atol=1e-5, rtol=1e-5)
        for other in others:
            torch.testing.assert_close(other.result(), alone, atol=1e-6, rtol=0)


def test_no_rows_give_empty_tables() -> None:
    output = sequence_logprobs(
        family_policy("llama"),
        [],
        [],
        entropies=True,
        top_ids=torch.zeros(0, 0, 3, dtype=torch.int64),
    )
    assert output.logprobs.shape == (0, 0)
    assert output.entropies is not None
    assert output.entropies.shape == (0, 0)
    assert output.top_logprobs is not None
    assert output.top_logprobs.shape == (0, 0, 3)
