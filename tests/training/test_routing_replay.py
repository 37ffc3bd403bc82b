"""`sampling.routing_replay` in whole runs of a small mixture of experts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import load_policy, save_pretrained
from groupwise.recipe import load_recipe
from groupwise.samplers import make_sampler
from groupwise.selection.replay import from_plain, to_plain
from groupwise.training.preparing import prepare
from groupwise.types import Group, Prompt, Request, Rollout, Score, Turn
from run_helpers import Keep, StopAfter

LAYERS, CHOSEN = 3, 2
RECIPE: dict[str, Any] = {
    "seed": 3,
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "dr_grpo"},
    "sampling": {"group_size": 4, "max_tokens": 6, "routing_replay": True},
    "training": {"prompts_per_step": 8, "steps": 2, "passes": 2, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random mixture of experts that speaks the tiny model's ids."""
    tiny: Any = load_policy("tiny", device="cpu")
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=tiny.model.config.vocab_size,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=16,
        num_experts_per_tok=CHOSEN,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tiny.model.config.eos_token_id,
        pad_token_id=tiny.model.config.pad_token_id,
    )
    folder = tmp_path_factory.mktemp("mixture") / "model"
    save_pretrained(replace(tiny, model=Qwen3MoeForCausalLM(config)), folder)
    return str(folder)


@pytest.mark.slow
def test_a_run_replays_records_and_resumes(mixture: str, tmp_path: Path) -> None:
    recipe = {**RECIPE, "model": {"name": mixture, "dtype": "bfloat16"}}
    keep = Keep()
    run = gw.train(recipe, output=tmp_path / "whole", callbacks=[keep])
    plain = gw.train(
        recipe, {"sampling.routing_replay": False, "training.steps": 1}, output=tmp_path / "plain"
    )
    gaps = [each.metrics().to_pylist()[0]["sampler_gap/mean"] for each in (run, plain)]
    assert gaps[0] < 0.8 * gaps[1]
    for row in run.rollouts().to_pylist():
        notes = row["experts"]
        assert len(notes) == len(row["prompt_ids"]) + len(row["completion_ids"]) - 1
        assert {len(note) for note in notes} == {LAYERS * CHOSEN}
        assert {expert for note in notes for expert in note} <= set(range(16))
    assert {row["experts"] is None for row in plain.rollouts().to_pylist()} == {True}
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=tmp_path / "broken", callbacks=[StopAfter(1)])
    again = gw.train(recipe, output=tmp_path / "broken", resume=True)
    assert again.rollouts(steps=[1]).column("experts") == run.rollouts(steps=[1]).column("experts")


def test_rollouts_that_wait_in_a_checkpoint_keep_their_experts(mixture: str) -> None:
    policy = load_policy(mixture, device="cpu")
    request = Request((3, 4), key=0, max_tokens=3, experts=True)
    (completion,) = make_sampler("local", policy).sample([request])
    prompt = Prompt("p", text="x")
    rollout = Rollout(prompt, (Turn((3, 4), completion),), Score(1.0, "correct"), 0, 0, 0)
    group = Group(prompt, (rollout,))
    assert rollout.experts is not None
    assert from_plain(to_plain(group), lambda _: prompt) == group


def test_a_model_without_experts_is_refused_before_its_weights_load() -> None:
    recipe = load_recipe({**RECIPE, "model": {"name": "tiny"}})
    with pytest.raises(RecipeError, match=r"model\.name = 'tiny' has no experts that a router"):
        prepare(recipe)
