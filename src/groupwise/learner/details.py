"""What a step's updates did with each token: for the record, read after the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.distributed import Ranks
from groupwise.policies import LogprobOutput
from groupwise.types import Rows


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one micro-batch, and what its backward pass left; [b, t] float32 on the CPU."""

    index: Tensor
    logprobs: Tensor
    entropies: Tensor | None
    gradient: Tensor | None


class TokenDetails:
    """Per-token values of a step's rows, [B, T] float32 on the CPU, NaN where no update used them.

    `logprobs` and `entropies` (nats) are of the row's last update. `loss_weights` is minus the
    derivative of the loss by the token's log-probability, summed over the updates: what the token
    pushed after weights, clips, masks and corrections, above 0 where it was made likelier. Terms
    that are not of the sampled token (an entropy bonus, a teacher's whole distribution) are not in
    it, nor is gradient clipping.
    """

    def __init__(self, rows: Rows) -> None:
        self._parts: list[_Part] = []
        self.logprobs = torch.full(rows.mask.shape, torch.nan)
        self.entropies = self.logprobs.clone()
        self.loss_weights = self.logprobs.clone()

    def watch(self, output: LogprobOutput) -> None:
        """Before the backward pass: keep the gradient at the log-probabilities."""
        if output.logprobs.requires_grad:
            output.logprobs.retain_grad()

    def see(self, index: Tensor, output: LogprobOutput) -> None:
        """After the backward pass of a micro-batch of the rows `index`."""
        entropies, gradient = output.entropies, output.logprobs.grad
        self._parts.append(
            _Part(
                index,
                output.logprobs.detach().float().cpu(),
                None if entropies is None else entropies.detach().float().cpu(),
                None if gradient is None else gradient.float().cpu(),
            )
        )

    def exchange(self, ranks: Ranks) -> None:
        """All ranks' micro-batches, on every rank."""
        self._parts = [part for parts in ranks.gather(self._parts) for part in parts]

    def end_update(self, made: bool) -> None:
        """The micro-batches seen belong to an update that was made, or was given up."""
        for part in self._parts if made else ():
            place = (part.index, slice(part.logprobs.shape[1]))
            self.logprobs[place] = part.logprobs
            if part.entropies is not None:
                self.entropies[place] = part.entropies
            if part.gradient is not None:
                self.loss_weights[place] = self.loss_weights[place].nan_to_num() - part.gradient
        self._parts.clear()
