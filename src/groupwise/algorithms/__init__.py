"""Pure tensor maths of every method: parts, presets and the written formula of each."""

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.building import override
from groupwise.algorithms.catalogue import PRESETS, Preset
from groupwise.algorithms.contracts import (
    Filtered,
    KeepRule,
    LossOutput,
    LossTerms,
    MetricSums,
    Needs,
    UpdatePlan,
)
from groupwise.algorithms.curves import Curve, surrogate_curve
from groupwise.algorithms.describe import Description, describe, label
from groupwise.algorithms.parts import PARTS, Part, part
from groupwise.algorithms.presets import algorithm_from_table, preset
from groupwise.algorithms.state import AlgorithmState

__all__ = [
    "PARTS",
    "PRESETS",
    "Algorithm",
    "AlgorithmState",
    "Curve",
    "Description",
    "Filtered",
    "KeepRule",
    "LossOutput",
    "LossTerms",
    "MetricSums",
    "Needs",
    "Part",
    "Preset",
    "UpdatePlan",
    "algorithm_from_table",
    "describe",
    "label",
    "override",
    "part",
    "preset",
    "surrogate_curve",
]
