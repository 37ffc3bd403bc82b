"""GRPO, the whole method in one file: run it with `python examples/grpo_in_200_lines.py`.

A language model that gets about 42 % of single-digit sums right samples eight answers to each
prompt. An answer that is better than its group's average is made more likely, a worse one less
likely, and a KL term keeps the model near where it began. That is all there is to it.

Nothing here comes from `groupwise.training`; from the library it takes only the model's folder. A
test holds one update of this file against the library's own. What the library adds: any model and
task, micro-batches that cannot change the gradient, exact resume, a record of everything, speed.

Shapes: P prompts, G completions each, B = P * G rows, T tokens of the longest completion.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from groupwise.policies import get_model

GROUP_SIZE = 8
PROMPTS_PER_STEP = 32
MAX_TOKENS = 4
STEPS = 60
LEARNING_RATE = 1e-4
MAX_GRAD_NORM = 1.0
CLIP_LOW, CLIP_HIGH = 0.2, 0.2
KL_COEF = 0.04


@dataclass(frozen=True)
class Rollouts:
    """What one step sampled. Prompts are all of one length here, so nothing needs padding left."""

    prompt_ids: Tensor  # [B, L] int64
    completion_ids: Tensor  # [B, T] int64, padded behind the end
    mask: Tensor  # [B, T] bool: True where the policy chose the token, its end token included


# --- the task: sums of two digits, checked by a program -------------------------------------------


def all_problems() -> list[tuple[int, int]]:
    return [(a, b) for a in range(10) for b in range(10) if a + b <= 9]


def encode(tokenizer: PreTrainedTokenizerBase, problems: list[tuple[int, int]]) -> Tensor:
    """[P, L]: every problem as a chat, up to where the assistant begins."""
    chats = [[{"role": "user", "content": f"{a}+{b}="}] for a, b in problems]
    return torch.tensor(
        [
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            for chat in chats
        ]
    )


def reward(problem: tuple[int, int], text: str) -> float:
    """1 for the sum and nothing else, 0 for anything else. It cannot be argued with."""
    return 1.0 if text.strip() == str(sum(problem)) else 0.0


# --- sampling -------------------------------------------------------------------------------------


@torch.no_grad()
def sample(model: torch.nn.Module, prompt_ids: Tensor, end_id: int) -> Rollouts:
    """One completion for every row, at temperature 1, until its end token or MAX_TOKENS."""
    ids, running, mask = prompt_ids, torch.ones(len(prompt_ids), dtype=torch.bool), []
    for _ in range(MAX_TOKENS):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        token = torch.multinomial(logits.softmax(-1), num_samples=1).squeeze(1)
        token = torch.where(running, token, end_id)
        mask.append(running)  # the end token counts: stopping is learned as well
        running = running & (token != end_id)
        ids = torch.cat([ids, token[:, None]], dim=1)
        if not running.any():
            break
    return Rollouts(prompt_ids, ids[:, prompt_ids.shape[1] :], torch.stack(mask, dim=1))


def texts_of(rollouts: Rollouts, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    rows = zip(rollouts.completion_ids, rollouts.mask, strict=True)
    return [tokenizer.decode(ids[mask], skip_special_tokens=True) for ids, mask in rows]


# --- the method: four short functions -------------------------------------------------------------


def group_advantages(rewards_PG: Tensor) -> Tensor:
    """[P, G]: how far above its own group's average each completion is, in standard deviations.

    The group is the baseline, so there is no critic. A group whose rewards are all equal teaches
    nothing: its advantages are 0.
    """
    centred = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    std = rewards_PG.std(dim=1, keepdim=True, correction=0)
    return torch.where(std > 1e-6, centred / std.clamp(min=1e-6), torch.zeros_like(centred))


def token_logprobs(model: torch.nn.Module, rollouts: Rollouts) -> Tensor:
    """[B, T]: log-probability of every completion token, 0 where the mask is False."""
    ids = torch.cat([rollouts.prompt_ids, rollouts.completion_ids], dim=1)
    length = rollouts.completion_ids.shape[1]
    # The logits at position t predict the token at t + 1, hence the shift by one.
    logits = model(input_ids=ids, use_cache=False).logits[:, -length - 1 : -1]
    chosen = logits.float().log_softmax(-1).gather(-1, rollouts.completion_ids[..., None])
    return torch.where(rollouts.mask, chosen.squeeze(-1), 0.0)


def grpo_loss(
    logprobs: Tensor, old_logprobs: Tensor, ref_logprobs: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """The clipped surrogate plus the KL term, averaged over each completion, then over completions.

    logprobs, old_logprobs, ref_logprobs, mask: [B, T]; advantages: [B]. Shao et al. 2024,
    DeepSeekMath, equations 3 and 4.
    """
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    A = advantages[:, None]
    surrogate = torch.minimum(ratio * A, clipped * A)
    # k3: an estimate of KL(policy || reference) from one sample, never negative.
    log_ratio_ref = ref_logprobs - logprobs
    kl = log_ratio_ref.exp() - log_ratio_ref - 1
    per_token = torch.where(mask, -surrogate + KL_COEF * kl, 0.0)
    return (per_token.sum(dim=1) / mask.sum(dim=1)).mean()


def update(
    model: torch.nn.Module,
    reference: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    rollouts: Rollouts,
    rewards_PG: Tensor,
) -> float:
    """One optimiser update from one step's rollouts; returns the gradient's norm.

    The rollouts are used once, so the old log-probabilities are the present ones and every ratio is
    1: the *value* of the loss says nothing (advantages cancel), its gradient does all the work.
    """
    logprobs = token_logprobs(model, rollouts)
    with torch.no_grad():
        ref_logprobs = token_logprobs(reference, rollouts)
    advantages = group_advantages(rewards_PG).flatten()
    loss = grpo_loss(logprobs, logprobs.detach(), ref_logprobs, advantages, rollouts.mask)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    return float(norm)


# --- the loop -------------------------------------------------------------------------------------


def main(steps: int = STEPS, seed: int = 0) -> tuple[float, float]:
    """Trains and prints a line every ten steps; returns the sampled accuracy before and after."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the model is too small to gain from more
    entry = get_model("tiny")
    assert entry is not None
    folder = entry.get()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    problems = all_problems()

    def rewards_of(chosen: list[tuple[int, int]]) -> tuple[Rollouts, Tensor]:
        """Rollouts of G completions for each chosen problem, and their rewards [P, G]."""
        prompts = encode(tokenizer, chosen).repeat_interleave(GROUP_SIZE, dim=0)
        rollouts = sample(model, prompts, tokenizer.eos_token_id)
        texts = texts_of(rollouts, tokenizer)
        scores = [reward(chosen[i // GROUP_SIZE], text) for i, text in enumerate(texts)]
        return rollouts, torch.tensor(scores).reshape(len(chosen), GROUP_SIZE)

    before = float(rewards_of(problems)[1].mean())
    print(f"before: {before:.1%} of sampled answers are right")
    for step in range(steps):
        chosen = random.sample(problems, PROMPTS_PER_STEP)
        rollouts, rewards_PG = rewards_of(chosen)
        norm = update(model, reference, optimizer, rollouts, rewards_PG)
        if step % 10 == 9:
            print(f"step {step + 1}: reward {rewards_PG.mean():.3f}, gradient norm {norm:.2f}")
    after = float(rewards_of(problems)[1].mean())
    print(f"after:  {after:.1%}")
    return before, after


if __name__ == "__main__":
    main()
