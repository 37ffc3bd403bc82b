"""Whole runs with a critic, with step rewards, and with a history of pass rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.records import find_metric
from groupwise.training.preparing import prepare
from groupwise.training.session import open_session
from run_helpers import StopAfter

RECIPES = Path(__file__).parents[2] / "recipes"
BASE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "ppo"},
    "sampling": {"group_size": 2, "max_tokens": 4},
    "training": {"prompts_per_step": 8, "steps": 4, "learning_rate": 1e-3, "passes": 2},
    "evaluation": {"samples": 1, "max_prompts": 4},
    "checkpoints": {"every": 2, "keep": 5},
}
TARGET: dict[str, Any] = {**BASE, "environment": {"name": "target_token", "audit": False}}


def same(one: Path, other: Path, step: int) -> None:
    """Equal checkpoints, tensor by tensor, and equal lines but for the clock."""
    for file in ("model", "optimizer", "extra"):
        path = Path("checkpoints") / f"step_{step:06d}" / f"{file}.safetensors"
        left, right = load_file(one / path), load_file(other / path)
        assert set(left) == set(right)
        for name, tensor in left.items():
            assert torch.equal(tensor, right[name]), name
    lines = (gw.open_run(folder).metrics().to_pylist() for folder in (one, other))
    for mine, theirs in zip(*lines, strict=True):
        for name, value in theirs.items():
            if not find_metric(name).measured:
                assert mine[name] == value, name


@pytest.mark.parametrize("critic", ["separate", "shared"])
def test_a_resumed_ppo_run_equals_the_unbroken_one(tmp_path: Path, critic: str) -> None:
    """The critic's weights and moments too: step 3 is made from the checkpoint after 2."""
    changes = {"training.critic": critic}
    whole = gw.train(BASE, changes, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(BASE, changes, output=tmp_path / "broken", callbacks=[StopAfter(2)])
    gw.train(BASE, changes, output=tmp_path / "broken", resume=True)
    same(whole.folder, tmp_path / "broken", 4)
    extra = load_file(tmp_path / "broken" / "checkpoints" / "step_000004" / "extra.safetensors")
    assert "critic.weights.head.linear.weight" in extra
    assert any(name.startswith("critic.optimizer.") for name in extra)
    line = whole.metrics().to_pylist()[-1]
    assert line["value/error"] > 0
    assert line["value/loss"] > 0
    assert line["kl"] > 0
    assert line["ratio/max"] > 1


def test_a_run_that_retires_prompts_resumes_exactly(tmp_path: Path) -> None:
    """scale_rl: what it has passed is in the checkpoint, and decides what is sampled next."""
    filters = ["zero_variance_drop", {"kind": "pass_rate", "below": 0.4}]
    changes = {
        "algorithm": {"preset": "scale_rl", "filters": filters},
        "training.steps": 6,
        "training.prompts_per_step": 24,
        "training.passes": 1,
    }
    whole = gw.train(BASE, changes, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(BASE, changes, output=tmp_path / "broken", callbacks=[StopAfter(4)])
    gw.train(BASE, changes, output=tmp_path / "broken", resume=True)
    same(whole.folder, tmp_path / "broken", 6)
    table = whole.rollouts().to_pandas()
    passed = table[table["step"] < 2].groupby("prompt_id")["reward"].mean()
    retired = set(passed[passed >= 0.4].index)
    assert retired
    assert not retired & set(table[table["step"] == 3]["prompt_id"])


def test_prompts_are_passed_over_and_never_run_out() -> None:
    recipe = load_recipe(BASE, {"algorithm": {"preset": "scale_rl"}, "sampling.group_size": 4})
    session = open_session(prepare(recipe))
    picker, cursor = session.collector.picker, session.environment.cursor(recipe.seed)
    order = [cursor.at(index)[1] for index in range(len(cursor))]

    def wanted(prompt_id: str) -> bool:
        return recipe.algorithm.wants(prompt_id, session.state)

    for prompt_id in order[:5]:
        session.state.passes_of(prompt_id).count = 4
        session.state.passes_of(prompt_id).passed = 4.0
    assert picker.take(8, 0, wanted) == [(each, 0) for each in order[5:13]]
    assert picker.index == {"all": 13}
    for prompt_id in order:
        session.state.passes_of(prompt_id).count = 4
        session.state.passes_of(prompt_id).passed = 4.0
    assert len(picker.take(8, 1, wanted)) == 8
    session.close()


def test_process_supervision_needs_step_rewards(tmp_path: Path) -> None:
    changes = {"algorithm": {"preset": "grpo_process"}}
    with pytest.raises(RecipeError, match="step rewards"):
        gw.train(BASE, changes, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = gw.train(TARGET, {**changes, "training.steps": 1}, output=tmp_path / "run")
    table = run.rollouts().to_pandas()
    for _, row in table.iterrows():
        assert len(row["step_rewards"]) == len(row["step_ends"]) == len(row["text"])
        assert len(row["token_advantages"]) == len(row["completion_ids"])


def test_a_critic_that_nothing_trains_is_refused() -> None:
    with pytest.raises(RecipeError, match="value_loss"):
        load_recipe(BASE, {"algorithm": {"preset": "ppo", "extras": []}})


def test_one_completion_a_prompt_is_enough_for_a_critic(tmp_path: Path) -> None:
    run = gw.train(TARGET, {"sampling.group_size": 1, "training.steps": 1}, output=tmp_path / "run")
    assert run.summary["status"] == "finished"


@pytest.mark.parametrize("name", ["ppo", "process", pytest.param("rloo", marks=pytest.mark.slow)])
def test_the_target_token_recipes_learn(tmp_path: Path, name: str) -> None:
    """Each shipped recipe, small: the reward of the last 3 steps is well above the first 3's."""
    run = gw.train(RECIPES / f"target_token_{name}.toml", output=tmp_path / "run", small=True)
    rewards = [line["reward"] for line in run.metrics().to_pylist()]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2
