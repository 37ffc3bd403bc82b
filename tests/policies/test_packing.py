"""The packed pass: each prompt once, exact values and gradients, nothing of a neighbour."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from groupwise.policies import Policy, attention, packing, sequence_logprobs
from groupwise.policies.heads import head_of
from groupwise.policies.load import checkpoint_activations
from groupwise.policies.packable import packable
from groupwise.policies.packing import pack, packed_tokens
from helpers import make_policy
from model_families import VOCABULARY, cases, family_policy
from plain_pass import assert_same_gradients, gradient_error, gradients, plain

# Three prompts, a group of 1 among them, rows of a group apart; completions with no, one and many
# tokens, several longer than the sliding window of 6 that some families have.
P, Q, R = [5, 2, 9, 11, 3, 8, 4, 31, 7], [4], [7, 8, 2, 2]
PROMPTS: list[list[int]] = [P, Q, P, R, P, P, R]
COMPLETIONS: list[list[int]] = [
    [3, 2, 2, 17],
    [19, 20, 21, 22, 23, 24, 25, 26, 27],
    [30],
    [],
    [30, 31, 32, 33, 34, 35, 2, 36, 37, 38, 39],
    [12, 13],
    [14, 15, 16, 17, 18],
]


def factors(seed: int = 1) -> Tensor:
    return torch.randn(len(PROMPTS), 11, generator=torch.Generator().manual_seed(seed))


def naive(policy: Policy, temperature: float = 0.7) -> tuple[list[Tensor], Tensor]:
    """Row by row: log-probabilities, and a sum that depends on each of them and the entropies."""
    rows, total = [], torch.zeros(())
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS)):
        if not completion:
            rows.append(torch.zeros(0))
            continue
        chosen, entropy = plain(policy, prompt, completion, temperature)
        rows.append(chosen)
        total = total + ((chosen + 0.3 * entropy) * factors()[row, : len(chosen)]).sum()
    return rows, total


def ours(policy: Policy, temperature: float = 0.7) -> tuple[Tensor, Tensor]:
    out = sequence_logprobs(policy, PROMPTS, COMPLETIONS, temperature=temperature, entropies=True)
    assert out.entropies is not None
    return out.logprobs, ((out.logprobs + 0.3 * out.entropies) * factors()).sum()


def assert_equals_naive(policy: Policy, value: float, gradient: float) -> None:
    logprobs, total = ours(policy)
    rows, expected = naive(policy)
    for row, chosen in enumerate(rows):
        torch.testing.assert_close(
            logprobs[row, : len(chosen)], chosen, atol=value, rtol=0, check_dtype=False
        )
        assert not logprobs[row, len(chosen) :].any()
    assert_same_gradients(gradients(policy, total), gradients(policy, expected), gradient)


@pytest.mark.parametrize("family", cases())
def test_every_family_equals_the_naive_pass(family: str) -> None:
    policy = family_policy(family)
    assert packable(head_of(policy.model).decoder)
    assert_equals_naive(policy, 2e-5, 1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_float64_equals_the_naive_pass_to_its_precision(family: str) -> None:
    policy = make_policy(dtype=torch.float64) if family == "llama" else family_policy("gpt2")
    policy.model.double()
    assert_equals_naive(policy, 1e-12, 1e-11)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral"])
def test_tiles_and_batches_of_any_size_change_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long segments are cut into tiles, large blocks into batches, unlike segments kept apart."""
    monkeypatch.setattr(packing, "_TILE", 3)
    monkeypatch.setattr(packing, "_SMALL", 0)
    monkeypatch.setattr(packing, "_WASTE", 1.05)
    monkeypatch.setattr(attention, "_SCORE_BYTES", 600)
    assert len(pack(PROMPTS, COMPLETIONS, torch.device("cpu")).blocks) > 10
    assert_equals_naive(family_policy(family), 2e-5, 1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_devices_own_kernels_give_the_same(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_attend", attention._fused)
    assert_equals_naive(family_policy(family), 2e-5, 1e-4)


def test_a_row_does_not_depend_on_the_others_in_the_pack() -> None:
    """Fault 21: other rows, their number and their order leave values and gradients alone."""
    policy = make_policy(dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    row = 4
    alone = sequence_logprobs(policy, [PROMPTS[row]], [COMPLETIONS[row]]).logprobs[0]
    expected = gradients(policy, alone.sum())
    for _ in range(3):
        junk = [torch.randint(VOCABULARY, (n,), generator=generator).tolist() for n in (1, 7, 13)]
        prompts = [P, junk[0], P, junk[1], PROMPTS[row]]
        completions = [junk[1], junk[2], junk[2], junk[0], COMPLETIONS[row]]
        place = int(torch.randint(5, (1,), generator=generator))
        prompts[place], prompts[4] = prompts[4], prompts[place]
        completions[place], completions[4] = completions[4], completions[place]
        output = sequence_logprobs(policy, prompts, completions).logprobs[place, : len(alone)]
        torch.testing.assert_close(output, alone, atol=1e-12, rtol=0)
        assert_same_gradients(gradients(policy, output.sum()), expected, 1e-12)


def test_a_packs_first_tokens_are_scored_from_their_own_prompt() -> None:
    """Fault 27: behind a boundary nothing is scored from the neighbour, prompts unequal in length
    and completions of one token included."""
    policy = make_policy()
    prompts, completions = [[5, 6], [9], [5, 6], [9, 4, 3]], [[7, 8], [7], [10], [11]]
    output = sequence_logprobs(policy, prompts, completions).logprobs
    for row, (prompt, completion) in enumerate(zip(prompts, completions)):
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        assert output[row, 0].item() == pytest.approx(logits[completion[0]].item(), abs=1e-5)


def test_the_layout_by_hand() -> None:
    layout = pack([[5, 6], [9], [5, 6]], [[1, 2, 3], [4], [7, 8]], torch.device("cpu"))
    assert layout.input_ids.tolist() == [[5, 6, 1, 2, 7, 9]]
    assert layout.position_ids.tolist() == [[0, 1, 2, 3, 2, 0]]
    # Row 0 is predicted at 6, 1, 2; row 1 at 9; row 2 at 6 and 7.
    assert layout.predictors.tolist() == [1, 2, 3, 5, 1, 4]
    assert packed_tokens([[5, 6], [9], [5, 6]], [[1, 2, 3], [4], [7, 8]]) == 6
    prompts, completions = layout.blocks
    assert (prompts.queries.tolist(), prompts.offset) == ([[0, 1], [5, 5]], 0)
    assert completions.keys.tolist() == [[0, 1, 2, 3], [0, 1, 4, 4]]
    assert completions.visible(None).int().tolist() == [[[1, 1, 1, 0], [1, 1, 1, 1]]]
    assert completions.visible(2).int().tolist() == [[[0, 1, 1, 0], [0, 0, 1, 1]]]


class _Seen(TorchDispatchMode):
    """The largest number of elements of any tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def test_linear_layers_see_each_token_once_and_no_mask_is_square() -> None:
    policy = family_policy("llama")
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(VOCABULARY, (30,), generator=generator).tolist()] * 40
    completions = [
        torch.randint(VOCABULARY, (int(n),), generator=generator).tolist()
        for n in torch.randint(1, 30, (40,), generator=generator)
    ]
    tokens = 30 + sum(len(ids) - 1 for ids in completions)
    widths: list[tuple[int, ...]] = []
    layer: Any = policy.model.model.layers[0].mlp  # type: ignore[union-attr]
    layer.register_forward_pre_hook(lambda _, args: widths.append(tuple(args[0].shape)))
    packable(head_of(policy.model).decoder)
    widths.clear()
    with _Seen() as seen:
        sequence_logprobs(policy, prompts, completions).logprobs.sum().backward()
    assert widths == [(1, tokens, 32)]
    assert packed_tokens(prompts, completions) == tokens
    assert seen.largest < tokens * tokens


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_checkpointed_layers_recompute_packed(family: str) -> None:
    policy = family_policy(family)
    expected = gradients(policy, ours(policy)[1])
    checkpoint_activations(policy.model)
    functions = [m._gradient_checkpointing_func for m in policy.model.modules() if hasattr(
        m, "_gradient_checkpointing_func")]  # fmt: skip
    policy.model.train()  # GPT-2 has dropout: off in the pass, and off when it runs again
    found = gradients(policy, ours(policy)[1])
    assert_same_gradients(found, expected, 1e-6)
    assert functions == [m._gradient_checkpointing_func for m in policy.model.modules() if hasattr(
        m, "_gradient_checkpointing_func")]  # fmt: skip


def test_the_model_is_as_before_after_a_pass() -> None:
    policy = family_policy("gemma2")
    ids = torch.tensor([[5, 6, 7]])
    before = policy.model(input_ids=ids).logits
    assert policy.model.config._attn_implementation == "eager"
    ours(policy)
    assert policy.model.config._attn_implementation == "eager"
    assert torch.equal(policy.model(input_ids=ids).logits, before)
    with pytest.raises(ValueError, match="empty"):
        sequence_logprobs(policy, [[]], [[6]])
    assert policy.model.config._attn_implementation == "eager"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # peft asks for it
def test_adapters_train_packed() -> None:
    from peft import LoraConfig, get_peft_model

    policy = family_policy("qwen2")
    wrapped: Any = get_peft_model(
        policy.model,  # type: ignore[arg-type]
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1),
    )
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    policy.model = wrapped
    assert packable(head_of(wrapped).decoder)
    wrapped.eval()
    assert_equals_naive(policy, 2e-5, 1e-4)
    assert all("lora" in name for name in gradients(policy, ours(policy)[1]))


def test_bfloat16_points_the_float32_way() -> None:
    exact, low = family_policy("qwen2"), family_policy("qwen2", dtype=torch.bfloat16)
    expected, found = gradients(exact, ours(exact)[1]), gradients(low, ours(low)[1])
    flat = [torch.cat([g.flatten() for g in each.values()]) for each in (expected, found)]
    assert float(torch.cosine_similarity(flat[0], flat[1], dim=0)) > 0.98
    gap = (ours(exact)[0] - ours(low)[0]).detach().abs()
    assert 1e-4 < float(gap.max()) < 0.5


@pytest.mark.parametrize("kind", ["bloom", "mamba"])
def test_other_architectures_train_on_padded_rows_and_say_so_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No positions to give, or a state that runs from one token to the next."""
    torch.manual_seed(0)
    policy = family_policy("llama")
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32}
    policy.model = (
        BloomForCausalLM(BloomConfig(n_layer=2, n_head=4, **sizes))
        if kind == "bloom"
        else MambaForCausalLM(MambaConfig(num_hidden_layers=2, state_size=4, **sizes))
    )
    policy.model.eval()
    with caplog.at_level(logging.INFO, logger="groupwise"):
        assert_equals_naive(policy, 2e-5, 1e-4)
    lines = [line for line in caplog.messages if "trains on padded rows" in line]
    assert len(lines) == 1


def test_a_window_that_attention_is_not_told_of_is_not_trusted() -> None:
    policy = family_policy("llama")
    policy.model.config.sliding_window = 4  # type: ignore[union-attr]
    assert not packable(head_of(policy.model).decoder)
    policy = family_policy("llama")
    policy.model.config.layer_types = ["full_attention", "chunked_attention"]  # type: ignore[union-attr]
    assert not packable(head_of(policy.model).decoder)


def test_a_mask_by_layer_types_that_attention_does_not_read_is_not_trusted() -> None:
    """SmolLM3's masks go by `layer_types`; its attention reads `use_sliding_window`."""
    for use, runs_packed in ((False, False), (True, True)):
        torch.manual_seed(0)
        policy = family_policy("llama")
        policy.model = SmolLM3ForCausalLM(
            SmolLM3Config(
                vocab_size=VOCABULARY,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                pad_token_id=2,
                initializer_range=0.3,
                sliding_window=3,
                use_sliding_window=use,
                layer_types=["sliding_attention", "full_attention"],
            )
        )
        policy.model.eval()
        assert packable(head_of(policy.model).decoder) is runs_packed
        assert_equals_naive(policy, 2e-5, 1e-4)


def test_gradient_error_is_relative() -> None:
    one = {"w": torch.tensor([3.0, 4.0])}
    assert gradient_error({"w": torch.tensor([3.0, 4.5])}, one) == pytest.approx(0.1)
