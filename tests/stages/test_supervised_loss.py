"""The supervised loss against its formula: values, gradients, and what must not change them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.policies import Policy, logprobs
from groupwise.stages.chats import TokenExample
from groupwise.stages.objective import micro_batches
from groupwise.stages.supervised import TokenLoss, mask_of, token_nll
from helpers import VOCABULARY, make_policy

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "algorithms.json").read_text())


def make_examples(count: int = 9, seed: int = 0) -> list[TokenExample]:
    """Ragged rows, two of them with the same prompt, context between trained tokens in some."""
    generator = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(3, VOCABULARY, (length,), generator=generator).tolist())

    examples = []
    for number in range(count):
        completion = ids(1, 12)
        mask = [number % 3 != 0 or place % 4 != 1 for place in range(len(completion))]
        prompt = examples[-1].prompt_ids if number == 4 else ids(1, 8)
        examples.append(TokenExample(prompt, completion, tuple(mask)))
    return examples


def reference(policy: Policy, examples: Sequence[TokenExample]) -> Tensor:
    """- sum over trained tokens of log p / their number, a row at a time."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for each in examples:
        row = torch.tensor([[*each.prompt_ids, *each.completion_ids]])
        table = policy.model(input_ids=row).logits[0].log_softmax(-1)
        for place, (token, trains) in enumerate(zip(each.completion_ids, each.mask, strict=True)):
            if trains:
                total = total - table[len(each.prompt_ids) + place - 1, token]
                count += 1
    return total / count


def gradients(policy: Policy) -> dict[str, Tensor]:
    found = {
        name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None
    }
    policy.model.zero_grad()
    return found


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("budget", [1, 25, 10_000])
def test_value_and_gradient_are_the_formulas_however_rows_are_divided(
    monkeypatch: pytest.MonkeyPatch, budget: int, padded: bool
) -> None:
    policy, examples, objective = make_policy(dtype=torch.float64), make_examples(), TokenLoss()
    expected = reference(policy, examples)
    expected.backward()
    wanted = gradients(policy)
    if padded:
        monkeypatch.setattr(logprobs, "packable", lambda _decoder: False)
    sizes = [objective.size(each) for each in examples]
    parts = micro_batches(sizes, budget, padded=padded)
    assert sorted(index for part in parts for index in part) == list(range(len(examples)))
    total = sum(objective.count(each) for each in examples)
    value = 0.0
    for part in parts:
        loss = objective.sum_loss(policy, [examples[index] for index in part])[0] / total
        loss.backward()
        value += float(loss.detach())
    assert value == pytest.approx(float(expected.detach()), abs=1e-12)
    for name, gradient in gradients(policy).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-12)


def test_micro_batches_hold_the_budget() -> None:
    sizes = [5, 1, 9, 3, 3, 7, 2]
    for padded in (False, True):
        for part in micro_batches(sizes, 10, padded=padded):
            longest = max(sizes[index] for index in part)
            cost = longest * len(part) if padded else sum(sizes[index] for index in part)
            assert cost <= 10


def test_the_golden_value_and_gradient() -> None:
    golden = GOLDEN["losses"]["SFT / distillation NLL token-mean"]
    fixture = GOLDEN["fixture"]
    values = torch.tensor(fixture["new_logp"], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(fixture["mask"]).bool()
    examples = [
        TokenExample((1,), (5,) * int(length), (True,) * int(length))
        for length in fixture["lengths"]
    ]
    assert torch.equal(mask_of(examples, values), mask)
    loss = token_nll(values, mask) / sum(TokenLoss().count(each) for each in examples)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(golden["loss"], abs=1e-12)
    assert float(loss.detach()) == pytest.approx(0.858260870, abs=1e-9)
    torch.testing.assert_close(values.grad, torch.tensor(golden["grad"], dtype=torch.float64))


def test_a_trained_token_is_pushed_up_and_context_is_not() -> None:
    values = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    token_nll(values, torch.tensor([[True, False, True]])).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[-1.0, 0.0, -1.0]]


def test_a_masked_infinity_leaves_no_trace() -> None:
    values = torch.tensor([[-1.0, -float("inf")]], requires_grad=True)
    loss: Any = token_nll(values, torch.tensor([[True, False]]))
    loss.backward()
    assert float(loss.detach()) == 1.0
    assert values.grad is not None
    assert values.grad.tolist() == [[-1.0, 0.0]]


def test_the_digest_tells_ids_and_masks_apart() -> None:
    one = TokenExample((1, 2), (3, 4), (True, True))
    others = [
        TokenExample((1,), (2, 3, 4), (True, True, True)),
        TokenExample((1, 2), (3, 4), (True, False)),
        TokenExample((1, 2), (4, 3), (True, True)),
    ]
    assert len({TokenLoss().digest(each) for each in [one, *others]}) == 4
    assert TokenLoss().digest(one) == TokenLoss().digest(TokenExample((1, 2), (3, 4), (True, True)))
