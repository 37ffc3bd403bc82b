"""What the learner tells an algorithm, and what it asks it: adaptive entropy, token weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.learner import Learner, TrainingSettings
from groupwise.types import Group, Score
from helpers import make_groups, make_policy

ADAPTIVE = {"kind": "adaptive_entropy", "target": 100.0, "step": 0.001, "high": 0.01}


def learn(
    groups: list[Group], state: Any = None, algorithm: Any = None, **settings: Any
) -> dict[str, Any]:
    algorithm = algorithm or preset("dr_grpo", extras=[ADAPTIVE])
    training = TrainingSettings(
        **{"learning_rate": 0.1, "optimizer": "sgd", "max_grad_norm": None, **settings}
    )
    learner = Learner(
        make_policy(),
        algorithm,
        training,
        temperature=1.0,
        divide=split_rows,
    )
    rows = align(groups)
    passes = [
        split_groups(rows.group_ids, training.minibatches, seed=0, step=0, pass_index=number)
        for number in range(training.passes)
    ]
    evidence = learner.evidence(rows, passes[0])
    batch = make_batch(
        groups,
        rows,
        algorithm,
        max_tokens=8,
        state=state,
        old_logprobs=evidence.old_logprobs,
    )
    return {
        **learner.learn(batch, passes, step=0, state=state),
        "weights": torch.cat([p.detach().flatten() for p in learner.policy.model.parameters()]),
    }


def test_the_entropy_coefficient_moves_once_a_real_update() -> None:
    state = preset("dr_grpo", extras=[ADAPTIVE]).init_state()
    made = learn(make_groups(), state, passes=2, minibatches=2)
    assert made["updates"] == state.updates == 4
    assert state.entropy_coef == pytest.approx(0.004)
    assert made["algorithm/entropy_coef"] == pytest.approx(0.004)


def test_skipped_updates_do_not_move_it() -> None:
    """Without a scored row nothing trains; a KL stop drops the rest."""
    unscored = [
        Group(
            group.prompt,
            tuple(
                type(r)(r.prompt, r.turns, Score(None, "not_applicable"), r.group_index, 0, 0)
                for r in group.rollouts
            ),
        )
        for group in make_groups()
    ]
    state = preset("dr_grpo", extras=[ADAPTIVE]).init_state()
    assert learn(unscored, state)["updates/skipped"] == 1
    assert (state.updates, state.entropy_coef) == (0, None)
    made = learn(make_groups(), state, passes=4, kl_stop=1e-9, learning_rate=1.0)
    assert (made["updates"], made["updates/skipped"]) == (1, 3)
    assert (state.updates, state.entropy_coef) == (1, pytest.approx(0.001))


def first_token_only(terms: Any) -> torch.Tensor:
    weight = torch.zeros_like(terms.logprobs)
    weight[:, 0] = 1.0
    return weight


def nothing(terms: Any) -> torch.Tensor:
    return torch.zeros_like(terms.logprobs)


def test_a_token_weight_of_one_s_own_reaches_the_gradient() -> None:
    """All weights 0: nothing to learn. The first token alone: as if rows were one token long, under
    a constant denominator."""
    groups = make_groups()

    def weighted(name: str) -> Any:
        extra = {"kind": "token_weight", "function": f"test_hooks:{name}"}
        return preset("dr_grpo", extras=[extra])

    assert learn(groups, algorithm=weighted("nothing"))["updates/skipped"] == 1
    short = [
        Group(
            group.prompt,
            tuple(
                type(r)(
                    r.prompt,
                    (type(r.turns[0])(r.prompt_ids, _first(r.turns[0].completion)),),
                    r.score,
                    r.group_index,
                    0,
                    0,
                )
                for r in group.rollouts
            ),
        )
        for group in groups
    ]
    mine = learn(groups, algorithm=weighted("first_token_only"))["weights"]
    theirs = learn(short, algorithm=preset("dr_grpo"))["weights"]
    assert float((mine - theirs).abs().max()) < 1e-6


def _first(completion: Any) -> Any:
    return type(completion)(
        completion.token_ids[:1], "x", completion.sampler_logprobs[:1], completion.finish_reason
    )
