"""The plan of a recipe, from what is known before any weight loads."""

from __future__ import annotations

from groupwise.algorithms import Algorithm, preset
from groupwise.planning import Comparison, Plan, PlanInputs, plan, shape_from_config
from groupwise.policies import choose_device, choose_dtype
from groupwise.records import memory_bytes
from groupwise.training.preparing import Prepared, fit_of, teacher_parameters


def plan_of(prepared: Prepared, algorithm: Algorithm | None = None) -> Plan:
    """Prompts, completions, tokens, parameters and bytes of a prepared recipe, under its own
    algorithm or another one."""
    recipe, model = prepared.recipe, prepared.model
    training, sampling = recipe.training, recipe.sampling
    needs = (algorithm or recipe.algorithm).needs
    device = choose_device(recipe.model.device)
    dtype = choose_dtype(recipe.model.dtype, device, model.num_parameters)
    fit = fit_of(recipe, model, prepared.longest_prompt)
    return plan(
        PlanInputs(
            model=model.name,
            shape=shape_from_config(model.config, model.num_parameters),
            train_prompts=len(prepared.environment),
            evaluated_prompts=prepared.evaluation_sets.num_prompts,
            longest_prompt=prepared.longest_prompt,
            mean_prompt=prepared.mean_prompt,
            prompts_per_step=training.prompts_per_step,
            group_size=sampling.group_size,
            max_tokens=sampling.max_tokens,
            steps=training.steps,
            passes=training.passes,
            minibatches=training.minibatches,
            micro_batch_tokens=(
                training.micro_batch_tokens if fit is None else fit.micro_batch_tokens
            ),
            batch_rows=sampling.batch_rows,
            evaluate_every=recipe.evaluation.every,
            evaluation_samples=recipe.evaluation.samples,
            checkpoint_every=recipe.checkpoints.every,
            checkpoints_kept=recipe.checkpoints.keep,
            best_kept=recipe.checkpoints.keep_best if recipe.checkpoints.best else 0,
            optimizer=training.optimizer,
            dtype="bfloat16" if "bfloat16" in str(dtype) else "float32",
            reference=needs.ref_logprobs or training.measure_kl,
            critic=training.critic if needs.values else None,
            teacher_parameters=teacher_parameters(recipe, model),
            gradient_checkpointing=(
                recipe.model.gradient_checkpointing if fit is None else fit.gradient_checkpointing
            ),
            greedy_rollouts=needs.greedy,
            max_rounds=None if needs.keep is None else needs.keep.max_batches,
            oversample=1.0 if needs.keep is None else needs.keep.oversample,
            adapter_parameters=None if model.adapter is None else model.adapter.parameters,
            available_bytes=memory_bytes() if device.type == "cpu" else None,
        )
    )


def comparison_of(prepared: Prepared, name: str) -> Comparison:
    """A prepared recipe under its own algorithm and under a preset. RecipeError for no such one."""
    own, other = prepared.recipe.algorithm, preset(name)
    return Comparison(own.name, other.name, (plan_of(prepared), plan_of(prepared, other)))
