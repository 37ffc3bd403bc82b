"""Small policies and groups that several test files use."""

from __future__ import annotations

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from groupwise.policies import Policy
from groupwise.templates import Template
from groupwise.types import Completion, Group, Prompt, Rollout, Score, StepReward, Turn

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
    if dtype == torch.float64:
        exact_norms(model)
    model.eval()
    return Policy(
        name="random",
        model=model,
        template=make_template(),
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=64,
    )


def exact_norms(model: nn.Module) -> None:
    """transformers' norm rounds to float32 whatever the weights are: a sum in another order, 1e-16
    away, would come out 1e-7 away. PyTorch's norm keeps float64."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, LlamaRMSNorm):
                norm = nn.RMSNorm(child.weight.shape[0], child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)


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


def make_rich_groups(
    num_groups: int = 4, group_size: int = 4, seed: int = 0, top_k: int = 0
) -> list[Group]:
    """`make_groups` with everything that any algorithm asks for: entropies, top-K
    log-probabilities, two reward components, step rewards, one truncated row, greedy rollouts."""
    generator = torch.Generator().manual_seed(seed + 1)

    def number(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

    def enrich(rollout: Rollout, cut: bool) -> Rollout:
        old = rollout.turns[0].completion
        count = len(old.token_ids)
        tops = [
            torch.randperm(VOCABULARY, generator=generator)[:top_k].tolist() for _ in range(count)
        ]
        completion = Completion(
            old.token_ids,
            "x" * count,
            old.sampler_logprobs,
            "length" if cut else "stop",
            entropies=tuple(number(0.1, 2.5) for _ in range(count)),
            top_ids=tuple(map(tuple, tops)),
            top_logprobs=tuple(tuple(number(-4, -2) for _ in top) for top in tops),
        )
        ends = sorted({count // 2, count - 1})
        score = Score(
            rollout.score.value,
            rollout.score.outcome,
            parts={"right": rollout.score.value, "form": float(number(0, 1) > 0.5)},
            steps=tuple(StepReward(number(0, 1), end + 1) for end in ends),
        )
        return Rollout(
            rollout.prompt,
            (Turn(rollout.prompt_ids, completion),),
            score,
            rollout.group_index,
            0,
            0,
            step_ends=tuple(ends),
        )

    groups = []
    for place, group in enumerate(make_groups(num_groups, group_size, seed)):
        rollouts = tuple(enrich(r, place == r.group_index == 1) for r in group.rollouts)
        groups.append(Group(group.prompt, rollouts, greedy=rollouts[-1]))
    return groups
