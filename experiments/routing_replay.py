"""The gap between sampler and learner of a random mixture of experts, with and without replay.

Qwen3-MoE of 8 layers with 32 experts, 4 of them chosen, 2 M parameters; the local sampler, 64
completions of 64 tokens. Prints the table of docs/sampling.md and asserts what it claims.

    python experiments/routing_replay.py     # under a minute
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from groupwise.batches import align
from groupwise.policies import Policy, sequence_logprobs
from groupwise.samplers import make_sampler
from groupwise.templates import Template
from groupwise.types import Group, Prompt, Request, Rollout, Score, Turn

VOCABULARY, PROMPTS, GROUP, TOKENS = 512, 8, 8, 64


def mixture() -> Policy:
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=64, moe_intermediate_size=32, intermediate_size=64,
        num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        num_experts=32, num_experts_per_tok=4, norm_topk_prob=True, initializer_range=0.15,
        max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model: Any = Qwen3MoeForCausalLM(config).eval()
    tokenizer = Tokenizer(models.WordLevel({f"<{n}>": n for n in range(VOCABULARY)}, "<0>"))
    template = Template(tokenizer, None, special_tokens={}, stop_ids=(), pad_id=0)
    return Policy("mixture", model, template, torch.device("cpu"), torch.float32, 128)


def changed(policy: Policy, size: float | None) -> Policy:
    """Weights rounded to bfloat16, or moved by a share of `size` as updates would."""
    other = replace(policy, model=copy.deepcopy(policy.model))
    with torch.no_grad():
        for each in other.model.parameters():
            moved = each.bfloat16() if size is None else each * (1 + size * torch.randn_like(each))
            each.copy_(moved)
    return other


def measured(sampler_policy: Policy, learner: Policy) -> tuple[list[float], float]:
    """Mean and largest gap in nats a token without replay, then with it; the share of tokens of
    which an expert differs in some layer."""
    asked = [
        Request((5 + n // GROUP, 17, 3 + n // GROUP), key=n, max_tokens=TOKENS, experts=True)
        for n in range(PROMPTS * GROUP)
    ]
    made = make_sampler("local", sampler_policy).sample(asked)
    own = make_sampler("local", learner)
    prompts = [Prompt(f"p{n}", text="x") for n in range(PROMPTS)]
    rollouts = [
        Rollout(
            prompts[n // GROUP], (Turn(r.prompt_ids, c),), Score(0.0, "incorrect"), n % GROUP, 0, 0
        )
        for n, (r, c) in enumerate(zip(asked, made, strict=True))
    ]
    rows = align([
        Group(prompt, tuple(rollouts[n * GROUP : (n + 1) * GROUP]))
        for n, prompt in enumerate(prompts)
    ])  # fmt: skip
    found: list[float] = []
    for experts in (None, rows.experts):
        with torch.no_grad():
            output = sequence_logprobs(
                learner, rows.prompt_ids, rows.completion_ids, experts=experts
            )
        gap = (output.logprobs - rows.sampler_logprobs)[rows.mask].abs()
        found += [float(gap.mean()), float(gap.max())]
    # A sampler of the learner's weights runs the same tokens as a prompt.
    again = own.sample([
        Request((*r.prompt_ids, *c.token_ids[:-1]), key=0, max_tokens=1, experts=True)
        for r, c in zip(asked, made, strict=True)
    ])  # fmt: skip
    pairs = [
        (set_of(a), set_of(b))
        for first, second in zip(made, again, strict=True)
        for a, b in zip(first.experts or (), second.experts or (), strict=True)
    ]
    return found, sum(a != b for a, b in pairs) / len(pairs)


def set_of(note: bytes) -> list[set[int]]:
    """A token's experts, layer by layer, in no order."""
    ids = memoryview(note).cast("h").tolist()
    return [set(ids[start : start + 4]) for start in range(0, len(ids), 4)]


def main() -> None:
    torch.set_num_threads(1)
    exact = mixture()
    half = replace(exact, dtype=torch.bfloat16)
    cases = {
        "float32, the same weights": (exact, exact),
        "bfloat16, the same weights": (half, half),
        "bfloat16 sampler, float32 learner": (half, exact),
        "sampler's weights rounded to bfloat16": (changed(exact, None), exact),
        "sampler's weights off by 1 %": (changed(exact, 0.01), exact),
    }
    print("| sampler and learner | other experts | gap without replay, mean (max) | with replay |")
    print("|---|---|---|---|")
    for number, (name, (sampler, learner)) in enumerate(cases.items()):
        (mean, most, replayed, replayed_most), share = measured(sampler, learner)
        row = f"{mean:.2g} ({most:.2g}) | {replayed:.2g} ({replayed_most:.2g})"
        print(f"| {name} | {share:.1%} of tokens | {row} |")
        assert replayed < (0.8 * mean if number else 1e-5), name


if __name__ == "__main__":
    main()
