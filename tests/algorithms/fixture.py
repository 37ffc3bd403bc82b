"""The golden fixture as tensors, and small builders that several tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm, LossOutput

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "algorithms.json").read_text()
)
F = GOLDEN["fixture"]


def f64(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


MASK = f64(F["mask"]).bool()
NEW, OLD, REF, SAMPLER = (f64(F[f"{name}_logp"]) for name in ("new", "old", "ref", "sampler"))
ENTROPY = f64(F["entropy"])
REWARDS = f64(F["rewards"])
REWARDS_TWO = f64(F["rewards_two"])
GROUP_IDS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
TRL_STD = GOLDEN["advantages"]["grpo std ddof=1 eps=1e-4 (TRL)"]


def run_loss(algorithm: Algorithm, **inputs: Any) -> tuple[LossOutput, Tensor]:
    """(loss, gradient with respect to the new log-probabilities) of one update."""
    logprobs = inputs.pop("logprobs").clone().requires_grad_(True)
    out = algorithm.loss(logprobs, **inputs)
    (gradient,) = torch.autograd.grad(out.loss, logprobs)
    return out, gradient


def fixture_inputs(algorithm: Algorithm, advantages: Any) -> dict[str, Any]:
    """The fixture's tensors that this algorithm asks for."""
    needs = algorithm.needs
    inputs: dict[str, Any] = {
        "logprobs": NEW,
        "mask": MASK,
        "advantages": f64(advantages),
        "old_logprobs": OLD,
        "group_ids": GROUP_IDS,
        "max_tokens": 4,
    }
    if needs.ref_logprobs:
        inputs["ref_logprobs"] = REF
    if needs.sampler_logprobs:
        inputs["sampler_logprobs"] = SAMPLER
    if needs.entropies != "none":
        inputs["entropies"] = ENTROPY
    return inputs
