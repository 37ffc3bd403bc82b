"""The learner's pass over unique tokens: its work is the formula's, and truncation is exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.learner import Learner, TrainingSettings
from groupwise.policies import sequence_logprobs
from groupwise.types import Completion, Group, Rows, Turn
from helpers import make_groups, make_policy


def make_learner(algorithm: str = "dr_grpo", **settings: int) -> Learner:
    chosen = preset(algorithm, kl="none") if algorithm == "grpo" else preset(algorithm)
    training = TrainingSettings(learning_rate=1e-3, **settings)
    policy = make_policy()
    return Learner(policy, chosen, training, temperature=1.0, divide=split_rows)


def learn(learner: Learner, groups: list[Group]) -> dict[str, float | None]:
    rows = align(groups)
    passes = [
        split_groups(rows.group_ids, 1, seed=0, step=0, pass_index=number)
        for number in range(learner.settings.passes)
    ]
    evidence = learner.evidence(rows, passes[0])
    batch = make_batch(
        groups, rows, learner.algorithm, max_tokens=8, old_logprobs=evidence.old_logprobs
    )
    return learner.learn(batch, passes, step=0)


def shape_of(groups: list[Group]) -> list[tuple[int, list[int]]]:
    return [
        (len(group.rollouts[0].prompt_ids), [len(r.completion_ids) for r in group.rollouts])
        for group in groups
    ]


def pass_work(groups: list[tuple[int, list[int]]]) -> tuple[int, int]:
    """Tokens and projected positions of one pass over whole groups: a prompt runs once a group, a
    completion without its last token, and every completion token is projected."""
    tokens = sum(prompt + sum(max(n - 1, 0) for n in lengths) for prompt, lengths in groups)
    return tokens, sum(sum(lengths) for _, lengths in groups)


@pytest.mark.parametrize("passes", [1, 3])
def test_the_work_of_a_step_is_the_formula_s(passes: int) -> None:
    """Each prompt once a pass; only completion tokens are projected. Several passes need the old
    log-probabilities: one pass more."""
    groups = make_groups(5, 6, seed=2)
    metrics = learn(make_learner("grpo", passes=passes), groups)
    tokens, projected = pass_work(shape_of(groups))
    runs = passes + (passes > 1)
    assert metrics["forward/tokens"] == runs * tokens
    assert metrics["forward/projected"] == runs * projected
    assert metrics["forward/micro_batches"] == runs


def test_a_cut_group_runs_its_prompt_once_a_piece() -> None:
    groups = make_groups(1, 6, seed=2)
    prompt, completions = shape_of(groups)[0]
    tokens, projected = pass_work([(prompt, completions)])
    metrics = learn(make_learner(micro_batch_tokens=1), groups)
    assert metrics["forward/micro_batches"] == 6
    assert metrics["forward/tokens"] == tokens + 5 * prompt
    assert metrics["forward/projected"] == projected


def test_the_counts_start_again_with_every_step() -> None:
    groups = make_groups(2, 3, seed=1)
    learner = make_learner()
    assert learn(learner, groups)["forward/tokens"] == learn(learner, groups)["forward/tokens"]


def truncated(groups: list[Group], learner: Learner) -> list[Group]:
    """The same rollouts as if sampling had kept five ids at every position."""
    generator = torch.Generator().manual_seed(0)
    changed = []
    for group in groups:
        rollouts = []
        for rollout in group.rollouts:
            ids = rollout.completion_ids
            kept = [
                tuple(sorted({token, *torch.randint(40, (4,), generator=generator).tolist()}))
                for token in ids
            ]
            with torch.no_grad():
                logprobs = sequence_logprobs(
                    learner.policy, [rollout.prompt_ids], [ids], supports=[kept]
                ).logprobs[0]
            completion = Completion(
                ids, "x", tuple(logprobs.tolist()), "stop", supports=tuple(kept)
            )
            rollouts.append(replace(rollout, turns=(Turn(rollout.prompt_ids, completion),)))
        changed.append(Group(group.prompt, tuple(rollouts)))
    return changed


def test_training_under_truncation_scores_what_sampling_kept() -> None:
    """Fault 5: the ratio to the sampler is 1, where full-vocabulary scoring has a gap."""
    learner = make_learner("grpo", passes=2)
    groups = truncated(make_groups(3, 4), learner)
    metrics = learn(learner, groups)
    gap = metrics["sampler_gap/max"]
    assert gap is not None
    plain = [
        Group(
            group.prompt,
            tuple(
                replace(r, turns=(replace(t, completion=replace(t.completion, supports=None)),))
                for r in group.rollouts
                for t in r.turns
            ),
        )
        for group in groups
    ]
    blind = learn(make_learner("grpo", passes=2), plain)["sampler_gap/max"]
    assert blind is not None
    assert blind > 1.0 > 0.1 > gap


def test_supports_are_none_under_context_and_where_nothing_was_cut() -> None:
    group = make_groups(1, 2)[0]
    first = Completion((5, 6), "x", (-1.0, -1.0), "stop", supports=((5, 7), (6,)))
    second = Completion((8,), "y", (-1.0,), "stop", supports=((8, 9),))
    whole = Completion((7,), "z", (-1.0,), "stop")
    rows: Rows = align(
        [
            Group(
                group.prompt,
                (
                    replace(group.rollouts[0], turns=(Turn((3,), first), Turn((4, 4), second))),
                    replace(group.rollouts[1], turns=(Turn((3,), whole),)),
                ),
            )
        ]
    )
    assert rows.supports == [[(5, 7), (6,), None, None, (8, 9)], [None]]
    assert align([group]).supports is None
