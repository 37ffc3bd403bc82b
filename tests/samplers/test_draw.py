"""The sampling rule against its definition, row by row and whatever else is in the batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.randomness import stream_key, uniforms
from groupwise.samplers.draw import Draws, draw


def rule(logits: Tensor, u: Tensor, temperature: float = 1.0, **kwargs: object) -> Draws:
    rows = logits.shape[0]
    return draw(
        logits,
        u,
        temperatures=torch.full((rows,), temperature),
        greedy=torch.zeros(rows, dtype=torch.bool),
        **kwargs,  # type: ignore[arg-type]
    )


def uniform_rows(rows: int, seed: int = 0) -> Tensor:
    keys = np.array([stream_key(seed, "probe", row) for row in range(rows)], dtype=np.uint64)
    return torch.from_numpy(uniforms(keys, np.zeros(rows, dtype=np.int64)))


@pytest.mark.parametrize("vocabulary", [1, 3, 255, 256, 257, 1000, 4096])
def test_the_first_id_whose_cumulative_sum_exceeds_u(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(200, vocabulary, generator=generator) * 3
    u = uniform_rows(200)
    ids = rule(logits, u, temperature=0.8).ids
    cumulative = (logits.double() / 0.8).softmax(-1).cumsum(-1)
    before = torch.where(ids > 0, cumulative.gather(1, (ids - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    after = cumulative.gather(1, ids[:, None])[:, 0]
    slack = 1e-6  # float32 sums beside float64 ones
    assert bool((before <= u + slack).all())
    assert bool((after > u - slack).all())


def test_a_row_does_not_depend_on_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 5000, generator=generator) * 2
    u = uniform_rows(64)
    together = rule(logits, u, entropies=True, top_k=3)
    order = torch.randperm(64, generator=generator)
    shuffled = rule(logits[order], u[order], entropies=True, top_k=3)
    for row in range(64):
        alone = rule(logits[row : row + 1], u[row : row + 1], entropies=True, top_k=3)
        for name in ("ids", "logprobs", "entropies", "top_ids", "top_logprobs"):
            assert torch.equal(getattr(alone, name)[0], getattr(together, name)[row])
    for name in ("ids", "logprobs", "entropies"):
        assert torch.equal(getattr(shuffled, name), getattr(together, name)[order])


def test_frequencies_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05])
    rows = 20_000
    ids = rule(probabilities.log().expand(rows, -1), uniform_rows(rows)).ids
    counts = torch.bincount(ids, minlength=5).double()
    expected = probabilities.double() * rows
    assert counts[1] == 0
    chi_square = ((counts - expected).square() / expected.clamp(min=1)).sum().item()
    assert chi_square < 16.3  # 0.1 % of samples of 3 degrees of freedom are larger


@pytest.mark.parametrize("u", [0.0, 2.0**-24, 0.5, 1 - 2.0**-24])
def test_only_ids_with_probability_are_drawn_at_any_u(u: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for count in (1, 2, 300):
        logits = torch.full((1, 1000), -math.inf)
        support = torch.randperm(1000, generator=generator)[:count]
        logits[0, support] = torch.randn(count, generator=generator)
        drawn = rule(logits, torch.tensor([u])).ids.item()
        assert drawn in support
        if u == 0.0:
            assert drawn == support.min()
        if u == 1 - 2.0**-24 and count < 3:
            assert drawn == support.max()


def test_log_probabilities_entropies_and_top_k_are_of_the_tempered_distribution() -> None:
    logits = torch.randn(10, 700, generator=torch.Generator().manual_seed(3)) * 2
    logits[0, :690] = -math.inf
    draws = rule(logits, uniform_rows(10), temperature=1.7, entropies=True, top_k=4)
    exact = (logits.double() / 1.7).log_softmax(-1)
    chosen = exact.gather(1, draws.ids[:, None])[:, 0]
    torch.testing.assert_close(draws.logprobs.double(), chosen, atol=2e-6, rtol=0)
    entropies = torch.special.entr(exact.exp()).sum(-1)
    assert draws.entropies is not None
    torch.testing.assert_close(draws.entropies.double(), entropies, atol=1e-5, rtol=0)
    top = exact.topk(4, dim=-1)
    assert draws.top_ids is not None
    assert draws.top_logprobs is not None
    assert torch.equal(draws.top_ids, top.indices)
    torch.testing.assert_close(draws.top_logprobs.double(), top.values, atol=2e-6, rtol=0)


def test_temperatures_are_per_row_and_greedy_ignores_them() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]]).repeat(3, 1)
    draws = draw(
        logits,
        torch.tensor([0.999, 0.999, 0.999]),
        temperatures=torch.tensor([0.05, 100.0, 100.0]),
        greedy=torch.tensor([False, False, True]),
    )
    assert draws.ids.tolist() == [2, 3, 1]
    assert draws.logprobs[2].item() == pytest.approx(logits[0].log_softmax(-1)[1].item())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_marked_and_alone(bad: float) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))
    u = uniform_rows(4)
    expected = rule(logits, u)
    logits[2, 17] = bad
    draws = rule(logits, u)
    assert draws.finite.tolist() == [True, True, False, True]
    assert torch.equal(draws.ids[[0, 1, 3]], expected.ids[[0, 1, 3]])
    logits[2] = -math.inf
    assert rule(logits, u).finite.tolist() == [True, True, False, True]


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits = torch.randn(8, 3000, generator=torch.Generator().manual_seed(0)).bfloat16()
    draws = rule(logits, uniform_rows(8))
    assert draws.logprobs.dtype == torch.float32
    assert torch.equal(draws.ids, rule(logits.float(), uniform_rows(8)).ids)
