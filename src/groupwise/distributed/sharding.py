"""Weights sharded over the processes of a run by FSDP2, one block at a time.

A pass gathers a block's weights while it runs and frees them after it; gradients are summed over
the ranks, as the loss is a sum with weights of the whole update. What belongs to no block
(embeddings, the last norm, the head) is whole during a pass. Sharded parameters stay float32 and
are gathered as float32; under bfloat16 a pass casts them as it does in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.distributed.ranks import Ranks
from groupwise.policies.heads import head_of
from groupwise.policies.logprobs import runs_packed
from groupwise.policies.policy import Policy


class Pass(nn.Module):
    """The root of a sharded model: what is called inside sees whole weights. The model itself is
    not entered by its own `forward`, so the root cannot be the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, call: Callable[[], tuple[Tensor | None, ...]]) -> tuple[Tensor | None, ...]:
        return call()


def shard(policy: Policy, ranks: Ranks) -> None:
    """Shard the policy's parameters, in place; its optimiser is made afterwards."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    runs_packed(policy)  # what is found out by a pass is found out before
    root = Pass(policy.model)
    for block in _blocks(head_of(policy.model).decoder):
        fully_shard(block, mesh=ranks.mesh, reshard_after_forward=True)
    fully_shard(root, mesh=ranks.mesh, reshard_after_forward=True)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            # On every one: on the root alone the others still take the mean over the ranks.
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
    policy.root = root


def _blocks(decoder: nn.Module) -> list[nn.Module]:
    """The decoder's layers: its longest list of modules."""
    lists = [list(each) for each in decoder.modules() if isinstance(each, nn.ModuleList)]
    return max(lists, key=len, default=[])


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor as a whole one, on every rank; any other as it is."""
    full: Any = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


@torch.no_grad()
def put_(tensor: Tensor, values: Tensor) -> None:
    """Copy whole values, the same on every rank, into a tensor that may be sharded."""
    placed: Any = tensor
    if hasattr(tensor, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        values = distribute_tensor(
            values.to(tensor.device), placed.device_mesh, placed.placements, src_data_rank=None
        )
    tensor.copy_(values)


@torch.no_grad()
def copy_weights(policy: Policy, target: Policy) -> None:
    """The policy's weights that train, whole, into its copy, which is not sharded."""
    pairs = zip(policy.model.parameters(), target.model.parameters(), strict=True)
    for own, copied in pairs:
        if own.requires_grad:
            copied.copy_(whole(own))
