"""Whether a server samples from the learner's weights: both score the same tokens.

N fixed ids are scored at temperature 1 (a prompt's log-probabilities are given no other way), and
a few sampled behind them at `TEMPERATURE`, which shows a server that reports raw ones, and keys and
values of older weights in its cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.policies.logprobs import score
from groupwise.policies.policy import Policy
from groupwise.samplers.contract import TOLERANCE

TEXT = (
    "A train leaves at 9:40 and arrives at 11:05; the ticket costs 12 euros and 30 cents. "
    "How long does it take, and what do 3 tickets cost? Write both numbers."
)
TEMPERATURE = 0.7
SAMPLED = 8
_FIXED = 160  # more fixed ids than a block of a server's cache holds (16 to 128)
_SEEN = 8.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's log-probabilities: [N - 1] of the fixed ids but the first, and of what it sampled
    behind them."""

    fixed: Tensor
    ids: tuple[int, ...]
    sampled: Tensor


def probe_ids(policy: Policy, longest: int) -> tuple[int, ...]:
    """The fixed ids: a text, repeated; rows with what is sampled have at most `longest` ids."""
    once = policy.template.encode(TEXT, markers=False) or (policy.template.pad_id,)
    count = max(2, min(_FIXED, min(longest, policy.max_length) - SAMPLED))
    return (once * (count // len(once) + 1))[:count]


class Probe:
    """The learner's side of one version; `before` is that of the version before."""

    def __init__(self, policy: Policy, ids: tuple[int, ...], before: Probe | None) -> None:
        self.policy, self.ids = policy, ids
        self.fixed = self._score(ids[:1], ids[1:], 1.0)
        self.older = before.fixed if before is not None and before.ids == ids else None

    def _score(self, prompt: Sequence[int], ids: Sequence[int], temperature: float) -> Tensor:
        with torch.no_grad():
            return score(self.policy, prompt, ids, temperature).double().cpu()

    @property
    def name(self) -> str:
        return hashlib.sha256(self.fixed.numpy().tobytes()).hexdigest()[:16]

    @property
    def moved(self) -> bool:
        """Whether the policy is another one than in the version before."""
        return self.older is not None and not torch.equal(self.fixed, self.older)

    def problem(self, reply: Reply, raw: str, hint: str = "") -> str | None:
        """What is wrong with the server's weights, None for nothing. `raw` is what makes such
        a server report the log-probabilities that are needed, `hint` what explains other weights.
        """
        tolerance = TOLERANCE.get(self.policy.dtype, max(TOLERANCE.values()))
        gap = _gap(reply.fixed, self.fixed)
        where = f"of {len(self.fixed)} fixed tokens"
        if not gap <= tolerance:
            return (
                f"its log-probabilities {where} are {gap:.3g} nats from the policy's on average, "
                f"and {tolerance} is the most that the precision explains: it holds other weights, "
                f"or computes in another precision{hint}"
            )
        if self._is_older(reply):
            return f"its log-probabilities {where} are those of the version before: it kept them"
        try:
            learner, before = (self._score(self.ids, reply.ids, t) for t in (TEMPERATURE, 1.0))
        except ValueError as error:
            return f"it sampled ids that the policy does not have: {error}"
        gap, other = _gap(reply.sampled, learner), _gap(reply.sampled, before)
        if gap <= tolerance:
            return None
        if other <= tolerance:
            return (
                f"it reports log-probabilities before the temperature ({TEMPERATURE}): start it "
                f"{raw}"
            )
        return (
            f"the log-probabilities of what it samples are {gap:.3g} nats from the policy's on "
            f"average, and those {where} agree: its cache of prompts holds older weights"
        )

    def _is_older(self, reply: Reply) -> bool:
        """Whether the reply is nearer to the version before, where rounding cannot hide it.

        With noise s a token and a step of length d in all, the nearer of the two is the wrong one
        with probability Q(d / 2s): below 1e-4 where d > 8 s.
        """
        if self.older is None:
            return False
        step = float((self.fixed - self.older).norm())
        miss = reply.fixed - self.fixed
        noise = float(miss.norm()) / len(miss) ** 0.5
        return step > _SEEN * noise and float((reply.fixed - self.older).norm()) < float(
            miss.norm()
        )


def _gap(one: Tensor, other: Tensor) -> float:
    """The mean distance, infinite where there is nothing to compare."""
    return float((one - other).abs().mean()) if len(one) == len(other) > 0 else float("inf")
