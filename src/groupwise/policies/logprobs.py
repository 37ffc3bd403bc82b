"""Log-probabilities of completions under a policy, from hidden states in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from groupwise.policies.policy import Policy


@dataclass(frozen=True)
class LogprobOutput:
    """Per-token values of B completions, T = the longest, float32; 0 after a row's end."""

    logprobs: Tensor
    entropies: Tensor | None = None


def sequence_logprobs(
    policy: Policy,
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    entropies: Literal["none", "detached", "live"] = "none",
    chunk_tokens: int = 1024,
) -> LogprobOutput:
    """logprobs [B, T] float32 on the policy's device, differentiable unless under no_grad."""
    raise SystemExit("being written")


def score(
    policy: Policy,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    temperature: float = 1.0,
) -> Tensor:
    """[T] float32."""
    raise SystemExit("being written")
