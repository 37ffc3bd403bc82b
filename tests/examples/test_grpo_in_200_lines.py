"""The one-file example: short enough to read, equal to the library, and it learns."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples import grpo_in_200_lines as example
from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.learner import Learner, TrainingSettings
from groupwise.policies import get_model, load_policy
from groupwise.types import Completion, Group, Prompt, Rollout, Score, Turn
from helpers import exact_norms

SOURCE = Path(example.__file__).read_text(encoding="utf-8")


def test_it_fits_on_200_lines_and_uses_nothing_of_the_training_loop() -> None:
    assert len(SOURCE.splitlines()) <= 200
    imports = [line for line in SOURCE.splitlines() if line.startswith("from groupwise")]
    assert imports == ["from groupwise.policies import get_model"]


def groups_of(rollouts: example.Rollouts, rewards: torch.Tensor) -> list[Group]:
    """The same rollouts as the library's types; prompts and completions keep their order."""
    groups = []
    for p, row_rewards in enumerate(rewards.tolist()):
        prompt = Prompt(f"p{p}", text=f"p{p}")
        members = []
        for g, reward in enumerate(row_rewards):
            row = p * len(row_rewards) + g
            ids = tuple(rollouts.completion_ids[row][rollouts.mask[row]].tolist())
            context = tuple(rollouts.prompt_ids[row].tolist())
            turn = Turn(context, Completion(ids, "x", (-1.0,) * len(ids), "stop"))
            outcome = "correct" if reward else "incorrect"
            score = Score(reward, outcome)
            members.append(Rollout(prompt, (turn,), score, group_index=g, visit=0, step=0))
        groups.append(Group(prompt, tuple(members)))
    return groups


def test_its_update_equals_the_librarys_to_1e_6() -> None:
    """Two updates in float64 (the second has a reference that differs and moments), each
    parameter compared; both move by about the learning rate, 1e-4, per update."""
    torch.manual_seed(0)
    entry = get_model("tiny")
    assert entry is not None
    tokenizer = AutoTokenizer.from_pretrained(entry.get())
    mine = AutoModelForCausalLM.from_pretrained(entry.get(), dtype=torch.float32).double()
    exact_norms(mine)
    start = copy.deepcopy(mine)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=example.LEARNING_RATE, weight_decay=0.0)

    policy, reference = load_policy("tiny"), load_policy("tiny")
    for each in (policy, reference):
        each.model.load_state_dict(start.state_dict())
        each.model.double()
        exact_norms(each.model)
    learner = Learner(
        policy,
        preset("grpo"),
        TrainingSettings(learning_rate=example.LEARNING_RATE, prompts_per_step=12),
        temperature=1.0,
        divide=split_rows,
        reference=reference,
    )

    for step, problems in enumerate((example.all_problems()[:12], example.all_problems()[20:32])):
        prompts = example.encode(tokenizer, problems).repeat_interleave(example.GROUP_SIZE, dim=0)
        rollouts = example.sample(mine, prompts, tokenizer.eos_token_id)
        texts = example.texts_of(rollouts, tokenizer)
        scores = [example.reward(problems[i // example.GROUP_SIZE], t) for i, t in enumerate(texts)]
        rewards = torch.tensor(scores).reshape(len(problems), example.GROUP_SIZE)
        assert 0.2 < float(rewards.mean()) < 0.8
        norm = example.update(mine, start, optimizer, rollouts, rewards)

        groups = groups_of(rollouts, rewards)
        rows = align(groups)
        passes = [split_groups(rows.group_ids, 1, seed=0, step=step, pass_index=0)]
        evidence = learner.evidence(rows, passes[0])
        batch = make_batch(
            groups,
            rows,
            learner.algorithm,
            max_tokens=example.MAX_TOKENS,
            old_logprobs=evidence.old_logprobs,
            ref_logprobs=evidence.ref_logprobs,
        )
        metrics = learner.learn(batch, passes, step=step)
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)

    theirs = dict(policy.model.named_parameters())
    moved = 0.0
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], atol=1e-6, rtol=0)
        moved = max(moved, float((parameter - start.get_parameter(name)).detach().abs().max()))
    assert 1e-4 < moved < 3e-4  # so 1e-6 is a hundredth of an update


def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = example.main(steps=40)
    assert before < 0.55
    assert after > before + 0.2
    assert "gradient norm" in capsys.readouterr().out
