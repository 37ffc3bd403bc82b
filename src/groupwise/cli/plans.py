"""What `groupwise plan` shows of a recipe: its own plan, on other hardware, or beside a method."""

from __future__ import annotations

from dataclasses import replace

from groupwise.algorithms import preset
from groupwise.errors import RecipeError
from groupwise.planning import (
    Comparison,
    Estimate,
    Plan,
    estimate,
    gpu_named,
    plan,
    shape_of_size,
    size_text,
)
from groupwise.training.planned import own_hardware, plan_of
from groupwise.training.preparing import Prepared


def comparison_of(prepared: Prepared, name: str) -> Comparison:
    """A prepared recipe under its own algorithm and under a preset. RecipeError for no such one."""
    own, other = prepared.recipe.algorithm, preset(name)
    return Comparison(own.name, other.name, (plan_of(prepared), plan_of(prepared, other)))


def estimate_of(
    prepared: Prepared,
    gpu: str | None,
    count: int,
    parameters: float | None,
    price: float | None,
    mean_tokens: float | None,
) -> Estimate:
    """The plan's time, cost and memory by method: on `count` of a named accelerator, else here.

    With `parameters` for a policy of that size in place of the recipe's, in bfloat16. Raises
    RecipeError for an unknown accelerator, several devices here, or a figure out of its range.
    """
    if price is not None and not 0 <= price <= 1e6:
        raise RecipeError(f"--price {price:g}: give the price of one hour, from 0 to 1e6")
    longest = plan_of(prepared).inputs.max_tokens
    if mean_tokens is not None and not 1 <= mean_tokens <= longest:
        raise RecipeError(
            f"--mean-tokens {mean_tokens:g}: give a mean from 1 to sampling.max_tokens ({longest})"
        )
    if gpu is None and count != 1:
        raise RecipeError(f"--count {count}: of what? name an accelerator, as --gpu h100")
    made, hardware = plan_of(prepared), own_hardware(prepared) if gpu is None else gpu_named(gpu)
    if gpu is not None or parameters is not None:
        made = elsewhere(made, parameters)
    return estimate(made, hardware, count, price=price, mean_tokens=mean_tokens)


def elsewhere(made: Plan, parameters: float | None) -> Plan:
    """The plan of another machine: bfloat16, activations recomputed, of another size if given."""
    given = replace(
        made.inputs, dtype="bfloat16", gradient_checkpointing=True, process_bytes=0,
        available_bytes=None,
    )  # fmt: skip
    if parameters is not None:
        shape = shape_of_size(parameters)
        given = replace(given, shape=shape, adapter_parameters=None, model=size_text(parameters))
    return plan(given)
