"""A vocabulary padded beyond the tokenizer: ids without a token are not sampled and not scored."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.policies import Policy, load_policy, score, sequence_logprobs
from groupwise.samplers import make_sampler, sample
from groupwise.templates import Template
from groupwise.types import Request
from model_families import VOCABULARY, family_model, family_policy, family_template
from plain_pass import assert_same_gradients, gradients
from toy_tokenizers import words

TOKENS = 29
PROMPTS = [[5, 2, 9], [4], [7, 8, 2, 2, 11, 13, 6], [5, 2, 9]]
COMPLETIONS = [[3, 2, 2, 17], [19], [20, 21, 22, 23, 24, 25, 2], [4, 28]]


def masked(
    policy: Policy, prompt: list[int], completion: list[int], t: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies over the first TOKENS logits alone: the golden values."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1, :TOKENS]
    logprobs = (logits / t).log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(completion)[:, None])[:, 0]
    return chosen, -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", ["llama", "gemma2", "granite"])
def test_values_and_gradients_are_over_the_tokens_alone(
    family: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.policies.logprobs.packable", lambda _: packed)
    policy = family_policy(family, tokens=TOKENS)
    output = sequence_logprobs(
        policy, PROMPTS, COMPLETIONS, temperature=0.7, entropies=True, chunk_tokens=5
    )
    assert output.entropies is not None
    ours = output.logprobs.sum() + 0.3 * output.entropies.square().sum()
    theirs = torch.zeros(())
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS)):
        chosen, entropy = masked(policy, prompt, completion, 0.7)
        torch.testing.assert_close(output.logprobs[row, : len(chosen)], chosen, atol=1e-5, rtol=0)
        torch.testing.assert_close(output.entropies[row, : len(chosen)], entropy, atol=1e-5, rtol=0)
        theirs = theirs + chosen.sum() + 0.3 * entropy.square().sum()
    assert_same_gradients(gradients(policy, ours), gradients(policy, theirs), 1e-4)


def requests(count: int, **changes: Any) -> list[Request]:
    given = {"max_tokens": 12, "temperature": 1.5, **changes}
    return [Request(prompt_ids=tuple(PROMPTS[i % 3]), key=i + 1, **given) for i in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_samplers_and_the_learner_agree_and_draw_tokens_alone(dtype: torch.dtype) -> None:
    policy = family_policy("llama", tokens=TOKENS, dtype=dtype)
    asked = [*requests(24), *requests(6, greedy=True), *requests(6, keep_top_p=0.9)]
    local, plain = (make_sampler(name, policy).sample(asked) for name in ("local", "transformers"))
    for completions in (local, plain):
        assert max(max(each.token_ids) for each in completions) < TOKENS
        for each in completions[-6:]:
            assert each.supports is not None
            assert max(map(max, each.supports)) < TOKENS
    for request, ours, other in zip(asked, local, plain):
        if dtype == torch.float32:
            assert ours.token_ids == other.token_ids
        if request.greedy or request.keep_top_p < 1.0:
            continue
        exact = score(policy, request.prompt_ids, ours.token_ids, temperature=1.5)
        tolerance = 2e-5 if dtype == torch.float32 else 0.1
        assert (torch.tensor(ours.sampler_logprobs) - exact).abs().max().item() <= tolerance


def test_a_padded_id_that_the_model_prefers_is_never_taken() -> None:
    policy = family_policy("gpt_neox", tokens=TOKENS)
    with torch.no_grad():  # every padded row is what the model likes best
        policy.model.get_output_embeddings().weight[TOKENS:] *= 100.0  # type: ignore[operator]
    for name in ("local", "transformers"):
        (group,) = sample(policy, [[5, 4]], group_size=16, max_tokens=8, sampler=name)
        assert max(max(each.token_ids) for each in group) < TOKENS
        assert all(value > -20 for each in group for value in each.sampler_logprobs)


def test_gaps_between_tokens_are_left_out_too() -> None:
    tokenizer = words(["<unk>", "<bos>", "<end>"], [chr(48 + i) for i in range(26)])
    template = Template(tokenizer, None, special_tokens={"eos_token": "<end>"})
    assert template.absent_ids(29) == ()
    assert template.absent_ids(32) == (29, 30, 31)
    policy = family_policy("llama")
    assert policy.absent_ids is None
    policy = Policy(
        "llama", family_model("llama"), template, torch.device("cpu"), torch.float32, 128
    )
    assert policy.absent_ids is not None
    assert policy.absent_ids.tolist() == list(range(29, VOCABULARY))


def test_an_id_without_a_token_is_no_input() -> None:
    policy = family_policy("llama", tokens=TOKENS)
    for ids in ([TOKENS], [VOCABULARY - 1], [VOCABULARY], [-1]):
        with pytest.raises(
            ValueError, match=f"id {ids[0]} is not within the vocabulary of {TOKENS}"
        ):
            score(policy, [5], ids)
        with pytest.raises(ValueError, match=f"the vocabulary of {TOKENS} tokens"):
            sample(policy, [ids])


def test_loading_says_so(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    family_model("llama").save_pretrained(tmp_path)
    family_template(TOKENS).tokenizer.save(str(tmp_path / "tokenizer.json"))
    with caplog.at_level(logging.INFO, "groupwise"):
        policy = load_policy(str(tmp_path))
    assert policy.absent_ids is not None
    assert "11 ids of its vocabulary have no token in its tokenizer" in caplog.text
