"""Pure tensor maths of every method: parts, presets and the written formula of each."""

from groupwise.algorithms.algorithm import Algorithm
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
from groupwise.algorithms.describe import Description, describe
from groupwise.algorithms.groups import group_counts
from groupwise.algorithms.presets import PRESETS, Preset, algorithm_from_table, preset
from groupwise.algorithms.state import AlgorithmState

__all__ = [
    "PRESETS",
    "Algorithm",
    "AlgorithmState",
    "Description",
    "Filtered",
    "GroupCounts",
    "KeepRule",
    "LossOutput",
    "LossTerms",
    "MetricSums",
    "Needs",
    "Preset",
    "UpdatePlan",
    "algorithm_from_table",
    "describe",
    "group_counts",
    "preset",
]
