"""Log-probabilities against the plain full forward pass: value, gradient, layout, memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from groupwise.errors import RecipeError
from groupwise.policies import score, sequence_logprobs
from groupwise.policies.chunked import token_logprobs
from groupwise.policies.heads import Head, LogitRule, head_of
from groupwise.policies.load import checkpoint_activations
from groupwise.policies.logprobs import as_ids
from model_families import FAMILIES, VOCABULARY, cases, family_policy, family_template
from plain_pass import assert_same_gradients, gradients, plain

PROMPTS: list[list[int]] = [[5, 2, 9], [4], [7, 8, 2, 2, 11, 13, 6]]
COMPLETIONS: list[list[int]] = [[3, 2, 2, 17], [19], [30, 31, 32, 33, 34, 35, 2]]


@pytest.mark.parametrize("family", cases())
def test_value_and_gradient_of_every_family(family: str) -> None:
    policy = family_policy(family)
    factors = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    output = sequence_logprobs(
        policy, PROMPTS, COMPLETIONS, temperature=0.7, entropies=True, chunk_tokens=5
    )
    assert output.entropies is not None
    ours = (output.logprobs * factors + 0.3 * factors * output.entropies).sum()
    theirs = torch.zeros(())
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS)):
        chosen, entropy = plain(policy, prompt, completion, temperature=0.7)
        length = len(completion)
        # 1e-5 and not 1e-6: the family's own attention rounds by the length of the batch.
        torch.testing.assert_close(output.logprobs[row, :length], chosen, atol=1e-5, rtol=0)
        torch.testing.assert_close(output.entropies[row, :length], entropy, atol=1e-5, rtol=0)
        assert not output.logprobs[row, length:].any()
        assert not output.entropies[row, length:].any()
        theirs = theirs + ((chosen + 0.3 * entropy) * factors[row, :length]).sum()
    assert_same_gradients(gradients(policy, ours), gradients(policy, theirs), 1e-4)


def test_the_rule_after_the_head_is_found() -> None:
    rules = {family: head_of(family_policy(family).model).rule for family in FAMILIES}
    assert rules["gemma2"] == LogitRule(1.0, 3.0)
    assert rules["granite"] == LogitRule(0.25, None)
    assert rules["cohere"] == LogitRule(0.25, None)
    assert rules["llama"] == rules["gpt2"] == LogitRule()


@pytest.mark.parametrize("chunk_tokens", [1, 3, 12, 100, None])
def test_chunks_change_nothing(chunk_tokens: int | None) -> None:
    policy = family_policy("llama", dtype=torch.float64)
    whole = sequence_logprobs(policy, PROMPTS, COMPLETIONS, chunk_tokens=1000)
    parts = sequence_logprobs(policy, PROMPTS, COMPLETIONS, chunk_tokens=chunk_tokens)
    assert parts.logprobs.dtype == torch.float64
    torch.testing.assert_close(parts.logprobs, whole.logprobs, atol=1e-13, rtol=0)
    assert_same_gradients(
        gradients(policy, parts.logprobs.square().sum()),
        gradients(policy, whole.logprobs.square().sum()),
        1e-12,
    )


def test_batched_rows_equal_rows_alone_with_their_gradients() -> None:
    """Fault 21: padding is not attended to, whatever ids stand in it."""
    policy = family_policy("llama", dtype=torch.float64)
    prompts, completions = [[5, 9], [7, 8, 2, 11, 13]], [[3, 2, 4, 17], [30, 31, 2, 33]]
    for pad in (0, 2, 39):
        policy.template.pad_id = pad
        together = sequence_logprobs(policy, prompts, completions).logprobs
        both = gradients(policy, together.sum())
        alone = [
            sequence_logprobs(policy, [p], [c]).logprobs[0] for p, c in zip(prompts, completions)
        ]
        torch.testing.assert_close(together, torch.stack(alone), atol=1e-12, rtol=0)
        assert_same_gradients(both, gradients(policy, torch.stack(alone).sum()), 1e-12)


def test_the_first_completion_token_is_predicted_by_the_last_prompt_token() -> None:
    """Fault 27: ids [a, b | c, d] give log p(c | a, b) from the logits at index 1."""
    policy = family_policy("llama")
    logits = policy.model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits[0].log_softmax(-1)
    expected = torch.stack([logits[1, 7], logits[2, 8]])
    output = sequence_logprobs(policy, [[5, 6]], [[7, 8]]).logprobs[0]
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    # A one-token completion, and rows that share nothing but the batch.
    mixed = sequence_logprobs(policy, [[5, 6], [9], [5, 6, 7]], [[7], [10, 11], [8]]).logprobs
    torch.testing.assert_close(mixed[0, 0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed[2, 0], expected[1], atol=1e-5, rtol=0)


def test_an_empty_completion_has_no_log_probabilities() -> None:
    policy = family_policy("llama")
    output = sequence_logprobs(policy, [[5], [6, 7]], [[], [8, 9]], entropies=True)
    assert output.logprobs.shape == (2, 2)
    assert not output.logprobs[0].any()
    torch.testing.assert_close(output.logprobs[1], plain(policy, [6, 7], [8, 9])[0])
    nothing = sequence_logprobs(policy, [[5], [6, 7]], [[], []])
    assert nothing.logprobs.shape == (2, 0)


def test_temperature_divides_the_logits() -> None:
    """Fault 4: logits [2, 1, 0] at T = 0.6, token 2: -3.53591, and -2.40761 at T = 1."""
    head = Head(nn.Identity(), nn.Linear(3, 3, bias=False), LogitRule())
    head.linear.weight.data = torch.eye(3)
    hidden, target = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[2]])
    assert token_logprobs(hidden, head, target, temperature=0.6)[0].item() == pytest.approx(
        -3.53591, abs=1e-5
    )
    assert token_logprobs(hidden, head, target)[0].item() == pytest.approx(-2.40761, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_of_zero_is_refused(temperature: float) -> None:
    policy = family_policy("llama")
    with pytest.raises(RecipeError, match=r"temperature = .*above 0"):
        sequence_logprobs(policy, [[5]], [[6]], temperature=temperature)


def test_rows_that_do_not_fit_are_refused() -> None:
    policy = family_policy("llama")
    with pytest.raises(RecipeError, match=r"row 1: 100 prompt and 29 completion .* for 128"):
        sequence_logprobs(policy, [[5], [5] * 100], [[6], [6] * 29])
    with pytest.raises(ValueError, match="row 0 has an empty prompt"):
        sequence_logprobs(policy, [[]], [[6]])
    with pytest.raises(ValueError, match="1 prompts and 2 completions"):
        sequence_logprobs(policy, [[5]], [[6], [7]])


def test_log_probabilities_of_other_ids_come_from_the_same_pass() -> None:
    policy = family_policy("gemma2")
    top_ids = torch.randint(VOCABULARY, (3, 9, 4), generator=torch.Generator().manual_seed(0))
    output = sequence_logprobs(policy, PROMPTS, COMPLETIONS, top_ids=top_ids)
    top = output.top_logprobs
    assert top is not None
    assert top.shape == (3, 7, 4)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS)):
        ids = torch.tensor([[*prompt, *completion]])
        logits = policy.model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        expected = logits.gather(1, top_ids[row, : len(completion)])
        torch.testing.assert_close(top[row, : len(completion)], expected, atol=1e-5, rtol=0)
    ours = gradients(policy, top[1, 0, :].sum())
    chosen = policy.model(input_ids=torch.tensor([[4, 19]])).logits[0, 0].log_softmax(-1)
    assert_same_gradients(ours, gradients(policy, chosen[top_ids[1, 0]].sum()), 1e-4)


def test_dropout_is_off_and_the_mode_is_put_back() -> None:
    """Fault 38: GPT-2 with dropout 0.1 in training mode still has ratio 1 with itself."""
    policy = family_policy("gpt2")
    reference = sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs
    policy.model.train()
    policy.model.transformer.h[0].eval()
    modes = [module.training for module in policy.model.modules()]
    output = sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs
    assert torch.equal(output, reference)
    assert [module.training for module in policy.model.modules()] == modes


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_activation_checkpointing_changes_nothing(family: str) -> None:
    policy = family_policy(family)
    expected = gradients(policy, sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs.sum())
    checkpoint_activations(policy.model)
    layers = policy.model.transformer.h if family == "gpt2" else policy.model.model.layers
    inner: list[int] = []
    next(layers[0].children()).register_forward_pre_hook(lambda *_: inner.append(1))
    with torch.no_grad():
        sequence_logprobs(policy, PROMPTS, COMPLETIONS)
    assert len(inner) == 1
    output = sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs
    assert_same_gradients(gradients(policy, output.sum()), expected, 1e-6)
    assert len(inner) == 3  # forward, and once more in the backward pass


def test_bfloat16_products_give_float32_log_probabilities() -> None:
    """Fault 39: never positive, and within 1e-3 of float64 on the same logits."""
    torch.manual_seed(0)
    head = Head(nn.Identity(), nn.Linear(16, 32000, bias=False), LogitRule())
    hidden = torch.randn(6, 16).bfloat16()
    hidden[0] = head.linear.weight[7].detach().bfloat16() * 4000  # a nearly certain token
    targets = torch.tensor([[7], [1], [2], [3], [4], [31999]])
    chosen, entropy = token_logprobs(hidden, head, targets, temperature=0.9)
    assert entropy is not None
    assert chosen.dtype == entropy.dtype == torch.float32
    assert bool((chosen <= 0).all())
    exact = (hidden.double() @ head.linear.weight.double().T / 0.9).log_softmax(-1)
    torch.testing.assert_close(chosen.double(), exact.gather(1, targets), atol=1e-3, rtol=0)


def test_a_bfloat16_policy_trains_float32_masters() -> None:
    policy = family_policy("llama", dtype=torch.bfloat16)
    exact = sequence_logprobs(family_policy("llama"), PROMPTS, COMPLETIONS).logprobs
    output = sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs
    assert output.dtype == torch.float32
    gap = (output - exact).abs().detach()
    assert 1e-4 < float(gap.max()) < 0.5
    found = gradients(policy, output.sum())
    assert {g.dtype for g in found.values()} == {torch.float32}
    assert len(found) == len(list(policy.model.parameters()))


class _Sizes(TorchDispatchMode):
    """The sizes of every tensor that is made, and the rows of every product with the head."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.projected = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
                if func is torch.ops.aten.mm.default and tensor.shape[1] == 5000:
                    self.projected += tensor.shape[0]
        return out


def test_no_tensor_over_the_vocabulary_is_larger_than_a_chunk() -> None:
    """Fault 57: chunks of logits, prompt positions not projected, equal to the plain pass."""
    from transformers import LlamaConfig, LlamaForCausalLM

    policy = family_policy("llama")
    policy.template = family_template(5000)
    torch.manual_seed(0)
    policy.model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=5000,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=128,
            initializer_range=0.2,
        )
    )
    generator = torch.Generator().manual_seed(1)
    draw = lambda n: torch.randint(5000, (n,), generator=generator).tolist()  # noqa: E731
    prompts, completions = [draw(40), draw(50)], [draw(60), draw(30)]
    head_of(policy.model)
    with _Sizes() as sizes:
        output = sequence_logprobs(policy, prompts, completions, entropies=True, chunk_tokens=16)
        output.logprobs.sum().backward()
    weights = 5000 * 32 * 4
    assert sizes.largest == max(weights, 16 * 5000 * 4)
    assert sizes.projected == 2 * 90  # forward and backward, completion tokens only
    ours = {n: p.grad.clone() for n, p in policy.model.named_parameters()}
    theirs = sum(plain(policy, p, c)[0].sum() for p, c in zip(prompts, completions))
    assert isinstance(theirs, Tensor)
    assert output.logprobs.sum().item() == pytest.approx(theirs.item(), abs=1e-3)
    assert_same_gradients(ours, gradients(policy, theirs), 1e-5)


def test_a_head_that_is_not_a_plain_linear_layer() -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Linear) -> None:
            super().__init__()
            self.inner = inner
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.scale

    policy = family_policy("qwen2")
    policy.model.lm_head = Wrapped(policy.model.lm_head)
    output = sequence_logprobs(policy, PROMPTS, COMPLETIONS, entropies=True, chunk_tokens=4)
    assert output.entropies is not None
    rows = [plain(policy, p, c) for p, c in zip(PROMPTS, COMPLETIONS)]
    for row, (chosen, entropy) in enumerate(rows):
        torch.testing.assert_close(output.logprobs[row, : len(chosen)], chosen, atol=1e-5, rtol=0)
        torch.testing.assert_close(output.entropies[row, : len(chosen)], entropy, atol=1e-5, rtol=0)
    ours = gradients(policy, output.logprobs.sum() + output.entropies.sum())
    assert_same_gradients(ours, gradients(policy, sum(a.sum() + b.sum() for a, b in rows)), 1e-5)


def test_frozen_parameters_get_no_gradient() -> None:
    policy = family_policy("qwen2")
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    found = gradients(policy, sequence_logprobs(policy, PROMPTS, COMPLETIONS).logprobs.sum())
    assert set(found) == {f"model.layers.{i}.self_attn.q_proj.{p}" for i in (0, 1) for p in (
        "weight", "bias"
    )}  # fmt: skip


def test_score_is_one_row_of_it() -> None:
    policy = family_policy("llama")
    logprobs = score(policy, [5, 2, 9], [3, 2, 2, 17], temperature=0.5)
    assert logprobs.dtype == torch.float32
    assert not logprobs.requires_grad
    torch.testing.assert_close(
        logprobs, plain(policy, [5, 2, 9], [3, 2, 2, 17], 0.5)[0].detach(), atol=1e-5, rtol=0
    )


def test_score_wants_ids_of_the_vocabulary() -> None:
    policy = family_policy("llama")
    for bad in (-1, VOCABULARY, 10**9):
        with pytest.raises(ValueError, match=f"completion_ids: id {bad} is not within the vocab"):
            score(policy, [3], [5, bad])
        with pytest.raises(ValueError, match=f"prompt_ids: id {bad} is not within the vocab"):
            score(policy, [bad], [5])


@pytest.mark.parametrize("ids", ["3+4=", ["3", "+"], [1.5], 7])
def test_what_is_no_list_of_ids_is_refused(ids: Any) -> None:
    policy = family_policy("llama")
    with pytest.raises(TypeError, match="prompt_ids: expected a list of token ids, whole numbers"):
        as_ids(policy, ids, "prompt_ids")
    assert as_ids(policy, torch.tensor([5, 2]), "prompt_ids") == (5, 2)
