"""groupwise: critic-free reinforcement learning for language models.

The stable public surface. Every name loads its room on first use, so `import groupwise` is cheap.

    import groupwise as gw

    run = gw.train("recipes/tiny_arithmetic.toml", overrides={"training.steps": 25})
    run.metrics().to_pandas()[["step", "reward", "kl"]]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

# OpenMP reads these when PyTorch loads. Its idle threads would spin for milliseconds, which costs
# several times the processor time as soon as the machine does anything else: let them sleep, after
# the few microseconds between two operations.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from groupwise.algorithms import Algorithm as Algorithm
    from groupwise.algorithms import preset as preset
    from groupwise.environments import Environment as Environment
    from groupwise.environments import load_environment as load_environment
    from groupwise.errors import GroupwiseError as GroupwiseError
    from groupwise.errors import RecipeError as RecipeError
    from groupwise.evaluation import pass_at_k as pass_at_k
    from groupwise.policies import Policy as Policy
    from groupwise.policies import load_policy as load_policy
    from groupwise.policies import score as score
    from groupwise.proving.check import verify_resume as verify_resume
    from groupwise.records import Run as Run
    from groupwise.records import open_run as open_run
    from groupwise.samplers import sample as sample
    from groupwise.sandbox import CodeResult as CodeResult
    from groupwise.sandbox import run_code as run_code
    from groupwise.stages.runner import train as train
    from groupwise.training.callbacks import Callback as Callback
    from groupwise.types import Batch as Batch
    from groupwise.types import Completion as Completion
    from groupwise.types import Group as Group
    from groupwise.types import Prompt as Prompt
    from groupwise.types import Rollout as Rollout
    from groupwise.types import Score as Score
    from groupwise.verifiers import verify as verify

__version__ = "0.1.0"

__getattr__, __all__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
