"""Whole runs of several turns: training, evaluation, the record, and a resume bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import RecipeError

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {
        "name": "tic_tac_toe",
        "num_train": 12,
        "num_heldout": 4,
        "max_illegal": 1,
        "turn_rewards": True,
        "max_turns": 2,
    },
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 16, "turn_tokens": 6, "temperature": 1.5},
    "training": {"steps": 3, "prompts_per_step": 4, "learning_rate": 1e-3},
    "evaluation": {"samples": 1, "max_prompts": 4, "every": 0},
    "checkpoints": {"every": 1, "keep": 5},
}


def recipe(**changes: Any) -> dict[str, Any]:
    table = json.loads(json.dumps(BASE))
    sampling = table["sampling"]
    table["environment"]["turn_tokens"] = sampling.pop("turn_tokens")
    for dotted, value in changes.items():
        room, _, name = dotted.partition("__")
        table[room][name] = value
    return table


def compared(run: Any) -> list[tuple[Any, ...]]:
    columns = ("step", "prompt_id", "completion_ids", "reward", "messages", "turn_ends")
    rows = run.rollouts().to_pylist()
    return [tuple(json.dumps(row[name]) for name in columns) for row in rows]


def test_a_run_of_games_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = gw.train(recipe(), output=tmp_path / "whole")
    gw.train(recipe(training__steps=1), output=tmp_path / "parts")
    (tmp_path / "parts" / "recipe.toml").write_text(
        (tmp_path / "whole" / "recipe.toml").read_text()
    )
    parts = gw.train(recipe(), output=tmp_path / "parts", resume=True)
    assert compared(parts) == compared(whole)
    row = max(whole.rollouts().to_pylist(), key=lambda row: len(row["turn_ends"]))
    assert len(row["turn_ends"]) > 1
    assert row["turn_ends"][-1] == len(row["completion_ids"]) == len(row["mask"])
    assert json.loads(row["messages"])[0]["role"] == "assistant"
    assert not all(row["mask"])
    assert len(row["step_rewards"]) == len(row["step_ends"])
    line = whole.metrics().to_pylist()[-1]
    assert line["turns/max"] == BASE["environment"]["max_turns"]
    assert line["plays/illegal_moves"] > 0
    assert line["turns/context_tokens"] > 0
    assert line["tokens"] == sum(sum(row["mask"]) for row in whole.rollouts(steps=2).to_pylist())


def test_process_supervision_reads_rewards_of_turns(tmp_path: Path) -> None:
    table = recipe(algorithm__preset="grpo_process", training__steps=1)
    run = gw.train(table, output=tmp_path / "run")
    assert run.summary["status"] == "finished"
    rows = run.rollouts().to_pylist()
    assert all(row["token_advantages"] is not None for row in rows)
    with pytest.raises(RecipeError, match="step"):
        gw.train(
            recipe(algorithm__preset="grpo_process", environment__turn_rewards=False),
            output=tmp_path / "none",
        )


def test_a_run_with_a_thinking_budget(tmp_path: Path) -> None:
    table = recipe(
        environment__name="arithmetic",
        sampling__thinking_budget=1,
        sampling__group_size=12,
        sampling__thinking_start="7",
        sampling__temperature=2.0,
        training__steps=1,
    )
    for name in ("num_train", "num_heldout", "max_illegal", "turn_rewards"):
        del table["environment"][name]
    run = gw.train(table, output=tmp_path / "run")
    rows = run.rollouts().to_pylist()
    forced = [row for row in rows if "</think>" in (row["messages"] or "")]
    assert forced
    assert all("</think>" not in row["text"] for row in rows)
    assert run.metrics().to_pylist()[0]["turns/forced"] >= len(forced)
    for table, words in (
        ({"sampling__thinking_budget": 16}, "leaves nothing of max_tokens = 16"),
        ({"sampling__thinking_budget": 4, "sampling__thinking_end": "so:"}, "does not close"),
    ):
        with pytest.raises(RecipeError, match=words):
            gw.train(recipe(**table), output=tmp_path / "refused")
