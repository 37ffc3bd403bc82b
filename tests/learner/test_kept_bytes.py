"""Bytes that one pass keeps for its backward, against the plan's formula: no clock is needed."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.planning.memory import activation_bytes
from groupwise.planning.shape import ModelShape
from groupwise.policies import Policy, sequence_logprobs
from groupwise.policies.load import checkpoint_activations
from model_families import family_template

HIDDEN, INNER, LAYERS, VOCABULARY = 64, 160, 4, 40


def policy(*, dtype: torch.dtype, checkpointing: bool) -> Policy:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )
    )
    model.eval()
    if checkpointing:
        checkpoint_activations(model)
    return Policy("llama", model, family_template(), torch.device("cpu"), dtype, 512)


def kept_bytes(made: Policy, prompts: list[list[int]], completions: list[list[int]]) -> int:
    """Bytes of every storage that the graph holds, weights and their copies left out."""
    weights = {p.untyped_storage().data_ptr() for p in made.model.parameters()}
    shapes = {tuple(p.shape) for p in made.model.parameters() if p.dim() == 2}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        copy = tuple(tensor.shape) in shapes or tuple(tensor.shape)[::-1] in shapes
        if storage.data_ptr() not in weights and not copy:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = sequence_logprobs(made, prompts, completions)
        total = sum(storage.nbytes() for storage in kept.values())
        output.logprobs.sum().backward()
    return total


@pytest.mark.parametrize(
    ("dtype", "checkpointing"),
    [(torch.float32, False), (torch.bfloat16, False), (torch.float32, True)],
)
def test_what_a_pass_keeps_is_what_the_plan_says(dtype: torch.dtype, checkpointing: bool) -> None:
    prompts = [[3 + i % 30 for i in range(60)]] * 6
    completions = [[5 + (row + i) % 30 for i in range(50)] for row in range(6)]
    made = policy(dtype=dtype, checkpointing=checkpointing)
    found = kept_bytes(made, prompts, completions)
    tokens = 60 + 6 * 49  # the prompt once
    shape = ModelShape(
        parameters=made.num_parameters,
        layers=LAYERS,
        hidden=HIDDEN,
        intermediate=INNER,
        vocabulary=VOCABULARY,
        kv_width=32,
        tied=False,
    )
    name = "float32" if dtype == torch.float32 else "bfloat16"
    planned = activation_bytes(shape, tokens, name, False)
    if checkpointing:  # a layer keeps its input, the last norm what it reads
        planned = tokens * (LAYERS * 4 * HIDDEN + 3 * 4 * HIDDEN)
    assert 0.97 * planned <= found <= 1.03 * planned
