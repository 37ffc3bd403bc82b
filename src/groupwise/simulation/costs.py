"""Seconds of each part of a step on some devices: the plan's arithmetic, the traffic between
devices, and the corrections that a recorded run gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from groupwise.errors import RecipeError
from groupwise.planning import Hardware, Plan
from groupwise.planning.hardware import (
    COMPLETION,
    learning_seconds,
    micro_batches,
    prompt_seconds,
    token_seconds,
    weight_bytes,
)
from groupwise.planning.memory import kv_cache_bytes
from groupwise.planning.methods import TRAINED, USABLE

NODE = 8
"""Devices of one machine."""
_MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of a step. `rest` is all beside the other three: scoring that sampling did not hide,
    new weights for the sampler, batches and the record."""

    rollout: float
    logprobs: float
    learn: float
    rest: float


def recorded_phases(lines: Sequence[Mapping[str, Any]]) -> Phases:
    """Medians over a record's lines of metrics, without the first step (which warms up) and without
    evaluations. Raises RecipeError where there are fewer than three steps."""
    if len(lines) < 3:
        raise RecipeError(f"the record has {len(lines)} steps; a calibration needs 3 or more")
    names = ("rollout", "logprobs", "learn", "step", "evaluate")
    seen = [[line.get(f"seconds/{name}") or 0.0 for name in names] for line in lines[1:]]
    rest = [step - sum(parts) - evaluate for *parts, step, evaluate in seen]
    rollout, logprobs, learn = (median(each[i] for each in seen) for i in range(3))
    return Phases(rollout, logprobs, learn, max(0.0, median(rest)))


UNCORRECTED = Phases(1.0, 1.0, 1.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Where a recipe's step runs. `verify` is seconds a completion, on one of `verifiers` workers a
    machine, while others are sampled. `link` and `node_link` are bytes a second between a device
    and other machines (400 Gb/s) or its own."""

    plan: Plan
    hardware: Hardware
    verify: float = 0.0
    verifiers: int = NODE
    link: float = 50e9
    node_link: float = 300e9
    calibration: Phases = UNCORRECTED

    @property
    def ways(self) -> int:
        """Devices that share one sampler's weights: the fewest (a power of two) in which they take
        a quarter of the memory at most, so that many rows fit beside them."""
        return _power(4 * weight_bytes(self.plan.inputs) / self.hardware.memory)

    @property
    def shards(self) -> int:
        """The fewest devices (a power of two) that hold weights, gradients and moments, with a
        fifth of the memory left for activations."""
        given = self.plan.inputs
        size = TRAINED * (given.adapter_parameters or given.shape.parameters)
        size += weight_bytes(given) if given.adapter_parameters else 0
        return _power(size / (USABLE * 0.8 * self.hardware.memory))

    def slots(self, mean_tokens: float) -> int:
        """Rows that a sampler decodes at once: the recipe's on hardware at hand, else what fits."""
        given = self.plan.inputs
        if self.hardware.measured:
            return given.batch_rows
        room = USABLE * self.hardware.memory * self.ways - weight_bytes(given)
        row = kv_cache_bytes(given.shape, 1, given.dtype) * (given.mean_prompt + mean_tokens)
        return max(1, min(_MOST_ROWS, int(room / row)))

    def decode(self, rows: int, context: float, tokens: int, started: int) -> float:
        """So many tokens more for each of a sampler's rows, of which `started` begin with their
        share of the group's prompt and the host's work for them."""
        given, ways = self.plan.inputs, self.ways
        each = token_seconds(given, self.hardware, rows / ways, context, ways)
        prompts = started * given.mean_prompt / given.group_size / ways
        prompt = prompt_seconds(given, self.hardware, prompts)
        return self.calibration.rollout * (tokens * each + prompt + started * COMPLETION)

    def learn(self, tokens: int, longest: int, count: int) -> tuple[float, float]:
        """Log-probabilities and updates over a step's `tokens` on `count` devices, each of which
        has a row to do. Weights are gathered twice a micro-batch and gradients scattered once among
        `shards` devices while they compute; gradients are summed over all devices once an update.
        """
        plan, given = self.plan, self.plan.inputs
        each = max(tokens / count, given.mean_prompt + longest if count > 1 else 0)
        logprobs, learning = learning_seconds(plan, self.hardware, each, count)
        if count > 1:
            shards = min(count, self.shards)
            speed = self.node_link if shards <= NODE else self.link
            gathered = 3 * 2 * given.shape.parameters * (1 - 1 / shards) / speed
            trained = given.adapter_parameters or given.shape.parameters
            summed = 2 * 4 * trained / shards * (1 - shards / count) / self.link
            learning = max(learning, micro_batches(plan, each) * gathered)
            learning += plan.updates_per_step * summed
        return self.calibration.logprobs * logprobs, self.calibration.learn * learning

    def transfer(self, samplers: int, colocated: bool) -> float:
        """New weights to all samplers at once, each device its share; nothing in one process."""
        if samplers == 1 and colocated:
            return 0.0
        given = self.plan.inputs
        moved = 2 * (given.adapter_parameters or given.shape.parameters) / self.ways
        return moved / (self.node_link if colocated else self.link) + 1e-3 * math.log2(samplers + 1)


def _power(least: float) -> int:
    """The smallest power of two that is at least this.

    >>> [_power(each) for each in (0.2, 1.0, 2.5, 8.0)]
    [1, 1, 4, 8]
    """
    return 1 << (math.ceil(least) - 1).bit_length() if least > 1 else 1
