"""The run that faults happen to."""

from __future__ import annotations

from typing import Any

RECIPE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 12, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 1, "keep": 3},
}
