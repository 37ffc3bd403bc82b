"""Estimates the bytes that a run needs in memory, by kind, and for its checkpoints on disk.

Parameters, gradients, moments and caches are exact; activations are an estimate for decoders with
gated MLPs and fused attention.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from groupwise.errors import RecipeError
from groupwise.planning.shape import ModelShape

DTypeName = Literal["float32", "bfloat16"]
Optimizer = Literal["adamw", "sgd"]
CriticKind = Literal["separate", "shared"]

_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2}
_MOMENTS: Mapping[str, int] = {"adamw": 2, "sgd": 0}
# The log-probabilities' chunk of float32 logits, and how many buffers of it the backward pass has.
_CHUNK_BYTES = 64 * 2**20
_CHUNK_BUFFERS = 4
_NF4_BYTES = 0.52  # a parameter: 4 bits, and scales of 64 parameters that are in 8 bits themselves
_SHARDED = ("weights", "adapter", "optimizer moments", "reference")


@dataclass(frozen=True, slots=True)
class MemoryInputs:
    """What decides memory. `tokens` are those of one forward and backward pass, `rows` the
    completions decoded at once, `row_tokens` the longest prompt and completion together;
    `adapter_parameters` those of an adapter, which then alone train, None without one; `critic`
    None for a method without one; `teacher_parameters` those of all teachers that are loaded;
    `process` is what the process itself takes beside tensors; `ahead`: it samples while it learns,
    with weights of the sampler's own; `processes` share what trains, and its reference; `nf4`: the
    layers of an adapter's base are in 4 bits."""

    shape: ModelShape
    dtype: DTypeName
    optimizer: Optimizer
    reference: bool
    gradient_checkpointing: bool
    tokens: int
    rows: int
    row_tokens: int
    adapter_parameters: int | None = None
    critic: CriticKind | None = None
    teacher_parameters: int = 0
    process: int = 0
    ahead: bool = False
    processes: int = 1
    nf4: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by kind in one process, as `always` (the whole run), `sampling` and `learning` (only
    then); `peak_starting` where several processes load the whole model before they shard it."""

    always: Mapping[str, int]
    sampling: Mapping[str, int]
    learning: Mapping[str, int]
    peak_starting: int = 0

    @property
    def rows(self) -> list[tuple[str, int]]:
        """(kind, bytes), with when it is held unless that is the whole run."""
        parts = {"": self.always, " (while sampling)": self.sampling}
        parts[" (while learning)"] = self.learning
        return [
            (name + when, size) for when, kinds in parts.items() for name, size in kinds.items()
        ]

    @property
    def peak_sampling(self) -> int:
        return sum(self.always.values()) + sum(self.sampling.values())

    @property
    def peak_learning(self) -> int:
        return sum(self.always.values()) + sum(self.learning.values())

    @property
    def peak(self) -> int:
        """The largest of them: they do not overlap."""
        return max(self.peak_sampling, self.peak_learning, self.peak_starting)


def memory_plan(inputs: MemoryInputs) -> MemoryPlan:
    """Bytes by kind for a process that samples and learns, with the same weights where it is alone.

    Weights, gradients, moments, the reference and teachers are float32 (the masters). In bfloat16
    the sampler holds a low-precision copy of the matrices, and so does a forward pass that a
    backward pass follows. A critic of its own adds its weights, moments and gradients; its pass
    follows the policy's, so activations are those of one of them. Under an adapter the model is
    frozen and held once: the reference shares it and adds a copy of the adapter.
    """
    shape, low = inputs.shape, inputs.dtype != "float32"
    adapter = inputs.adapter_parameters or 0
    trained = adapter or shape.parameters
    root = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    layers = int((shape.parameters - root) * (_NF4_BYTES if inputs.nf4 else 4))
    copies = (shape.matrix_parameters + adapter) * _BYTES[inputs.dtype]
    copies = copies if low or inputs.nf4 else 0
    critic = critic_parameters(shape, inputs.critic)
    always = {
        "weights": root * 4 + layers,
        "adapter": adapter * 4,
        "optimizer moments": trained * 4 * _MOMENTS[inputs.optimizer],
        "reference": trained * 4 if inputs.reference else 0,
        "teachers": inputs.teacher_parameters * 4,
        "critic weights": critic * 4,
        "critic moments": critic * 4 * _MOMENTS[inputs.optimizer],
        "sampler's copy": copies,
        "libraries and buffers": inputs.process,
    }
    sampling = {
        "KV cache": kv_cache_bytes(shape, inputs.rows * inputs.row_tokens, inputs.dtype),
        "logits": inputs.rows * shape.vocabulary * 4 * _CHUNK_BUFFERS,
    }
    if inputs.ahead:
        always |= {"sampler's weights": trained * 4}
        always |= {f"sampler's {name}": size for name, size in sampling.items()}
    starting, gathered, number = 0, 0, inputs.processes
    if number > 1:
        whole = (shape.parameters + adapter) * 4
        # The reference shares an adapter's base until both are sharded.
        starting = 2 * whole + always["reference"] + inputs.teacher_parameters * 4 + inputs.process
        always["reference"] = whole if inputs.reference else 0
        always |= {name: -(-always[name] // number) for name in _SHARDED}
        always |= {"sampler's weights": whole}
        block = (shape.parameters - root) // shape.layers
        # What is in no block and two blocks, and the gradients of one before they are summed, each
        # with the buffer of its exchange.
        gathered = 8 * (root + 2 * block) + (0 if adapter else 8 * (root + block))
    return MemoryPlan(
        always={name: size for name, size in always.items() if size},
        sampling={} if inputs.ahead else sampling,
        peak_starting=starting,
        learning={
            "gradients": -(-trained * 4 // number),
            **({"gathered weights and gradients": gathered} if gathered else {}),
            **({"critic gradients": critic * 4} if critic else {}),
            "activations": activation_bytes(
                shape, inputs.tokens, inputs.dtype, inputs.gradient_checkpointing
            ),
            "logits": logits_bytes(shape, inputs.tokens),
            **({"low-precision weights": copies} if low and not inputs.nf4 else {}),
        },
    )


def critic_parameters(shape: ModelShape, critic: CriticKind | None) -> int:
    """Parameters that a critic adds: a value head, and a decoder of its own where it is separate.

    The decoder is the policy's without an output layer of its own.
    """
    if critic is None:
        return 0
    output = 0 if shape.tied else shape.vocabulary * shape.hidden
    return shape.hidden + 1 + (shape.parameters - output if critic == "separate" else 0)


def kv_cache_bytes(shape: ModelShape, tokens: int, dtype: DTypeName) -> int:
    """Bytes of keys and values of all layers for that many tokens."""
    return tokens * shape.layers * 2 * shape.kv_width * _BYTES[dtype]


def logits_bytes(shape: ModelShape, tokens: int) -> int:
    """Bytes of the logits that exist at once: a chunk of bounded size and its gradients."""
    row = 4 * shape.vocabulary
    return min(tokens * row, max(_CHUNK_BYTES, 16 * row)) * _CHUNK_BUFFERS


def activation_bytes(
    shape: ModelShape, tokens: int, dtype: DTypeName, checkpointing: bool = False
) -> int:
    """Bytes kept for the backward pass of the decoder over that many tokens (an estimate).

    A token and layer keep 8 hidden widths (two norms with their inputs, queries, attention's
    output), keys and values, and 4 widths of the gated MLP; in bfloat16 the norms' 4 stay float32
    and the rest (then 7) is in 2 bytes. With checkpointing a layer keeps its input alone, and one
    layer at a time is whole.
    """
    inner = 2 * shape.kv_width + 4 * shape.intermediate
    if dtype == "float32":
        layer = 4 * (8 * shape.hidden + inner)
    else:
        layer = 4 * 4 * shape.hidden + 2 * (7 * shape.hidden + inner)
    final_norm = 4 * 3 * shape.hidden
    if checkpointing:
        return tokens * (shape.layers * 4 * shape.hidden + layer + final_norm)
    return tokens * (shape.layers * layer + final_norm)


def checkpoint_file_bytes(
    shape: ModelShape,
    optimizer: Optimizer,
    adapter_parameters: int | None = None,
    critic: CriticKind | None = None,
) -> int:
    """Bytes of one checkpoint: float32 weights that train (tied ones once) and the optimiser's
    moments, of the policy and of a critic. Frozen weights are not written."""
    trained = (adapter_parameters or shape.parameters) + critic_parameters(shape, critic)
    return 4 * trained * (1 + _MOMENTS[optimizer])


@dataclass(frozen=True, slots=True)
class Fit:
    """How learning runs within a budget; `bytes` is its peak by the plan's formulas."""

    micro_batch_tokens: int
    gradient_checkpointing: bool
    bytes: int


def fit_learning(inputs: MemoryInputs, budget: int) -> Fit:
    """The fastest way to learn that the formulas put within `budget` bytes; the result is the same.

    First as requested, then with activations recomputed in the backward pass, then with smaller
    micro-batches.
    Weights, moments, gradients and activations count. `inputs` say what is asked for; a micro-batch
    holds the longest row at least. Raises RecipeError naming the smallest budget that works.
    """

    def peak(tokens: int, recompute: bool) -> int:
        changed = replace(inputs, tokens=tokens, gradient_checkpointing=recompute)
        return memory_plan(changed).peak_learning

    for recompute in dict.fromkeys((inputs.gradient_checkpointing, True)):
        if peak(inputs.tokens, recompute) <= budget:
            return Fit(inputs.tokens, recompute, peak(inputs.tokens, recompute))
    floor = min(inputs.row_tokens, inputs.tokens)
    sizes = range(floor, inputs.tokens)
    fitting = bisect_right(sizes, budget, key=lambda tokens: peak(tokens, True))
    if not fitting:
        smallest = peak(floor, True) / 1e9 + 5e-3  # rounded up
        raise RecipeError(
            f"training.memory_budget = {budget / 1e9:.3g} (GB) is too small for one row of "
            f"{floor} tokens; the smallest that works is {smallest:.2f}"
        )
    return Fit(sizes[fitting - 1], True, peak(sizes[fitting - 1], True))
