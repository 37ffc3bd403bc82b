"""The PPO comparator's critic: a value for every completion position, from a decoder and a head.

The full form is a second model, which starts as a copy of the policy's decoder; the cheap form is a
head on the policy's hidden states.
Shapes: B rows, T tokens of the longest completion, N completion tokens of all rows, D hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from groupwise.policies.heads import Head, LogitRule, head_of
from groupwise.policies.logprobs import completion_states, token_table
from groupwise.policies.policy import Policy


class ValueHead(nn.Module):
    """[N, D] hidden states to [N, 1] values, float32 at least; 0 everywhere at the start."""

    def __init__(self, width: int, like: Tensor) -> None:
        """`like` sets the device, and float64 if it is float64."""
        super().__init__()
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.linear = nn.Linear(width, 1, device=like.device, dtype=dtype)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N 1"]:
        out: Tensor = self.linear(hidden.to(self.linear.weight.dtype))
        return out


class Critic(nn.Module):
    """A value head, with its own decoder or (`trunk` None) on the policy's.

    V_t is the value of the state before completion token t: prompt and tokens 0 to t - 1.
    """

    def __init__(self, trunk: nn.Module | None, head: ValueHead) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    @property
    def shared(self) -> bool:
        return self.trunk is None


def make_critic(policy: Policy, *, shared: bool = False) -> Critic:
    """A critic for a policy: a trained copy of its decoder as it is now, or a head on its own."""
    head = head_of(policy.model)
    like = next(head.linear.parameters())
    trunk = None
    if not shared:
        trunk = copy.deepcopy(head.decoder)
        trunk.requires_grad_(True)
        trunk.eval()
    return Critic(trunk, ValueHead(like.shape[-1], like))


def sequence_values(
    critic: Critic,
    policy: Policy,
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
) -> Float[Tensor, "B T"]:
    """Values of every completion position under a critic with its own decoder, 0 after a row's end.

    `policy` gives padding, device and precision. Raises ValueError for a shared critic, whose
    values come with the policy's log-probabilities (`sequence_logprobs(value_head=...)`).
    """
    if critic.trunk is None:
        raise ValueError("a shared critic has no decoder; use sequence_logprobs(value_head=...)")
    own = Head(critic.trunk, critic.head.linear, LogitRule())
    hidden = completion_states(policy, critic, own, prompt_ids, completion_ids)
    return token_table(critic.head(hidden)[:, 0], [len(ids) for ids in completion_ids])
