"""PPO's critic beside the policy: values before the update, its own loss, its own state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from groupwise.algorithms import Algorithm, preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.errors import GroupwiseError
from groupwise.learner import CriticLearner, Learner, TrainingSettings
from groupwise.policies import make_critic, sequence_values
from groupwise.types import Batch, Completion, Group, Prompt, Rollout, Score, Turn
from helpers import make_groups, make_policy

PPO = preset("ppo", kl="none")


def make_learner(algorithm: Algorithm = PPO, *, shared: bool = False, **settings: Any) -> Learner:
    values = {"learning_rate": 1e-3, "critic_learning_rate": 1e-2, **settings}
    training = TrainingSettings(**values)
    policy = make_policy()
    critic = CriticLearner(make_critic(policy, shared=shared), policy, algorithm, training)
    return Learner(
        policy,
        algorithm,
        training,
        temperature=1.0,
        divide=split_rows,
        critic=critic,
    )


def batch_of(learner: Learner, groups: list[Group]) -> tuple[Batch, list[list[torch.Tensor]]]:
    rows = align(groups)
    passes = [split_groups(rows.group_ids, 1, seed=0, step=0, pass_index=0)]
    evidence = learner.evidence(rows, passes[0])
    batch = make_batch(
        groups,
        rows,
        learner.algorithm,
        max_tokens=8,
        old_logprobs=evidence.old_logprobs,
        values=evidence.values,
    )
    return batch, passes


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_advantages_and_returns_of_the_written_example() -> None:
    """algorithms.md 3.19: r = [-.02, .01, -.03, .95], lambda .95, before whitening."""
    prompt = Prompt("p", text="p")
    completion = Completion((3, 4, 5, 6), "x", (-1.0,) * 4, "stop")
    rollout = Rollout(prompt, (Turn((3,), completion),), Score(1.0, "correct"), 0, 0, 0)
    groups = [Group(prompt, (rollout,))]
    old = torch.tensor([[-1.0, -1.0, -1.0, -1.0]])
    penalty = torch.tensor([[0.02, -0.01, 0.03, 0.05]])
    values = torch.tensor([[0.4, 0.45, 0.6, 0.7]])
    batch = make_batch(
        groups,
        align(groups),
        preset("ppo", scale="none", kl_coef=1.0),
        max_tokens=8,
        old_logprobs=old,
        ref_logprobs=old - penalty,
        values=values,
    )
    expected = [0.45951875, 0.452125, 0.3075, 0.25]
    assert batch.advantages[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert batch.returns is not None
    assert batch.returns[0].tolist() == pytest.approx(
        [a + v for a, v in zip(expected, values[0].tolist(), strict=True)], abs=1e-6
    )


@pytest.mark.parametrize("shared", [False, True])
def test_the_critic_learns_the_returns(shared: bool) -> None:
    learner = make_learner(shared=shared, learning_rate=1e-3 if shared else 1e-12)
    groups = make_groups()
    errors, explained = [], []
    for step in range(30):
        batch, passes = batch_of(learner, groups)
        metrics = learner.learn(batch, passes, step=step)
        errors.append(metrics["value/error"])
        explained.append(metrics["value/explained"])
    assert explained[0] == pytest.approx(0.0, abs=1e-6)  # the head starts at 0
    assert errors[-1] < 0.5 * errors[0]
    assert explained[-1] > 0.4
    assert learner.update == 30


def test_a_separate_critic_leaves_the_policy_s_gradient_alone() -> None:
    """One SGD step moves the policy as one without a value loss would; a shared one does not."""
    groups = make_groups()
    settings = {"optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": None}
    ends = {}
    for kind, algorithm, shared in (
        ("bare", preset("ppo", kl="none", extras=[{"kind": "value_loss", "coef": 0.0}]), False),
        ("separate", PPO, False),
        ("shared", PPO, True),
    ):
        learner = make_learner(algorithm, shared=shared, **settings)
        assert learner.critic is not None
        torch.nn.init.constant_(learner.critic.critic.head.linear.weight, 0.1)
        batch, passes = batch_of(learner, groups)
        learner.learn(batch, passes, step=0)
        ends[kind] = weights(learner.policy.model)
    assert torch.equal(ends["separate"], ends["bare"])
    assert float((ends["shared"] - ends["separate"]).norm()) > 1e-4


def test_the_critic_has_its_own_rate_and_the_policy_s_schedule() -> None:
    learner = make_learner(critic_learning_rate=0.5, warmup_updates=2)
    batch, passes = batch_of(learner, make_groups())
    assert learner.critic is not None
    rates = []
    for step in range(3):
        learner.learn(batch, passes, step=step)
        groups = (learner.optimizer.param_groups, learner.critic.optimizer.param_groups)
        rates.append(tuple(group[0]["lr"] for group in groups))
    assert rates == [(5e-4, 0.25), (1e-3, 0.5), (1e-3, 0.5)]
    assert TrainingSettings(learning_rate=1e-6).critic_peak == pytest.approx(1e-5)


def test_values_do_not_move_within_a_step() -> None:
    """Old values and returns are those of the step's start, whatever the passes do."""
    learner = make_learner(passes=3)
    batch, passes = batch_of(learner, make_groups())
    assert batch.values is not None
    assert batch.returns is not None
    frozen = batch.values.clone(), batch.returns.clone()
    learner.learn(batch, passes * 3, step=0)
    assert torch.equal(batch.values, frozen[0])
    assert torch.equal(batch.returns, frozen[1])
    assert learner.critic is not None
    live = sequence_values(
        learner.critic.critic, learner.policy, batch.rows.prompt_ids, batch.rows.completion_ids
    )
    assert float((live.detach() - batch.values).abs().max()) > 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_state_goes_on_bit_for_bit(shared: bool) -> None:
    groups = make_groups()
    whole, first, second = (make_learner(shared=shared) for _ in range(3))
    for learner, steps in ((whole, 4), (first, 2)):
        for step in range(steps):
            learner.learn(*batch_of(learner, groups), step=step)
    assert first.critic is not None
    assert second.critic is not None
    assert whole.critic is not None
    second.policy.model.load_state_dict(first.policy.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    tensors = {name: tensor.clone() for name, tensor in first.critic.tensors().items()}
    second.critic.load_tensors(tensors)
    for step in range(2, 4):
        second.learn(*batch_of(second, groups), step=step)
    assert torch.equal(weights(second.critic.critic), weights(whole.critic.critic))
    assert torch.equal(weights(second.policy.model), weights(whole.policy.model))
    with pytest.raises(GroupwiseError, match="does not fit the critic"):
        second.critic.load_tensors({"weights.nothing": torch.zeros(1)})


def test_a_value_that_is_not_finite_stops_before_the_update() -> None:
    learner = make_learner()
    batch, passes = batch_of(learner, make_groups())
    assert learner.critic is not None
    learner.critic.critic.head.linear.bias.data.fill_(math.nan)
    before = weights(learner.policy.model)
    with pytest.raises(GroupwiseError, match=r"step 3, update 0: the critic's loss"):
        learner.learn(batch, passes, step=3)
    assert torch.equal(weights(learner.policy.model), before)
