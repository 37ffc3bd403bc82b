"""The loss of the `process` stage against that of TRL's PRM trainer, value and gradient.

The installed TRL (1.16) has no such trainer any more. Where it had one it trained a token
classifier with two labels by the loss that transformers gives that class, so this is compared.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers.loss.loss_utils import ForTokenClassification

from groupwise.algorithms.process import step_loss
from groupwise.stages.process import StepLoss
from groupwise.stages.step_rows import StepExample

IGNORED = -100
ROWS = (  # length, places of the labelled steps' last tokens, labels
    (7, (2, 6), (1.0, 0.0)),
    (5, (4,), (1.0,)),
    (6, (1, 3, 5), (0.0, 1.0, 1.0)),
)


def random_logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(len(ROWS), 7, 2, generator=generator, dtype=torch.float64)
    return (4 * drawn).requires_grad_(True)


def theirs(logits: torch.Tensor) -> torch.Tensor:
    """Labels as 0 or 1 at the places, the rest ignored; the mean over the batch's labels."""
    labels = torch.full(logits.shape[:2], IGNORED)
    for row, (_, places, own) in enumerate(ROWS):
        labels[row, list(places)] = torch.tensor(own).long()
    return ForTokenClassification(logits, labels, types.SimpleNamespace(num_labels=2))


def ours(logits: torch.Tensor, rows: Any = ROWS) -> torch.Tensor:
    policy: Any = types.SimpleNamespace(
        model=lambda **_: types.SimpleNamespace(logits=logits),
        template=types.SimpleNamespace(pad_id=0),
        device=torch.device("cpu"),
        compute=contextlib.nullcontext,
    )
    examples = [StepExample((1,), (1,) * length, at, labels) for length, at, labels in rows]
    objective = StepLoss()
    loss, _ = objective.sum_loss(policy, examples)
    return loss / sum(map(objective.count, examples))


def test_value_and_gradient_are_those_of_a_token_classifier() -> None:
    logits = random_logits()
    one, other = ours(logits), theirs(logits)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (one, other)]
    assert one.item() == pytest.approx(other.item(), abs=1e-6)
    assert one.item() > 0.1
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert (gradients[0].abs().sum(-1) > 0).sum() == 6  # at the labelled places alone


def test_in_double_precision_it_is_cross_entropy_of_hard_and_soft_labels() -> None:
    logits = random_logits().flatten(0, 1)
    odds = logits[:, 1] - logits[:, 0]
    labels = torch.linspace(0, 1, len(odds), dtype=torch.float64)
    for own in (labels.round(), labels):
        wanted = cross_entropy(logits, torch.stack([1 - own, own], -1), reduction="none")
        torch.testing.assert_close(step_loss(odds, own), wanted, rtol=0, atol=1e-6)


def test_a_soft_label_is_learned_as_it_is() -> None:
    """A token classifier's label is a whole number, so 0.75 would count as 0 there."""
    logits = random_logits()
    value = ours(logits, [(7, (2,), (0.75,))]).item()
    wrong, right = (-logits[0, 2].log_softmax(-1)).tolist()
    assert value == pytest.approx(0.25 * wrong + 0.75 * right, abs=1e-6)
