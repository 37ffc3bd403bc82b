"""Training under truncation: the distribution over what sampling kept, scored exactly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupwise.policies import Policy, sequence_logprobs
from groupwise.policies.chunked import Supports, token_logprobs
from groupwise.policies.heads import Head, LogitRule, head_of
from helpers import make_policy
from model_families import VOCABULARY, family_policy
from plain_pass import assert_same_gradients, gradients

PROMPTS = [[5, 2, 9], [5, 2, 9], [7]]
COMPLETIONS = [[3, 2, 17], [19, 4], [30]]
# Some kept all (None, and nothing given), one kept the token alone.
SUPPORTS: list[list[list[int] | None]] = [
    [[1, 3, 8, 20], None, [17]],
    [[4, 19, 21], []],
    [[2, 3, 30, 39]],
]


def plain(policy: Policy, row: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability = logit - logsumexp over the kept ids; the entropy of the same."""
    prompt, completion = PROMPTS[row], COMPLETIONS[row]
    ids = torch.tensor([[*prompt, *completion]])
    logits = policy.model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature
    chosen, entropies = [], []
    for place, token in enumerate(completion):
        kept = SUPPORTS[row][place] or list(range(VOCABULARY))
        log_p = logits[place, kept] - logits[place, kept].logsumexp(0)
        chosen.append(log_p[kept.index(token)])
        entropies.append(-(log_p.exp() * log_p).sum())
    return torch.stack(chosen), torch.stack(entropies)


@pytest.mark.parametrize("chunk_tokens", [1, 4, None])
@pytest.mark.parametrize("family", ["exact", "gemma2", "granite", "cohere"])
def test_truncated_rows_equal_the_plain_reference(family: str, chunk_tokens: int | None) -> None:
    policy = make_policy(dtype=torch.float64) if family == "exact" else family_policy(family)
    value, gradient = (1e-12, 1e-11) if family == "exact" else (2e-5, 1e-4)
    output = sequence_logprobs(
        policy,
        PROMPTS,
        COMPLETIONS,
        temperature=0.7,
        entropies=True,
        supports=SUPPORTS,
        chunk_tokens=chunk_tokens,
    )
    assert output.entropies is not None
    theirs = torch.zeros(())
    for row, completion in enumerate(COMPLETIONS):
        chosen, entropy = plain(policy, row, 0.7)
        length = len(completion)
        torch.testing.assert_close(output.logprobs[row, :length], chosen, atol=value, rtol=0)
        torch.testing.assert_close(output.entropies[row, :length], entropy, atol=value, rtol=0)
        theirs = theirs + (2.0 * chosen + 0.3 * entropy * (row + 1)).sum()
    rows = torch.arange(1.0, 4.0)[:, None]
    ours = (2.0 * output.logprobs + 0.3 * output.entropies * rows).sum()
    assert_same_gradients(gradients(policy, ours), gradients(policy, theirs), gradient)
    assert output.logprobs[0, 2].item() == 0.0  # the only id that was kept


def test_the_worked_example() -> None:
    """Fault 5: probabilities .5, .3, .15, .05; top-p .75 keeps two: ln .625, not ln .5."""
    head = Head(nn.Identity(), nn.Linear(4, 4, bias=False), LogitRule())
    head.linear.weight.data = torch.eye(4)
    hidden = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = Supports.of([[0, 1]], torch.device("cpu"))
    target = torch.tensor([[0]])
    assert token_logprobs(hidden, head, target, supports=kept)[0].item() == pytest.approx(
        -0.4700, abs=1e-4
    )
    assert token_logprobs(hidden, head, target)[0].item() == pytest.approx(-0.6931, abs=1e-4)


def test_an_id_that_was_not_kept_has_no_probability_and_no_gradient() -> None:
    policy = family_policy("llama")
    top_ids = torch.tensor([[[1, 2]]])
    output = sequence_logprobs(policy, [[5]], [[3]], top_ids=top_ids, supports=[[[1, 3]]])
    assert output.top_logprobs is not None
    kept, left_out = output.top_logprobs[0, 0]
    assert left_out.exp().item() == 0.0
    total = kept.exp() + output.logprobs[0, 0].exp()
    assert total.item() == pytest.approx(1.0, abs=1e-6)
    found = gradients(policy, left_out + kept)
    again = sequence_logprobs(policy, [[5]], [[3]], top_ids=top_ids, supports=[[[1, 3]]])
    assert again.top_logprobs is not None
    expected = gradients(policy, again.top_logprobs[0, 0, 0])
    assert_same_gradients(found, expected, 1e-6)


def test_a_head_that_is_not_a_plain_linear_layer() -> None:
    class Wrapped(nn.Linear):
        pass

    policy = family_policy("qwen2")
    expected = sequence_logprobs(policy, PROMPTS, COMPLETIONS, supports=SUPPORTS).logprobs
    wanted = gradients(policy, expected.sum())
    own = head_of(policy.model).linear
    wrapped = Wrapped(32, VOCABULARY, bias=False)
    wrapped.weight = own.weight  # type: ignore[assignment]
    policy.model.lm_head = wrapped
    found = sequence_logprobs(policy, PROMPTS, COMPLETIONS, supports=SUPPORTS, chunk_tokens=4)
    torch.testing.assert_close(found.logprobs, expected, atol=1e-6, rtol=0)
    assert_same_gradients(gradients(policy, found.logprobs.sum()), wanted, 1e-5)


def test_a_token_outside_its_support_is_named() -> None:
    policy = family_policy("llama")
    with pytest.raises(ValueError, match=r"row 0: completion token 1 \(id 4\) is not in its own"):
        sequence_logprobs(policy, [[5]], [[3, 4]], supports=[[None, [3, 5]]])
    with pytest.raises(ValueError, match="row 0: 2 completion tokens and 1 supports"):
        sequence_logprobs(policy, [[5]], [[3, 4]], supports=[[None]])
