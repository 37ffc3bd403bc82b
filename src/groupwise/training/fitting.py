"""A recipe's memory budget, turned into how its learning runs, before any weight loads.

Left out: the formulas (planning/fit.py).
"""

from __future__ import annotations

from groupwise.planning import Fit, MemoryInputs, fit_learning, shape_from_config
from groupwise.policies import ModelInfo, choose_device, choose_dtype
from groupwise.recipe import Recipe


def fit_of(recipe: Recipe, model: ModelInfo, longest_prompt: int) -> Fit | None:
    """Micro-batch and recomputation within `training.memory_budget`; None without a budget.

    `longest_prompt` in tokens. Raises RecipeError naming the smallest budget that works.
    """
    training, needs = recipe.training, recipe.algorithm.needs
    if training.memory_budget is None:
        return None
    device = choose_device(recipe.model.device)
    dtype = choose_dtype(recipe.model.dtype, device, model.num_parameters)
    return fit_learning(
        MemoryInputs(
            shape=shape_from_config(model.config, model.num_parameters),
            dtype="bfloat16" if "bfloat16" in str(dtype) else "float32",
            optimizer=training.optimizer,
            reference=needs.ref_logprobs or training.measure_kl,
            gradient_checkpointing=recipe.model.gradient_checkpointing,
            tokens=training.micro_batch_tokens,
            rows=1,
            row_tokens=longest_prompt + recipe.sampling.max_tokens,
            adapter_parameters=None if model.adapter is None else model.adapter.parameters,
            critic=training.critic if needs.values else None,
        ),
        int(training.memory_budget * 1e9),
    )
