"""Memory, tokens and counts before the run. No torch: a plan is arithmetic on a configuration."""

from groupwise.planning.compare import SEVEN_BILLION, Comparison
from groupwise.planning.memory import (
    Fit,
    MemoryInputs,
    MemoryPlan,
    fit_learning,
    training_bytes,
)
from groupwise.planning.run_plan import (
    PassWork,
    Plan,
    PlanInputs,
    no_signal_share,
    pass_work,
    plan,
    refill_factor,
)
from groupwise.planning.shape import SMOLLM2_135M, ModelShape, shape_from_config

__all__ = [
    "SEVEN_BILLION",
    "Comparison",
    "SMOLLM2_135M",
    "Fit",
    "MemoryInputs",
    "MemoryPlan",
    "ModelShape",
    "PassWork",
    "Plan",
    "PlanInputs",
    "fit_learning",
    "no_signal_share",
    "pass_work",
    "plan",
    "refill_factor",
    "shape_from_config",
    "training_bytes",
]
