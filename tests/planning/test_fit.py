"""A memory budget chooses recomputation first, then smaller micro-batches, and never lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupwise.errors import RecipeError
from groupwise.planning import SMOLLM2_135M, Fit, fit_learning
from groupwise.planning.memory import MemoryInputs, memory_plan

INPUTS = MemoryInputs(
    shape=SMOLLM2_135M,
    dtype="float32",
    optimizer="adamw",
    reference=False,
    gradient_checkpointing=False,
    tokens=8192,
    rows=1,
    row_tokens=256,
)


def peak(tokens: int, recompute: bool) -> int:
    return memory_plan(
        replace(INPUTS, tokens=tokens, gradient_checkpointing=recompute)
    ).peak_learning


def test_what_fits_stays_as_asked() -> None:
    plain = peak(8192, False)
    assert fit_learning(INPUTS, plain) == Fit(8192, False, plain)
    assert fit_learning(replace(INPUTS, gradient_checkpointing=True), plain).gradient_checkpointing


def test_activations_are_recomputed_before_micro_batches_shrink() -> None:
    assert fit_learning(INPUTS, peak(8192, False) - 1) == Fit(8192, True, peak(8192, True))
    tight = fit_learning(INPUTS, peak(1000, True))
    assert tight == Fit(1000, True, peak(1000, True))
    assert peak(1001, True) > peak(1000, True)


def test_the_smallest_budget_is_named_and_works() -> None:
    smallest = peak(256, True)
    assert fit_learning(INPUTS, smallest).micro_batch_tokens == 256
    with pytest.raises(RecipeError, match="one row of 256 tokens; the smallest that works is") as e:
        fit_learning(INPUTS, smallest - 1)
    named = float(str(e.value).rsplit(" ", 1)[1])
    assert fit_learning(INPUTS, int(named * 1e9)).micro_batch_tokens >= 256


def test_a_micro_batch_below_the_longest_row_is_left_as_it_is() -> None:
    small = replace(INPUTS, tokens=64)
    assert fit_learning(small, 10**12).micro_batch_tokens == 64
