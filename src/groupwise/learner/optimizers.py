"""An optimiser over what trains, and one update of it: clip, check, step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.nn.utils import clip_grad_norm_

from groupwise.distributed.sharding import whole
from groupwise.errors import NonFiniteError
from groupwise.instants import passed
from groupwise.learner.settings import OptimizerSettings


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter],
    settings: OptimizerSettings,
    learning_rate: float | None = None,
) -> torch.optim.Optimizer:
    """The optimiser over the parameters that require a gradient; the settings' rate by default."""
    rate = settings.learning_rate if learning_rate is None else learning_rate
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=rate, weight_decay=settings.weight_decay)
    return torch.optim.AdamW(
        trained,
        lr=rate,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def clipped_norm(
    named: Iterable[tuple[str, torch.nn.Parameter]], limit: float | None, where: str
) -> float:
    """The gradient's L2 norm before it is clipped to `limit` (None = not clipped), in place.

    Raises NonFiniteError naming `where` and the parameter, where one has an entry that is not
    finite (the sum of their squares can overflow all the same).
    """
    graded = [(name, p, p.grad) for name, p in named if p.grad is not None]
    norm = float(whole(clip_grad_norm_([p for _, p, _ in graded], limit or math.inf)))
    if not math.isfinite(norm):
        bad = [name for name, _, grad in graded if not bool(torch.isfinite(whole(grad)).all())]
        what = f"the gradient of {bad[0]!r} is" if bad else "the sum of the gradient's squares is"
        raise NonFiniteError(
            f"{where}: {what} not finite; nothing was updated and the last checkpoint is intact"
        )
    return norm


def step_optimizer(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """One step at a learning rate; the gradients are gone afterwards."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    passed("optimiser")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
