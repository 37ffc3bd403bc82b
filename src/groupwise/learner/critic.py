"""The comparator's critic while it learns: values before the update, its loss beside the policy's.

A critic has its own optimiser; where it shares the policy's trunk that optimiser
holds the head alone, and the trunk moves with the policy's.
Shapes: B rows of the step, b rows of a micro-batch, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm, LossTerms, UpdatePlan
from groupwise.errors import GroupwiseError
from groupwise.learner.optimizers import clipped_norm, make_optimizer, step_optimizer
from groupwise.learner.settings import TrainingSettings, learning_rate_at
from groupwise.policies import Critic, LogprobOutput, Policy, sequence_values
from groupwise.types import Batch, Rows


class CriticLearner:
    """A critic with its optimiser."""

    def __init__(
        self, critic: Critic, policy: Policy, algorithm: Algorithm, settings: TrainingSettings
    ) -> None:
        self.critic = critic
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.optimizer = make_optimizer(critic.parameters(), settings, settings.critic_peak)

    def values(self, rows: Rows, index: Tensor, output: LogprobOutput | None = None) -> Tensor:
        """[b, T] of some rows: from the policy's own pass through a shared trunk, else from one of
        the critic's own."""
        if self.critic.shared:
            if output is None or output.values is None:
                raise ValueError("a shared critic's values come with the policy's pass")
            return output.values
        chosen = index.tolist()
        return sequence_values(
            self.critic,
            self.policy,
            [rows.prompt_ids[row] for row in chosen],
            [rows.completion_ids[row] for row in chosen],
        )

    def backward(
        self,
        policy_loss: Tensor,
        output: LogprobOutput,
        batch: Batch,
        part: Tensor,
        plan: UpdatePlan,
        mask: Tensor,
    ) -> LossTerms:
        """Backward through the policy's loss and the critic's; returns the critic's terms.

        With its own decoder the critic runs after the policy's graph is gone, so that the two never
        hold activations at once. `plan` and `mask` [b, T] are those of the micro-batch.
        """
        if not self.critic.shared:
            _backward(policy_loss)
        terms = self._terms(self.values(batch.rows, part, output), batch, part, plan, mask)
        _backward(policy_loss + terms.loss if self.critic.shared else terms.loss)
        return terms

    def _terms(
        self, values: Tensor, batch: Batch, part: Tensor, plan: UpdatePlan, mask: Tensor
    ) -> LossTerms:
        if batch.values is None or batch.returns is None:
            raise ValueError(
                "the batch has no values and returns: make it with the critic's values"
            )
        width = values.shape[1]
        return self.algorithm.value_terms(
            values,
            plan=plan,
            mask=mask,
            old_values=batch.values[part, :width].to(values.device),
            returns=batch.returns[part, :width].to(values.device),
        )

    def clipped_norm(self, where: str) -> float:
        """The critic's gradient norm before clipping (its head's, where it shares the trunk)."""
        named = ((f"critic.{name}", p) for name, p in self.critic.named_parameters())
        return clipped_norm(named, self.settings.max_grad_norm, where)

    def step(self, update: int) -> None:
        """One optimiser step; the learning rate counts the policy's updates."""
        rate = learning_rate_at(update, self.settings, self.settings.critic_peak)
        step_optimizer(self.optimizer, rate)

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the optimiser's moments by name: what a checkpoint holds of the critic."""
        found = {f"weights.{name}": tensor for name, tensor in self.critic.state_dict().items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            found.update({f"optimizer.{number}.{key}": value for key, value in moments.items()})
        return found

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave, bit for bit. GroupwiseError where it does not fit."""
        weights: dict[str, Tensor] = {}
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "weights":
                weights[rest] = tensor
            else:
                number, _, key = rest.partition(".")
                moments.setdefault(int(number), {})[key] = tensor
        try:
            self.critic.load_state_dict(weights)
        except RuntimeError as error:
            raise GroupwiseError(f"the checkpoint does not fit the critic: {error}") from error
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _backward(loss: Tensor) -> None:
    if loss.requires_grad:
        torch.autograd.backward(loss)


def value_metrics(batch: Batch) -> dict[str, float]:
    """What the critic said before the step, over the tokens that train; empty without a critic.

    `value/explained` is 1 - var(R - V) / var(R): 1 = it foresees the returns, 0 = no better than
    their mean, NaN where the returns do not vary.
    """
    if batch.values is None or batch.returns is None or not bool(batch.mask.any()):
        return {}
    values, returns = batch.values[batch.mask].double(), batch.returns[batch.mask].double()
    spread = float(returns.var(correction=0))
    left = float((returns - values).var(correction=0))
    return {
        "value/mean": float(values.mean()),
        "value/return": float(returns.mean()),
        "value/explained": 1.0 - left / spread if spread > 0.0 else math.nan,
    }
