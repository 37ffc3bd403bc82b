"""Pure tensor maths of every method: parts, presets and the written formula of each."""

from groupwise.algorithms.contracts import (
    Filtered,
    GroupCounts,
    KeepRule,
    LossOutput,
    LossTerms,
    MetricSums,
    Needs,
    UpdatePlan,
)

__all__ = [
    "Filtered",
    "GroupCounts",
    "KeepRule",
    "LossOutput",
    "LossTerms",
    "MetricSums",
    "Needs",
    "UpdatePlan",
]
