"""Rows stay together, groups stay whole, and how an update is divided changes nothing."""

from __future__ import annotations

import pytest
import torch

from groupwise.algorithms import preset
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.types import Completion, Group, Prompt, Rollout, Rows, Score, StepReward, Turn


def make_group(
    prompt_id: str,
    completions: list[list[int]],
    rewards: list[float | None],
    prompt_ids: tuple[int, ...] = (5, 6),
    finish: str = "stop",
) -> Group:
    prompt = Prompt(prompt_id, text=prompt_id)
    rollouts = tuple(
        Rollout(
            prompt,
            (Turn(prompt_ids, Completion(tuple(ids), "x", (-0.5,) * len(ids), finish)),),  # type: ignore[arg-type]
            Score(reward, "correct" if reward else "incorrect")
            if reward is not None
            else Score(None, "not_applicable"),
            group_index=index,
            visit=0,
            step=0,
        )
        for index, (ids, reward) in enumerate(zip(completions, rewards, strict=True))
    )
    return Group(prompt, rollouts)


def test_align_masks_come_from_lengths_not_from_ids() -> None:
    """Fault 2: eos = pad = 2 inside a completion is a token like any other."""
    rows = align([make_group("p", [[11, 12, 2], [2]], [1.0, 0.0], prompt_ids=(2, 5, 2, 6))])
    assert rows.mask.tolist() == [[True, True, True], [True, False, False]]
    assert list(rows.prompt_ids) == [(2, 5, 2, 6)] * 2
    assert list(rows.completion_ids) == [(11, 12, 2), (2,)]
    assert rows.sampler_logprobs.tolist() == [[-0.5, -0.5, -0.5], [-0.5, 0.0, 0.0]]


def test_later_context_is_attended_to_and_never_trained_on() -> None:
    """Fault 28, the layout's part: tool text has no mask, no log-probability."""
    prompt = Prompt("p", text="p")
    turns = (
        Turn((5,), Completion((7, 8), "a", (-1.0, -2.0), "stop")),
        Turn((9, 9, 9), Completion((3,), "b", (-3.0,), "stop")),
    )
    rollout = Rollout(prompt, turns, Score(1.0, "correct"), 0, 0, 0)
    rows = align([Group(prompt, (rollout,))])
    assert rows.completion_ids[0] == (7, 8, 9, 9, 9, 3)
    assert rows.mask[0].tolist() == [True, True, False, False, False, True]
    assert rows.sampler_logprobs[0].tolist() == [-1.0, -2.0, 0.0, 0.0, 0.0, -3.0]
    assert rollout.text == "a\nb"


def test_rows_keep_prompt_completion_reward_and_advantage_together() -> None:
    """Fault 9: reward = 10 * prompt + index survives batching and any division."""
    groups = [
        make_group(
            f"p{p}", [[100 * p + i] * (1 + i) for i in range(4)], [10.0 * p + i for i in range(4)]
        )
        for p in range(3)
    ]
    rows = align(groups)
    batch = make_batch(groups, rows, preset("rloo", kl="none"), max_tokens=8)
    for row in range(12):
        p, i = divmod(row, 4)
        assert rows.completion_ids[row] == (100 * p + i,) * (1 + i)
        assert batch.rewards[row] == 10.0 * p + i
        assert batch.advantages[row] == pytest.approx(4 / 3 * (i - 1.5))
    updates = split_groups(rows.group_ids, 3, seed=0, step=0, pass_index=1)
    assert sorted(torch.cat(updates).tolist()) == list(range(12))
    for update in updates:
        assert len(rows.group_ids[update].unique()) == 1
        parts = split_rows(rows, update, token_budget=7)
        assert sorted(torch.cat(parts).tolist()) == sorted(update.tolist())


def test_unscored_rows_have_no_advantage_and_no_mask() -> None:
    """Fault 12: None is outside every statistic, ddof 0 here."""
    groups = [make_group("p", [[1], [2], [3], [4]], [1.0, None, 0.0, 1.0])]
    batch = make_batch(groups, align(groups), preset("grpo", kl="none"), max_tokens=4)
    expected = [0.5**0.5, 0.0, -(2.0**0.5), 0.5**0.5]
    assert batch.advantages.tolist() == pytest.approx(expected, abs=1e-6)
    assert batch.mask.any(dim=1).tolist() == [True, False, True, True]


def test_an_empty_completion_is_a_row_without_tokens() -> None:
    """Fault 29: rewards belong to sequences; a row of length 0 has no token loss."""
    groups = [make_group("p", [[], [7]], [10.0, 0.0])]
    batch = make_batch(groups, align(groups), preset("dr_grpo"), max_tokens=4)
    assert batch.rewards.tolist() == [10.0, 0.0]
    assert batch.advantages.tolist() == [5.0, -5.0]
    assert batch.mask.tolist() == [[False], [True]]


def test_soft_overlong_and_overlong_mask_of_dapo() -> None:
    """Fault 23: L_max 20, L_cache 4 gives 0, -.25, -.5, -1 by completion tokens alone."""
    lengths = [16, 17, 18, 20]
    groups = [
        make_group("p", [[1] * n for n in lengths], [1.0, 0.0, 1.0, 0.0], prompt_ids=(1,) * 50)
    ]
    batch = make_batch(groups, align(groups), preset("dapo", filters=()), max_tokens=20)
    assert batch.rewards.tolist() == pytest.approx([1.0, -0.25, 0.5, -1.0])


def test_more_minibatches_than_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="give at most 2"):
        split_groups(torch.tensor([0, 0, 1, 1]), 3, seed=0, step=0, pass_index=0)


def row_tokens(rows: Rows, part: torch.Tensor) -> int:
    """Tokens of a micro-batch: each prompt once, completions without their last."""
    prompts = {rows.prompt_ids[row] for row in part.tolist()}
    own = sum(max(len(rows.completion_ids[row]) - 1, 0) for row in part.tolist())
    return sum(map(len, prompts)) + own


def test_split_rows_counts_a_prompt_once_and_keeps_groups_together() -> None:
    groups = [
        make_group(f"p{p}", [[1] * (1 + 3 * i) for i in range(4)], [0.0] * 4, prompt_ids=(5 + p, 7))
        for p in range(3)
    ]
    rows = align(groups)  # a group: 2 + 0 + 3 + 6 + 9 = 20 tokens
    everything = torch.arange(12)
    for budget, sizes in ((1000, [60]), (40, [40, 20]), (39, [20, 20, 20]), (20, [20, 20, 20])):
        parts = split_rows(rows, everything, token_budget=budget)
        assert [row_tokens(rows, part) for part in parts] == sizes
        assert sorted(torch.cat(parts).tolist()) == everything.tolist()
    # Too large: longest rows first, the prompt again in every piece; the rest is filled up.
    cut = split_rows(rows, everything, token_budget=13)
    assert [row_tokens(rows, part) for part in cut] == [11, 11, 11, 11, 11, 11]
    assert all(len(rows.group_ids[part].unique()) == 1 for part in cut)
    alone = split_rows(rows, everything, token_budget=1)
    assert sorted(part.tolist() for part in alone) == [[row] for row in range(12)]
    whole = split_rows(rows, everything, token_budget=1, whole_groups=True)
    assert [sorted(part.tolist()) for part in whole] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_split_rows_shares_a_prompt_that_two_groups_have() -> None:
    groups = [make_group("p", [[1] * 4] * 2, [0.0] * 2, prompt_ids=(5,) * 10) for _ in range(2)]
    rows = align(groups)  # a group: 10 + 3 + 3; both: 22
    assert [part.tolist() for part in split_rows(rows, torch.arange(4), 22)] == [[0, 1, 2, 3]]
    assert [part.tolist() for part in split_rows(rows, torch.arange(4), 21)] == [[0, 1], [2, 3]]


def test_split_rows_for_padded_rows_respects_the_budget() -> None:
    groups = [
        make_group(f"p{p}", [[1] * (1 + 3 * i) for i in range(4)], [0.0] * 4) for p in range(2)
    ]
    rows = align(groups)
    everything = torch.arange(8)
    for part in split_rows(rows, everything, token_budget=24, padded=True):
        width = max(2 + len(rows.completion_ids[row]) for row in part.tolist())
        assert width * len(part) <= 24 or len(part) == 1
    whole = split_rows(rows, everything, token_budget=24, whole_groups=True, padded=True)
    assert [sorted(part.tolist()) for part in whole] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def with_score(rollout: Rollout, score: Score, step_ends: tuple[int, ...] | None = None) -> Rollout:
    return Rollout(
        rollout.prompt, rollout.turns, score, rollout.group_index, 0, 0, step_ends=step_ends
    )


def rescored(group: Group, scores: list[Score]) -> Group:
    pairs = zip(group.rollouts, scores, strict=True)
    return Group(group.prompt, tuple(with_score(rollout, score) for rollout, score in pairs))


def test_step_rewards_reach_every_token_of_their_step() -> None:
    """algorithms.md 3.4: pooled mean .54 and std .344093, suffix sums, 0 behind the last step."""
    base = make_group("p", [[3] * 6, [4] * 6], [1.0, 0.0])
    steps = (
        (StepReward(0.2, 2), StepReward(0.8, 4), StepReward(1.0, 6)),
        (StepReward(0.6, 3), StepReward(0.1, 5)),
    )
    ends = ((1, 3, 5), (2, 4))
    rollouts = tuple(
        with_score(rollout, Score(0.5, "partial", steps=given), at)
        for rollout, given, at in zip(base.rollouts, steps, ends, strict=True)
    )
    groups = [Group(base.prompt, rollouts)]
    batch = make_batch(groups, align(groups), preset("grpo_process", kl_coef=0.0), max_tokens=8)
    first = [1.104353, 1.104353, 2.092457, 2.092457, 1.336848, 1.336848]
    second = [-1.104353, -1.104353, -1.104353, -1.278724, -1.278724, 0.0]
    assert batch.advantages[0].tolist() == pytest.approx(first, abs=1e-6)
    assert batch.advantages[1].tolist() == pytest.approx(second, abs=1e-6)


def test_rows_without_steps() -> None:
    """None at all from a scored row is an error; an unscored or an empty one has no advantage."""
    base = make_group("p", [[3] * 2, [4] * 2, [5] * 2], [1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="has no steps"):
        make_batch([base], align([base]), preset("grpo_process", kl_coef=0.0), max_tokens=8)
    a, b, c = base.rollouts
    rollouts = (
        with_score(
            a, Score(1.0, "correct", steps=(StepReward(1.0, 1), StepReward(0.0, 2))), (0, 1)
        ),
        with_score(b, Score(None, "infrastructure_error")),
        with_score(c, Score(0.0, "no_answer", steps=()), ()),
    )
    groups = [Group(base.prompt, rollouts)]
    batch = make_batch(groups, align(groups), preset("grpo_process", kl_coef=0.0), max_tokens=8)
    assert batch.advantages.tolist() == [[0.0, -1.0], [0.0, 0.0], [0.0, 0.0]]
    assert batch.mask.tolist() == [[True, True], [False, False], [True, True]]


def test_partial_scores_count_by_their_value() -> None:
    """Two partial rows of a group tell it apart; equal ones do not, and the filter says so."""
    algorithm = preset("grpo", kl_coef=0.0, filters=["zero_variance_drop"])
    unequal = rescored(
        make_group("p", [[1], [2]], [0.0, 0.0]), [Score(0.25, "partial"), Score(0.75, "partial")]
    )
    equal = rescored(
        make_group("q", [[1], [2]], [0.0, 0.0]), [Score(0.5, "partial"), Score(0.5, "partial")]
    )
    groups = [unequal, equal]
    batch = make_batch(groups, align(groups), algorithm, max_tokens=4)
    assert batch.mask.any(1).tolist() == [True, True, False, False]
    assert batch.metrics["filter/uniform_rows"] == 2


def test_pass_rates_are_kept_by_prompt() -> None:
    """scale_rl's history: this visit is counted after it was judged by the earlier ones."""
    algorithm = preset("scale_rl")
    state = algorithm.init_state()
    groups = [
        make_group("easy", [[1], [2]], [1.0, 1.0]),
        make_group("hard", [[1], [2]], [1.0, 0.0]),
    ]
    first = make_batch(groups, align(groups), algorithm, max_tokens=4, state=state)
    assert first.metrics["filter/solved_rows"] == 0
    assert {name: history.rate for name, history in state.passes.items()} == {
        "easy": 1.0, "hard": 0.5
    }  # fmt: skip
    assert not algorithm.wants("easy", state)
    assert algorithm.wants("hard", state)
    second = make_batch(groups, align(groups), algorithm, max_tokens=4, state=state)
    assert second.metrics["filter/solved_rows"] == 2
    assert state.passes["hard"].visits == 2
