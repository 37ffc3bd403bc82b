"""A small pipeline of the tiny policy that several test files use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.policies.tiny import sums


def sum_rows(shift: int = 0) -> list[dict[str, str]]:
    """The 55 sums with their answers, or with the answers of the sum `shift` places on."""
    pairs = sums()
    answers = [a + b for a, b in pairs]
    return [
        {"prompt": f"{a}+{b}=", "completion": str(answers[(place + shift) % len(pairs)])}
        for place, (a, b) in enumerate(pairs)
    ]


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def pipeline(data: Path, *stages: dict[str, Any], **top: Any) -> dict[str, Any]:
    """A recipe with these stages, or with a supervised, an rl and a merge stage."""
    supervised = {
        "name": "sft",
        "kind": "supervised",
        "data": {"path": str(data)},
        "heldout_share": 0.2,
        "training": {
            "learning_rate": 1e-3,
            "steps": 6,
            "examples_per_step": 8,
            "evaluate_every": 2,
            "patience": 2,
        },
        "checkpoints": {"every": 2},
    }
    rl = {
        "name": "rl",
        "kind": "rl",
        "training": {"steps": 3, "prompts_per_step": 6, "learning_rate": 1e-3},
        "checkpoints": {"every": 1},
    }
    merge = {"name": "mean", "kind": "merge", "models": [{"stage": "sft", "weight": 3.0}]}
    return {
        "seed": 5,
        "model": {"name": "tiny", "device": "cpu"},
        "environment": {"name": "arithmetic", "level": "table", "audit": False},
        "algorithm": {"preset": "grpo"},
        "sampling": {"group_size": 4, "max_tokens": 4},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 8},
        "stages": list(stages) or [supervised, rl, merge],
        **top,
    }
