"""The state of a model and its optimiser for a checkpoint, and back: of plain and sharded ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from groupwise.checkpoints.files import Checkpoint
from groupwise.distributed.ranks import of_an_exchange
from groupwise.distributed.shards import load_shards, shard_names
from groupwise.errors import GroupwiseError
from groupwise.tensor_files import pack, tensor_names, unpack

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


def training_state(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], Any]:
    """A model's and its optimiser's state, by parameter name, without copying.

    Frozen parameters are left out. Works for plain and wrapped modules (torch's state-dict
    helpers). The optimiser's parameters must be the model's. An optimiser that has not stepped
    gives an empty `state`.
    """
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model_state = _model_state(model)
    if optimizer.state:
        return model_state, get_optimizer_state_dict(model, optimizer)
    # The helper would make the missing moments with a step, and leave a step count of 1.
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    return model_state, {"state": {}, "param_groups": groups}


def _model_state(model: nn.Module) -> dict[str, Tensor]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(ignore_frozen_params=True)
    state = cast("dict[str, Tensor]", get_model_state_dict(model, options=options))
    # The helper leaves out a frozen tensor under one of its names; a tied one has two.
    named = model.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in named if not parameter.requires_grad}
    return {name: tensor for name, tensor in state.items() if name not in frozen}


def restore_training_state(model: nn.Module, optimizer: Optimizer, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights and optimiser state into a model and its optimiser, bit for bit.

    Raises GroupwiseError where names or shapes do not fit the model.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    optimizer.zero_grad(set_to_none=True)
    state = checkpoint.optimizer_state
    if checkpoint.sharded:
        found: dict[str, Tensor] = {}
        pack(get_optimizer_state_dict(model, optimizer), "", found)
        tensors = {name: found[name] for name in tensor_names(state)}
        load_shards(checkpoint.path, {f"optimizer.{name}": t for name, t in tensors.items()})
        state = unpack(state, tensors)
    whole = not checkpoint.sharded and _is_sharded(model)
    with _fitting(checkpoint):
        options = StateDictOptions(full_state_dict=whole)
        set_optimizer_state_dict(model, optimizer, state, options=options)
    # Weights last: the helper may step a fresh optimiser, at a learning rate of 0.
    restore_model(model, checkpoint)


def restore_model(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into a model, bit for bit; frozen parameters stay as they are.

    Raises GroupwiseError where names or shapes do not fit the model.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    own = _model_state(model)
    names = set(checkpoint.model_state)
    if checkpoint.sharded:
        stored = [name.partition(".") for name in shard_names(checkpoint.path)]
        names = {name for kind, _, name in stored if kind == "model"}
    differing = own.keys() ^ names
    if differing:
        raise GroupwiseError(
            f"{checkpoint.path} does not fit this model: {len(differing)} names are in one of the "
            f"two alone, the first is {min(differing)}"
        )
    if checkpoint.sharded:
        load_shards(checkpoint.path, {f"model.{name}": tensor for name, tensor in own.items()})
        return
    state = cast(dict[str, Any], dict(checkpoint.model_state))
    options = StateDictOptions(strict=False, full_state_dict=_is_sharded(model))
    with _fitting(checkpoint):
        set_model_state_dict(model, state, options=options)


def _is_sharded(model: nn.Module) -> bool:
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


@contextmanager
def _fitting(checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        if of_an_exchange(error):
            raise
        raise GroupwiseError(f"{checkpoint.path} does not fit this model: {error}") from error
