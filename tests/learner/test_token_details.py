"""What is recorded of each token: loss weights are minus the loss's derivative by a log-prob."""

from __future__ import annotations

import torch
from test_learner import batch_of, make_learner

from groupwise.algorithms import preset
from groupwise.learner import TokenDetails
from helpers import make_groups


def test_loss_weights_are_weight_times_advantage_on_policy() -> None:
    """GRPO at ratio 1: a row's token has advantage / (rows x its length); other slots NaN or 0."""
    learner = make_learner(preset("grpo", kl_coef=0.0), micro_batch_tokens=24)
    groups = make_groups()
    batch, passes = batch_of(learner, groups)
    details = TokenDetails(batch.rows)
    learner.learn(batch, passes, step=0, details=details)
    mask = batch.mask
    lengths = mask.sum(dim=1, keepdim=True)
    expected = batch.advantages.unsqueeze(1) / (lengths * int(mask.any(dim=1).sum()))
    assert int(mask.sum()) > 20
    assert torch.allclose(details.loss_weights[mask], expected.float().expand_as(mask)[mask])
    assert not details.loss_weights[~mask].nan_to_num().any()
    assert torch.isfinite(details.logprobs[mask]).all()
    assert (details.entropies[mask] > 0).all()


def test_updates_add_up_and_one_that_is_given_up_counts_for_nothing() -> None:
    groups = make_groups()
    twice = make_learner(preset("dr_grpo", kl_coef=0.0), passes=2, learning_rate=1e-9)
    batch, passes = batch_of(twice, groups)
    details = TokenDetails(batch.rows)
    twice.learn(batch, passes, step=0, details=details)
    once = make_learner(preset("dr_grpo", kl_coef=0.0), learning_rate=1e-9)
    batch, passes = batch_of(once, groups)
    first = TokenDetails(batch.rows)
    once.learn(batch, passes, step=0, details=first)
    mask = batch.mask
    assert torch.allclose(details.loss_weights[mask], 2 * first.loss_weights[mask], rtol=1e-4)

    stopped = make_learner(preset("dr_grpo"), passes=2, learning_rate=1.0, kl_stop=1e-9)
    batch, passes = batch_of(stopped, groups)
    details = TokenDetails(batch.rows)
    metrics = stopped.learn(batch, passes, step=0, details=details)
    assert metrics["updates/skipped"] == 1
    assert torch.allclose(details.loss_weights[mask], first.loss_weights[mask], rtol=1e-4)
