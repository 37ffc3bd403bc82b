"""What every sampler promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from groupwise.policies.policy import Policy
from groupwise.types import Completion, Request


@runtime_checkable
class Sampler(Protocol):
    """Requests in, completions out, in order.

    The next token is `draw.draw` of the request's key: a completion depends on its own request and
    the weights, and not on what else is in the batch (beyond float rounding of the logits).
    """

    def load(self, policy: Policy, version: int) -> None:
        """Sample from these weights from now on; nothing made from older ones survives."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order. Raises NonFiniteError naming the request."""

    def close(self) -> None:
        """Give back memory. The sampler is not used afterwards."""
