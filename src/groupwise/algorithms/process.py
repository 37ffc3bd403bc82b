"""The loss of reward models of steps (and of outcomes, one step a completion), and their labels.

With z the log-odds that a step is right and y its label: loss = log(1 + e^z) - y z, binary
cross-entropy; d loss / d z = sigmoid(z) - y. Lightman et al. 2023, arXiv 2305.20050 (labels of
people); Math-Shepherd, arXiv 2312.08935 (labels from completions, equations 2 to 4); an outcome
label as in Cobbe et al. 2021, arXiv 2110.14168, at the last token alone.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus


def step_loss(log_odds: Float[Tensor, " N"], labels: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Binary cross-entropy of each step, in nats; labels from 0 to 1.

    >>> import torch
    >>> step_loss(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.5]))
    tensor([0.6931, 1.1269])
    """
    return softplus(log_odds) - labels * log_odds


def completion_label(right: int, completions: int, *, hard: bool = False) -> float:
    """What `right` of a prefix's completions say of its last step: their share, or 1 if any is.

    It is the value of the prefix for the policy that completes it, not whether the step is correct.

    >>> completion_label(2, 8), completion_label(1, 8, hard=True), completion_label(0, 8, hard=True)
    (0.25, 1.0, 0.0)
    """
    return float(right > 0) if hard else right / completions
