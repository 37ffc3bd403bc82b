"""The critic: what a value may see, where it starts, what it shares."""

from __future__ import annotations

import pytest
import torch

from groupwise.policies import make_critic, sequence_logprobs, sequence_values
from helpers import VOCABULARY, make_policy

PROMPTS = [(3, 4, 5), (6,), (7, 8)]
COMPLETIONS = [(9, 10), (11, 12, 13, 14), ()]


def speaking(critic: torch.nn.Module) -> torch.nn.Module:
    torch.nn.init.normal_(critic.head.linear.weight)
    return critic


def test_it_starts_at_zero_with_the_policy_s_decoder() -> None:
    policy = make_policy()
    critic = make_critic(policy)
    values = sequence_values(critic, policy, PROMPTS, COMPLETIONS)
    assert values.shape == (3, 4)
    assert not values.any()
    own = sum(p.numel() for p in critic.parameters())
    decoder = policy.num_parameters - VOCABULARY * 32  # without the output layer
    assert own == decoder + 32 + 1
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.zero_()
    torch.manual_seed(0)
    assert sequence_values(speaking(critic), policy, PROMPTS, COMPLETIONS).any()


@pytest.mark.parametrize("shared", [False, True])
def test_a_value_sees_what_is_before_its_token(shared: bool) -> None:
    """V_t from the hidden state of token t - 1, row by row, padding and the token itself unseen."""
    policy = make_policy(dtype=torch.float64)
    critic = speaking(make_critic(policy, shared=shared))

    def values(completions: list[tuple[int, ...]]) -> torch.Tensor:
        if not shared:
            return sequence_values(critic, policy, PROMPTS, completions)
        output = sequence_logprobs(policy, PROMPTS, completions, value_head=critic.head)
        assert output.values is not None
        return output.values

    with torch.no_grad():
        table, changed = values(COMPLETIONS), values([(9, 20), (11, 12, 13, 20), ()])
    assert torch.equal(changed, table)  # only last tokens differ
    decoder = policy.model.model
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        ids = torch.tensor([[*prompt, *completion]])
        hidden = decoder(input_ids=ids).last_hidden_state[0]
        for t in range(len(completion)):
            expected = float(critic.head(hidden[len(prompt) - 1 + t].unsqueeze(0)).detach())
            assert float(table[row, t]) == pytest.approx(expected, abs=1e-9)
        assert not table[row, len(completion) :].any()


def test_a_shared_head_moves_the_trunk_and_a_separate_one_does_not() -> None:
    policy = make_policy()
    for shared in (True, False):
        critic = speaking(make_critic(policy, shared=shared))
        assert critic.shared is shared
        policy.model.zero_grad()
        if shared:
            output = sequence_logprobs(policy, PROMPTS, COMPLETIONS, value_head=critic.head)
            assert output.values is not None
            output.values.sum().backward()
        else:
            sequence_values(critic, policy, PROMPTS, COMPLETIONS).sum().backward()
        trunk = [p.grad for p in policy.model.model.parameters()]
        assert all((grad is not None) is shared for grad in trunk)
    with pytest.raises(ValueError, match="a shared critic has no decoder"):
        sequence_values(make_critic(policy, shared=True), policy, PROMPTS, COMPLETIONS)
