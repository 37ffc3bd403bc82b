"""groupwise: critic-free reinforcement learning for language models.

The stable public surface. Every name loads its room on first use, so `import groupwise` is cheap.

    import groupwise as gw

    run = gw.train("recipes/tiny_arithmetic.toml", overrides={"training.steps": 25})
    run.metrics().to_pandas()[["step", "reward", "kl"]]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# OpenMP reads these when PyTorch loads. Its idle threads would spin for milliseconds, which costs
# several times the processor time as soon as the machine does anything else: let them sleep, after
# the few microseconds between two operations.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from groupwise.algorithms import Algorithm, preset
    from groupwise.environments import Environment, load_environment
    from groupwise.errors import GroupwiseError, RecipeError
    from groupwise.evaluation import pass_at_k
    from groupwise.policies import Policy, load_policy, score
    from groupwise.records import Run, open_run
    from groupwise.samplers import sample
    from groupwise.sandbox import CodeResult, run_code
    from groupwise.training.callbacks import Callback
    from groupwise.training.start import train
    from groupwise.types import Batch, Completion, Group, Prompt, Rollout, Score
    from groupwise.verifiers import verify

__version__ = "0.1.0"

_HOMES = {
    "Algorithm": "algorithms",
    "preset": "algorithms",
    "Environment": "environments",
    "load_environment": "environments",
    "GroupwiseError": "errors",
    "RecipeError": "errors",
    "pass_at_k": "evaluation",
    "Policy": "policies",
    "load_policy": "policies",
    "score": "policies",
    "Run": "records",
    "open_run": "records",
    "sample": "samplers",
    "CodeResult": "sandbox",
    "run_code": "sandbox",
    "Callback": "training.callbacks",
    "train": "training.start",
    "Batch": "types",
    "Completion": "types",
    "Group": "types",
    "Prompt": "types",
    "Rollout": "types",
    "Score": "types",
    "verify": "verifiers",
}

__all__ = [
    "Algorithm",
    "Batch",
    "Callback",
    "CodeResult",
    "Completion",
    "Environment",
    "Group",
    "GroupwiseError",
    "Policy",
    "Prompt",
    "RecipeError",
    "Rollout",
    "Run",
    "Score",
    "load_environment",
    "load_policy",
    "open_run",
    "pass_at_k",
    "preset",
    "run_code",
    "sample",
    "score",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"groupwise.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
