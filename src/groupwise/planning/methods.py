"""What methods hold in memory side by side, in mixed precision: weights, gradients, optimiser.

16 bytes a trained parameter (bfloat16 weights and gradients, float32 weights and two moments) and 2
a frozen one; activations, keys and values apart. This is the usual layout on accelerators; a run's
own table counts what this learner holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.planning.shape import ModelShape

TRAINED, FROZEN = 16, 2
USABLE = 0.9
"""Share of a device's memory that weights, gradients and moments may take with all the rest."""


@dataclass(frozen=True, slots=True)
class Method:
    """Bytes by what they are of."""

    name: str
    states: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.states.values())

    def devices(self, memory: float, beside: float) -> int | None:
        """How many devices of so many bytes hold it, shared out, each with `beside` more; None
        where not even `beside` fits."""
        room = USABLE * memory - beside
        return math.ceil(self.total / room) if room > 0 else None


def methods(parameters: int, adapter: int) -> tuple[Method, ...]:
    """PPO and the group methods for a policy of so many parameters, and an adapter's.

    >>> {each.name: each.total // 10**9 for each in methods(7 * 10**9, 40 * 10**6)}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'group': 112, 'group, reference': 126, 'PPO': 224, 'PPO, reference': 238,
     'PPO, reference, reward model': 252, 'group, LoRA': 14}
    >>> [each.total // 10**9 for each in methods(32 * 10**9, 0)][::2][:2]
    [512, 1024]
    """
    policy = {"policy": TRAINED * parameters}
    reference = {"reference": FROZEN * parameters}
    critic = policy | {"critic": TRAINED * parameters}
    return (
        Method("group", policy),
        Method("group, reference", policy | reference),
        Method("PPO", critic),
        Method("PPO, reference", critic | reference),
        Method(
            "PPO, reference, reward model",
            critic | reference | {"reward model": FROZEN * parameters},
        ),
        # The reference is the frozen model without the adapter.
        Method("group, LoRA", {"frozen model": FROZEN * parameters, "adapter": TRAINED * adapter}),
    )


def adapter_parameters(shape: ModelShape, rank: int = 16) -> int:
    """Parameters of an adapter on every matrix of every layer of a decoder with a gated MLP."""
    hidden, kv, inner = shape.hidden, shape.kv_width, shape.intermediate
    layer = 2 * (hidden + hidden) + 2 * (hidden + kv) + 3 * (hidden + inner)
    return shape.layers * rank * layer
