"""Small policies and groups that several test files use."""

from __future__ import annotations

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.policies import Policy
from groupwise.templates import Template
from groupwise.types import Completion, Group, Prompt, Rollout, Score, Turn

VOCABULARY = 40


def make_template() -> Template:
    """Forty one-character tokens; id 2 ends a completion and pads."""
    letters = "".join(chr(48 + i) for i in range(VOCABULARY - 3))
    table = {"<unk>": 0, "<bos>": 1, "<end>": 2}
    table |= {letter: 3 + i for i, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    return Template(tokenizer, None, special_tokens={"eos_token": "<end>"}, stop_ids=(2,), pad_id=2)


def make_policy(seed: int = 0, dtype: torch.dtype = torch.float32, hidden: int = 32) -> Policy:
    """A random two-layer Llama without dropout, in float32 or float64."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        )
    ).to(dtype)
    model.eval()
    return Policy(
        name="random",
        model=model,
        template=make_template(),
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=64,
    )


def make_groups(
    num_groups: int = 4, group_size: int = 4, seed: int = 0, longest: int = 7
) -> list[Group]:
    """Ragged random groups, lengths from 1, rewards 0 or 1 and never all equal in a group."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    groups = []
    for number in range(num_groups):
        prompt = Prompt(f"p{number}", text=f"p{number}")
        context = tuple(draw(3, VOCABULARY) for _ in range(draw(1, 6)))
        rollouts = []
        for index in range(group_size):
            ids = tuple(draw(3, VOCABULARY) for _ in range(draw(1, longest + 1)))
            logprobs = tuple(-1.0 - 0.1 * draw(0, 30) for _ in ids)
            reward = float(index == 0 or (index > 1 and draw(0, 2)))
            rollouts.append(
                Rollout(
                    prompt,
                    (Turn(context, Completion(ids, "x", logprobs, "stop")),),
                    Score(reward, "correct" if reward else "incorrect"),
                    group_index=index,
                    visit=0,
                    step=0,
                )
            )
        groups.append(Group(prompt, tuple(rollouts)))
    return groups
