"""What flows through the advantage slots: the inputs of a step, and a signal with its population.

Legend: B rows, P groups, G the largest group, T tokens, S entries of a row's signal (steps or
tokens), R reward components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.algorithms.groups import Groups, refuse_infinite
from groupwise.algorithms.state import AlgorithmState


class StepInputs(TypedDict, total=False):
    """What advantages are made from beside the rewards, as `Algorithm.advantages` says."""

    components: Any
    step_rewards: Sequence[Sequence[float]] | None
    step_ends: Sequence[Sequence[int]] | None
    mask: Any
    entropies: Any
    old_logprobs: Any
    ref_logprobs: Any
    greedy_rewards: Any
    values: Any
    teacher_logprobs: Any
    prompt_ids: Sequence[str] | None
    state: AlgorithmState | None


@dataclass(frozen=True, slots=True)
class AdvantageInputs:
    """A step's inputs as the parts see them: rows, scored, masked, in one float dtype.

    `rewards` are 0 where `scored` is False. `in_batch` marks the rows of batch-wide statistics.
    `ddof` and `eps` are those of the scale slot. `prompt_ids` has one id a group.
    """

    rewards: Float[Tensor, " B"]
    scored: Bool[Tensor, " B"]
    in_batch: Bool[Tensor, " B"]
    groups: Groups
    ddof: int = 0
    eps: float = 0.0
    components: Float[Tensor, "B R"] | None = None
    steps: Signal | None = None
    mask: Bool[Tensor, "B T"] | None = None
    entropies: Float[Tensor, "B T"] | None = None
    old_logprobs: Float[Tensor, "B T"] | None = None
    ref_logprobs: Float[Tensor, "B T"] | None = None
    greedy_rewards: Float[Tensor, " B"] | None = None
    values: Float[Tensor, "B T"] | None = None
    teacher_logprobs: Float[Tensor, "B T"] | None = None
    prompt_ids: tuple[str, ...] | None = None
    state: AlgorithmState | None = None

    def need(self, name: str, part: str) -> Tensor:
        """The input of that name, or a ValueError that names the part which asked for it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{part} needs {name}, which was not given")
        assert isinstance(value, Tensor)
        return value


@dataclass(frozen=True, slots=True)
class Signal:
    """Numbers on their way to an advantage: one a row [B], or S a row [B, S].

    `present` has the same shape: False entries are outside every statistic and end as 0. `ends`
    [B, S] says at which token an entry counts; None for a signal with one number a row.
    """

    values: Float[Tensor, "B ..."]
    present: Bool[Tensor, "B ..."]
    ends: Int[Tensor, "B S"] | None = None

    def per_row(self, per_row: Shaped[Tensor, " B"]) -> Tensor:
        """[B] shaped so that it broadcasts against `values` row by row."""
        return per_row.view(-1, *([1] * (self.values.dim() - 1)))


def pad_steps(
    step_rewards: Sequence[Sequence[float]],
    step_ends: Sequence[Sequence[int]] | None,
    like: Float[Tensor, " B"],
) -> Signal:
    """Lists of step rewards and of the token index that ends each step, as padded tensors.

    Raises ValueError where the lists do not match each other or the rows, or one is infinite.
    """
    if step_ends is None:
        raise ValueError("step_rewards need step_ends, the token index that ends each step")
    if len(step_rewards) != len(like) or len(step_ends) != len(like):
        raise ValueError(
            f"step_rewards and step_ends have {len(step_rewards)} and {len(step_ends)} rows, "
            f"rewards {len(like)}"
        )
    width = max((len(row) for row in step_rewards), default=0)
    values = torch.full((len(like), width), torch.nan, dtype=like.dtype, device=like.device)
    ends = torch.zeros(len(like), width, dtype=torch.long, device=like.device)
    for row, (rewards, at) in enumerate(zip(step_rewards, step_ends, strict=True)):
        if len(rewards) != len(at):
            raise ValueError(f"row {row} has {len(rewards)} step rewards and {len(at)} step ends")
        if any(end < 0 for end in at):
            raise ValueError(f"row {row}: a step end is a token index of 0 or more, got {list(at)}")
        values[row, : len(rewards)] = torch.as_tensor(
            list(rewards), dtype=like.dtype, device=like.device
        )
        ends[row, : len(at)] = torch.as_tensor(list(at), dtype=torch.long, device=like.device)
    refuse_infinite("step_rewards", values)
    present = ~values.isnan()
    return Signal(torch.where(present, values, 0), present, ends)
