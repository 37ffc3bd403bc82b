"""What a micro-batch reads of its step's tables, and what is read of its pass.

Shapes: B rows of the step, b rows of a micro-batch, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from groupwise.policies import LogprobOutput
from groupwise.types import Rows


def as_table(rows: Rows, parts: Sequence[Tensor], column: Sequence[Tensor | None]) -> Tensor | None:
    """The micro-batches' values [b, t] as one table [B, T], 0 outside the mask."""
    table = torch.zeros(rows.mask.shape, dtype=torch.float32)
    for index, values in zip(parts, column, strict=True):
        if values is None:
            return None
        table[index, : values.shape[1]] = values
    return torch.where(rows.mask, table, 0.0)


def zero_loss(output: LogprobOutput) -> Tensor:
    """0, by a graph through all that trains: a backward pass for the sake of its exchanges."""
    return output.logprobs.sum() * 0.0


@overload
def cut(tensor: Tensor, index: Tensor, width: int, device: torch.device) -> Tensor: ...
@overload
def cut(tensor: None, index: Tensor, width: int, device: torch.device) -> None: ...
def cut(tensor: Tensor | None, index: Tensor, width: int, device: torch.device) -> Tensor | None:
    """Some rows of a batch's tensor ([B], [B, T] or [B, T, K]), cut to a micro-batch's width."""
    if tensor is None:
        return None
    chosen = tensor[index]
    return (chosen[:, :width] if chosen.dim() > 1 else chosen).to(device)


def culprit(output: LogprobOutput) -> str:
    finite = bool(torch.isfinite(output.logprobs.detach()).all())
    return "loss is" if finite else "policy's log-probabilities are"


def moved_by(logprobs: Tensor, old: Tensor | None, mask: Tensor) -> float:
    """Sum over trained tokens of k3 from the step's first policy to this one; 0 without `old`."""
    if old is None:
        return 0.0
    distance = torch.where(mask, old - logprobs.detach().float(), 0.0)
    return float((distance.exp() - 1.0 - distance).sum())
