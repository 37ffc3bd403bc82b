"""A small run whose texts attack the page that shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.records import RunWriter

EVIL = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202eabc\x1b[31m"
)


MESSAGES = [
    {"role": "user", "content": "3+4="},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]},
    {"role": "tool", "content": EVIL},
]


def row(step: int, index: int, prompt: str, **more: Any) -> dict[str, Any]:
    good = index == 0
    return {
        "step": step, "version": step, "kind": "training", "prompt_id": prompt, "visit": 0,
        "group_index": index, "prompt": '[{"role": "user", "content": "3+4="}]', "answer": "7",
        "prompt_ids": [5], "completion_ids": [7, 8 + index, 2], "mask": [True] * 3,
        "sampler_logprobs": [-1.0] * 3, "learner_logprobs": [-1.0, -0.5, -1.0],
        "entropies": [0.5] * 3, "loss_weights": [0.25 if good else -0.25] * 3,
        "text": "7" if good else EVIL, "finish_reason": "stop", "reward": float(good),
        "rewards": {"number": float(good)}, "outcome": "correct" if good else "incorrect",
        "messages": json.dumps(MESSAGES) if prompt == "p0" else None, "reason": EVIL,
        "advantage": 1.0 if good else -1.0, **more,
    }  # fmt: skip


def write_run(folder: Path, seed: int = 0, differs_from: int = 99) -> Path:
    """12 steps of 10 groups of 2, the second of each wrong; prompt p0 recurs in every step.

    From step `differs_from` on the first completion of every group has another id.
    """

    def others(step: int, index: int) -> dict[str, Any]:
        return {"completion_ids": [9, 8, 2]} if step >= differs_from and index == 0 else {}

    recipe = f'seed = {seed}\n[model]\nname = "elsewhere"\n[algorithm]\npreset = "grpo"\n'
    with RunWriter.create(folder, recipe, {}) as writer:
        for version, value in ((0, 0.2), (12, 0.8)):
            name = "eval/heldout"
            writer.evaluation(
                version, {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.1}
            )
        writer.event("planned", memory=4e9, resident=1e9, peak=1e9, step_seconds=8.0, tokens=80)
        for step in range(12):
            rows = [
                row(step, index, "p0" if n == 0 else f"p{step}-{n}", **others(step, index))
                for n in range(10)
                for index in range(2)
            ]
            writer.rollouts(step, rows)
            writer.metrics(
                step,
                {"reward": 0.5, "completions/count": 20, "unscored": 0, "groups/no_signal": 0.0,
                 "seconds/rollout": 3.0, "seconds/learn": 1.0, "seconds/step": 4.0,
                 "memory/peak_bytes": 3_000_000_000, "tokens": 60 + step},
            )  # fmt: skip
    return folder
