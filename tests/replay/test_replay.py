"""Replays of a record whose advantages and gradients are known by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.algorithms import preset
from groupwise.errors import RecipeError
from groupwise.records import RunWriter, open_run
from groupwise.replay import replay_update, replay_verdicts
from groupwise.verifiers import load_verifier

RECIPE = '[algorithm]\npreset = "{}"\n[sampling]\nmax_tokens = 4\n'


def row(index: int, text: str, reward: float, ids: int, logprob: float) -> dict[str, object]:
    mask = [True] * ids
    return {
        "step": 0, "version": 0, "kind": "training", "prompt_id": "p", "visit": 0,
        "group_index": index, "prompt": "3+4=", "answer": "7", "prompt_ids": [5],
        "completion_ids": list(range(ids)), "mask": mask, "sampler_logprobs": [logprob] * ids,
        "learner_logprobs": [logprob] * ids, "entropies": [0.5] * ids,
        "loss_weights": [0.25 if reward else -0.25] * ids, "text": text, "finish_reason": "stop",
        "reward": reward, "rewards": {"number": reward},
        "outcome": "correct" if reward else "incorrect", "reason": "", "advantage": None,
    }  # fmt: skip


def record(folder: Path, rows: list[dict[str, object]], algorithm: str = "grpo") -> gw.Run:
    with RunWriter.create(folder, RECIPE.format(algorithm), {}) as writer:
        writer.rollouts(0, rows)
        writer.metrics(0, {"reward": 0.5})
    return open_run(folder)


def four(tmp_path: Path, algorithm: str = "grpo") -> gw.Run:
    rows = [
        row(0, "so 7", 1.0, 1, -1.0),
        row(1, "it is \\boxed{7}", 1.0, 2, -0.5),
        row(2, "8", 0.0, 4, -2.0),
        row(3, "9 or so", 0.0, 1, -1.0),
    ]
    return record(tmp_path / "run", rows, algorithm)


def test_another_verifier_changes_verdicts_and_advantages(tmp_path: Path) -> None:
    """A judge that wants a box: completion 0 loses; 1, 1, -1, -1 become -a, 3a, -a, -a."""
    found = replay_verdicts(four(tmp_path), load_verifier("test_replay:boxed"))
    (change,) = found.changes
    assert (change.group_index, change.before[:2], change.after[0]) == (0, (1.0, "correct"), 0.0)
    assert found.reward == (0.5, 0.25)
    assert found.signal == (1, 1)
    a = 1 / math.sqrt(3)
    assert change.advantage_before == pytest.approx(1.0, abs=1e-4)
    assert change.advantage_after == pytest.approx(-a, abs=1e-4)
    moved = (1 + a) + (3 * a - 1) + 2 * (1 - a)
    assert found.moved == pytest.approx(moved / 4, abs=1e-4)
    assert found.flipped == 1


def test_a_verifier_that_reads_columns_gets_them(tmp_path: Path) -> None:
    rows = [row(0, "b", 0.0, 1, -1.0) | {"columns": '{"target": "b"}', "answer": None}]
    run = record(tmp_path / "columns", rows)
    verifier = load_verifier("test_replay:by_column")
    try:
        (change,) = replay_verdicts(run, verifier).changes
    finally:
        verifier.close()
    assert change.after[0] == 1.0


def boxed(prompts: list[str], completions: list[str], **_: object) -> object:
    return [float("\\boxed{7}" in text) for text in completions]


def by_column(prompts: list[str], completions: list[str], target: list[str], **_: object) -> object:
    return [float(text == wanted) for text, wanted in zip(completions, target, strict=True)]


def test_another_algorithm_of_one_step(tmp_path: Path) -> None:
    """On policy a token's loss weight is weight x advantage: GRPO 1/(4 |o|), DAPO 1/8 tokens."""
    found = replay_update(four(tmp_path), 0, preset("dapo", filters=(), shapers=()))
    assert found.algorithms == ("grpo", "dapo")
    lengths, signs = (1, 2, 4, 1), (1, 1, -1, -1)
    for each, length, sign in zip(found.rows, lengths, signs, strict=True):
        assert each["before"] == pytest.approx([sign / 4 / length] * length, rel=1e-4)
        assert each["after"] == pytest.approx([sign / 8] * length, rel=1e-4)
    grpo = math.sqrt(sum(length * (0.25 / length) ** 2 for length in lengths))
    dapo = math.sqrt(8) / 8
    dot = sum(length * 0.25 / length / 8 for length in lengths)
    assert found.norms == pytest.approx((grpo, dapo), rel=1e-4)
    assert found.cosine == pytest.approx(dot / grpo / dapo, rel=1e-4)
    assert (found.tokens, found.flipped) == (8, 0)
    # 1/4 against 1/8 in the completions of one token, the first of them first
    first, second = found.moved_tokens(2)
    assert (first.group_index, first.position, first.token_id) == (0, 0, 0)
    assert (first.before, first.after) == pytest.approx((0.25, 0.125), rel=1e-4)
    assert second.group_index == 3
    assert len(found.to_dict()["moved_tokens"]) == 8


def test_a_record_that_names_code_imports_nothing(tmp_path: Path) -> None:
    text = '[algorithm]\nname = "mine"\nsurrogate = {kind = "evil_module:loss"}\n'
    with RunWriter.create(tmp_path / "run", text, {}) as writer:
        writer.rollouts(0, [row(0, "7", 1.0, 1, -1.0)])
        writer.metrics(0, {})
    run = open_run(tmp_path / "run")
    with pytest.raises(RecipeError, match="evil_module:loss"):
        replay_verdicts(run, load_verifier("number"))
    assert replay_verdicts(run, load_verifier("number"), algorithm=preset("grpo")).rollouts == 1


@pytest.mark.parametrize(
    ("step", "change", "message"),
    [(3, {}, "step 3 has no rollouts"), (0, {"learner_logprobs": None}, "token_details_every")],
)
def test_what_is_not_recorded_is_said(
    tmp_path: Path, step: int, change: dict[str, object], message: str
) -> None:
    run = record(tmp_path / "run", [row(0, "7", 1.0, 1, -1.0) | change])
    with pytest.raises(RecipeError, match=message):
        replay_update(run, step, preset("dapo"))
