"""A sampler by name, and sampling in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupwise.policies.policy import Policy
from groupwise.samplers.contract import Sampler
from groupwise.types import Completion


def make_sampler(name: str, policy: Policy, *, batch_rows: int = 128) -> Sampler:
    """The sampler called `name`, loaded with `policy`."""
    raise SystemExit("being written")


def sample(
    policy: Policy,
    prompts: Sequence[Any],
    group_size: int = 8,
    max_tokens: int = 64,
    temperature: float = 1.0,
    seed: int = 0,
    sampler: str = "auto",
) -> list[list[Completion]]:
    """prompts: texts, chats (lists of messages) or id lists."""
    raise SystemExit("being written")
