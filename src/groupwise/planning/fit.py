"""Chooses how learning runs within a memory budget; neither choice changes the result.

First as requested, then with activations recomputed in the backward pass, then with smaller
micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from groupwise.errors import RecipeError
from groupwise.planning.memory import MemoryInputs, memory_plan


@dataclass(frozen=True, slots=True)
class Fit:
    """How learning runs within a budget; `bytes` is its peak by the plan's formulas."""

    micro_batch_tokens: int
    gradient_checkpointing: bool
    bytes: int


def fit_learning(inputs: MemoryInputs, budget: int) -> Fit:
    """The fastest way to learn that the formulas put within `budget` bytes.

    Weights, moments, gradients and activations count. `inputs` say what is asked for; a micro-batch
    holds the longest row at least. Raises RecipeError naming the smallest budget that works.
    """
    floor = min(inputs.row_tokens, inputs.tokens)
    for recompute in dict.fromkeys((inputs.gradient_checkpointing, True)):
        if _peak(inputs, inputs.tokens, recompute) <= budget:
            return Fit(inputs.tokens, recompute, _peak(inputs, inputs.tokens, recompute))
    if _peak(inputs, floor, True) > budget:
        smallest = _peak(inputs, floor, True) / 1e9 + 5e-3  # rounded up
        raise RecipeError(
            f"training.memory_budget = {budget / 1e9:.3g} (GB) is too small for one row of "
            f"{floor} tokens; the smallest that works is {smallest:.2f}"
        )
    low, high = floor, inputs.tokens  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if _peak(inputs, middle, True) <= budget:
            low = middle
        else:
            high = middle
    return Fit(low, True, _peak(inputs, low, True))


def _peak(inputs: MemoryInputs, tokens: int, recompute: bool) -> int:
    return memory_plan(
        replace(inputs, tokens=tokens, gradient_checkpointing=recompute)
    ).peak_learning
