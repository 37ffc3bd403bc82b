"""The plan of a recipe, from what is known before weights load, and what a run records of it."""

from __future__ import annotations

from functools import cache

import torch

from groupwise.algorithms import Algorithm
from groupwise.distributed import world_size
from groupwise.learner import peak_memory_bytes, resident_memory_bytes
from groupwise.planning import Hardware, Plan, PlanInputs, plan, shape_from_config, step_time
from groupwise.policies import choose_device, choose_dtype, measure_speed
from groupwise.records import RunWriter, memory_bytes
from groupwise.training.preparing import Prepared, fit_of, teacher_parameters

PROCESS = 110_000_000
"""Bytes that libraries, the tokenizer and buffers take from the first model load on, beside
tensors: measured with the smallest model on a CPU (where a process is counted as a whole)."""


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
            ahead=recipe.compute.max_staleness > 0,
            critic=training.critic if needs.values else None,
            teacher_parameters=teacher_parameters(recipe, model),
            gradient_checkpointing=(
                recipe.model.gradient_checkpointing if fit is None else fit.gradient_checkpointing
            ),
            greedy_rollouts=needs.greedy,
            max_rounds=None if needs.keep is None else needs.keep.max_batches,
            oversample=1.0 if needs.keep is None else needs.keep.oversample,
            adapter_parameters=None if model.adapter is None else model.adapter.parameters,
            process_bytes=PROCESS if device.type == "cpu" else 0,
            processes=world_size(recipe.compute.processes),
            nf4=recipe.model.in_4_bits,
            available_bytes=memory_bytes() if device.type == "cpu" else None,
        )
    )


@cache
def hardware_at_hand(device: torch.device, dtype: torch.dtype) -> Hardware:
    """The device as a plan's time needs it, its speed measured once in a process."""
    speed = measure_speed(device, dtype)
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else "this machine"
    memory = torch.cuda.mem_get_info(device)[1] if is_cuda else memory_bytes() or 0
    return Hardware(name, memory, speed.flops, speed.bandwidth, speed.call, measured=True)


def own_hardware(prepared: Prepared) -> Hardware:
    """The device that a recipe would run on here."""
    model = prepared.recipe.model
    device = choose_device(model.device)
    dtype = choose_dtype(model.dtype, device, prepared.model.num_parameters)
    return hardware_at_hand(device, dtype)


def record_plan(prepared: Prepared, writer: RunWriter) -> None:
    """Write down what the plan says, before weights load, so that the run can be held against it.

    `memory` is the planned peak, of what is allocated from now on; `resident` and `peak` are what
    the process holds and held before, the measurement of its speed included; `step_seconds` is of
    a step with every completion at the limit.
    """
    made, device = plan_of(prepared), choose_device(prepared.recipe.model.device)
    seconds = step_time(made, own_hardware(prepared)).step
    writer.event(
        "planned",
        memory=made.memory.peak,
        resident=resident_memory_bytes(device),
        peak=peak_memory_bytes(device),
        step_seconds=seconds,
        tokens=made.max_tokens_per_step,
    )
