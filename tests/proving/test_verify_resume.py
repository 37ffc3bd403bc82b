"""Certificates of exact resume on tiny recipes, and a planted fault that one must find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import groupwise as gw
from groupwise.cli.app import run as command
from groupwise.instants import INSTANTS
from groupwise.proving import ResumeCheck, verify_resume
from groupwise.stages import KINDS
from pipeline_helpers import pipeline, sum_rows, write_rows

BASE: dict[str, Any] = {
    "seed": 2,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 22, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 2, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 2},
}
ALWAYS = {"sampling", "scoring", "micro-batch", "optimiser", "file", "record", "evaluation", "save"}
ALWAYS |= {"saved"}
DYNAMIC = {"kind": "dynamic_sampling", "max_batches": 6, "oversample": 2.0, "surplus": "carry"}
LEVELS = {"column": "num_operations", "levels": [1, 2], "promote_at": 0.01, "window": 8}


def proved(recipe: Any, *reached: str, **arguments: Any) -> ResumeCheck:
    found = verify_resume(recipe, **arguments)
    assert found.first_difference is None
    assert found.equal
    assert found.bits_differing == 0
    assert set(found.instants) >= {*reached} | ALWAYS, found.not_reached
    assert found.kills == sum(found.instants.values())
    return found


@pytest.mark.slow
def test_a_tiny_run_is_equal_in_its_second_epoch_too() -> None:
    found = proved(BASE, "epoch", "second epoch", "random", kills=1, seed=3)
    assert found.instants == dict.fromkeys(found.instants, 1)
    assert found.kills == len(ALWAYS) + 3
    assert set(found.not_reached) == {"tool call", "model", "between stages"}
    assert set(found.not_reached) < set(INSTANTS)
    assert found.text().splitlines()[0] == "exact resume of recipe: equal"


FORGETFUL = """
import random

seen = 0

def forgetful(completions, answer, **kwargs):
    global seen
    seen += 1
    return [len(str(each)) + seen / 1000 for each in completions]

def noisy(completions, answer, **kwargs):
    return [len(str(each)) + random.random() for each in completions]
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forgetful", "noisy"])
def test_state_outside_the_checkpoint_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rewards.py").write_text(FORGETFUL)
    monkeypatch.chdir(tmp_path)
    verifiers = [{"name": f"rewards:{name}"}]
    recipe = {**BASE, "environment": {**BASE["environment"], "verifiers": verifiers}}
    Path("recipe.toml").write_text(tomli_w.dumps(recipe))
    assert command(["verify-resume", "recipe.toml", "--kills", "0", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["equal"]
    assert found["kills"] == sum(found["instants"].values())
    assert "rewards (reward)" in found["first_difference"]


RECIPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "tools": ("tool_calculator", {}),
    "an agent": ("agent", {}),
    "LoRA": ("tiny_arithmetic_lora", {}),
    "PPO": ("target_token_ppo", {}),
    "dynamic sampling": (
        {**BASE, "algorithm": {"preset": "dapo", "filters": [DYNAMIC]}},
        {"training.prompts_per_step": 8},
    ),
    "replay": (
        {**BASE, "algorithm": {"preset": "grpo", "correction": "truncate"}},
        {"selection.replay": {"per_step": 2, "at_most": 0.4, "max_staleness": 3}},
    ),
    "weighted order and group sizes": (
        BASE,
        {"selection.order": "weighted", "selection.sizes": {"low": 3, "high": 8}},
    ),
    "curriculum": (
        {
            **BASE,
            "environment": {
                "name": "arithmetic",
                "operations": ["add"],
                "min_operand": 1,
                "max_operand": 4,
                "max_value": 12,
                "num_operations": [1, 2],
                "phrasing": "bare",
                "num_train": 40,
                "num_heldout": 8,
                "audit": False,
            },
            "selection": {"curriculum": LEVELS},
        },
        {"training.prompts_per_step": 8},
    ),
    "cumulative statistics": ({**BASE, "algorithm": {"preset": "dcpo"}}, {}),
    "bfloat16": ({**BASE, "model": {"name": "tiny", "dtype": "bfloat16"}}, {}),
    "skipped updates and small micro-batches": (
        BASE,
        {"training.skip_nonfinite": 2, "training.micro_batch_tokens": 60, "training.passes": 2},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RECIPES))
def test_recipes_resume_exactly(name: str) -> None:
    recipe, overrides = RECIPES[name]
    reached = ["tool call"] if name == "tools" else []
    proved(recipe, *reached, overrides=overrides, small=isinstance(recipe, str), kills=4)


@pytest.mark.slow
def test_a_pipeline_of_every_kind_resumes_exactly(tmp_path: Path) -> None:
    """A new kind of stage joins this pipeline."""
    data = write_rows(tmp_path / "sums.jsonl", sum_rows())
    fit = {"steps": 3, "examples_per_step": 8, "learning_rate": 1e-3}
    rl = {"steps": 2, "prompts_per_step": 6, "learning_rate": 1e-3}
    traces = {"kind": "distillation", "teacher": {"name": "tiny"}, "prompts": 12, "training": fit}
    on_policy = {
        "kind": "distillation",
        "mode": "on_policy",
        "algorithm": {"preset": "on_policy_distillation"},
        "teacher": {"stage": "rl"},
        "training": rl,
    }
    pairs = {"stage": "kept", "pairing": {"per_prompt": 2}}
    stages: list[dict[str, Any]] = [
        {"kind": "supervised", "data": {"path": str(data)}, "training": fit, "heldout_share": 0.2},
        {"kind": "rl", "training": rl},
        {"kind": "rejection", "name": "kept", "prompts": 12},
        {"kind": "supervised", "name": "again", "data": {"stage": "kept", "chat": False},
         "training": fit},
        {"kind": "preference", "data": pairs, "training": fit},
        {"kind": "reward_model", "data": pairs, "training": fit},
        {"name": "student", "from": "base", **traces},
        {"name": "on_policy", "from": "base", **on_policy},
        {"kind": "merge", "models": [{"stage": "again", "weight": 1.0}]},
        {"kind": "constitution", "prompts": 8, "principles": [
            {"text": "short", "critique": "1?", "revision": "2?"}]},
        {"kind": "process", "rollouts": {"completions": 2}, "separator": "", "prompts": 8,
         "training": fit},
        {"kind": "evaluate"},
        {"kind": "export", "from": "merge"},
    ]  # fmt: skip
    missing = KINDS.keys() - {each["kind"] for each in stages}
    found = proved(pipeline(data, *stages), "model", "between stages", "inside a stage", kills=6)
    assert found.instants["inside a stage"] == len(stages)
    assert not missing, f"add stages of the kinds {missing} to this pipeline"


def test_the_function_is_public() -> None:
    assert gw.verify_resume is verify_resume
