"""Accelerators as data, and how long a step takes on one kind of them: arithmetic, no clock.

A time is work over a share of the device's peak. Communication between devices is not counted, so
with several of them it is a lower bound.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.planning.memory import kv_cache_bytes
from groupwise.suggestions import nearest

if TYPE_CHECKING:
    from groupwise.planning.run_plan import Plan, PlanInputs

LEARNING, PREFILL, DECODING = 0.4, 0.5, 0.6
"""Shares of the peak that are reached: operations of learning and of prompts, bytes of decoding."""
_DECODE_CALLS, _LEARN_CALLS = 30, 100
"""Calls of small operations a layer, in one decoding step and in one forward and backward pass."""
_LAUNCH = 4e-6
COMPLETION, _PASS = 1.7e-4, 5e-3
"""Seconds of the host's own work: for a completion that is sampled, and for a micro-batch's forward
pass (twice that with its backward pass); measured on a CPU with the smallest model."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device: bytes of memory, operations a second of dense matrix products (in bfloat16
    unless it was measured otherwise), bytes a second from its memory, seconds of a small call."""

    name: str
    memory: float
    flops: float
    bandwidth: float
    call: float = _LAUNCH
    measured: bool = False


GPUS = {
    name: Hardware(name, gigabytes * 1e9, teraflops * 1e12, gigabytes_a_second * 1e9)
    for name, gigabytes, teraflops, gigabytes_a_second in (
        ("t4", 16, 65, 320), ("l4", 24, 121, 300), ("a10", 24, 125, 600),
        ("rtx4090", 24, 165, 1008), ("l40s", 48, 362, 864), ("a100-40gb", 40, 312, 1555),
        ("a100", 80, 312, 2039), ("h100", 80, 989, 3350), ("h200", 141, 989, 4800),
        ("b200", 180, 2250, 8000), ("mi300x", 192, 1307, 5300),
    )
}  # fmt: skip
"""By name, from the makers' data sheets: memory, dense bfloat16 (t4: float16), bandwidth."""


def gpu_named(name: str) -> Hardware:
    """Raises RecipeError for an unknown one.

    >>> gpu_named("H100").memory
    80000000000.0
    """
    found = GPUS.get(name.lower())
    if found is None:
        near = nearest(name.lower(), GPUS)
        hint = f"; did you mean {near!r}?" if near else "."
        raise RecipeError(f"--gpu {name}: unknown{hint} Legal: {', '.join(GPUS)}")
    return found


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step by phase, verifiers and tools left out; `mean_tokens` a completion."""

    sampling: float
    logprobs: float
    learning: float
    mean_tokens: float

    @property
    def step(self) -> float:
        return self.sampling + self.logprobs + self.learning

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"step": self.step}


def token_seconds(
    given: PlanInputs, hardware: Hardware, rows: float, context: float, ways: int = 1
) -> float:
    """Seconds of one decoding step: a token more for each of `rows` rows a device, which are
    `context` tokens long on average with their prompts; `ways` devices share the weights.

    A step reads the weights and the rows' keys and values once.
    """
    shape = given.shape
    weights = weight_bytes(given)
    moved = weights / ways + kv_cache_bytes(shape, 1, given.dtype) * context * rows
    products = 2 * shape.matrix_parameters * rows
    return (
        max(moved / (DECODING * hardware.bandwidth), products / (LEARNING * hardware.flops))
        + _DECODE_CALLS * shape.layers * hardware.call
    )


def weight_bytes(given: PlanInputs) -> int:
    """Bytes of the matrices that a decoding step reads."""
    return given.shape.matrix_parameters * (2 if given.dtype == "bfloat16" else 4)


def prompt_seconds(given: PlanInputs, hardware: Hardware, tokens: float) -> float:
    """Seconds of the forward pass of so many prompt tokens on one device, before decoding."""
    return 2 * given.shape.matrix_parameters * tokens / (PREFILL * hardware.flops)


def learning_seconds(
    plan: Plan, hardware: Hardware, tokens: float, count: int = 1
) -> tuple[float, float]:
    """Seconds of the fixed log-probabilities and of learning from `tokens` tokens (prompts once a
    group) on each of `count` devices, which share the optimiser's state."""
    given, shape = plan.inputs, plan.inputs.shape
    forward = 2 * shape.parameters * tokens / (LEARNING * hardware.flops)
    calls = _LEARN_CALLS * shape.layers * hardware.call + 2 * _PASS
    extra = given.teacher_parameters / shape.parameters
    extra += (plan.updates_per_step > 1) + given.reference + (given.critic == "separate")
    learning = given.passes * forward * (4 if given.gradient_checkpointing else 3)
    learning += micro_batches(plan, tokens) * calls
    if given.critic == "separate":
        learning *= 2
    # The optimiser reads and writes weights, gradients and both moments.
    trained = given.adapter_parameters or shape.parameters
    learning += plan.updates_per_step * trained * 28 / count / (DECODING * hardware.bandwidth)
    return extra * (forward + calls / 2), learning


def micro_batches(plan: Plan, tokens: float) -> int:
    """Forward and backward passes of a step over so many tokens a device."""
    given = plan.inputs
    return max(plan.updates_per_step, given.passes * math.ceil(tokens / given.micro_batch_tokens))


def step_time(
    plan: Plan, hardware: Hardware, count: int = 1, mean_tokens: float | None = None
) -> StepTime:
    """Seconds of a step on `count` such devices, completions `mean_tokens` long (else the limit).

    Rows are shared out evenly. Where a device cannot hold the weights, devices share them. A prompt
    runs once a group.
    """
    given = plan.inputs
    length = min(given.max_tokens, mean_tokens or given.max_tokens)
    rows = math.ceil(plan.completions_per_step / count)
    waves = math.ceil(rows / given.batch_rows)
    ways = min(count, math.ceil(weight_bytes(given) / (0.8 * hardware.memory)))
    a_token = token_seconds(given, hardware, rows / waves, given.mean_prompt + length / 2, ways)
    prompts = given.prompts_per_step * given.mean_prompt / count
    sampling = waves * length * a_token
    sampling += prompt_seconds(given, hardware, prompts) + rows * COMPLETION
    logprobs, learning = learning_seconds(plan, hardware, prompts + rows * length, count)
    return StepTime(sampling, logprobs, learning, length)
