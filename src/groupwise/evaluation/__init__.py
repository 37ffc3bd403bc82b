"""Evaluation: accuracy sampled and greedy, held-out gap, guard sets, pass@k, maj@k, intervals.

The estimates need nothing heavy; the rest loads on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.evaluation.estimates import (
    maj_at_k,
    mean_interval,
    pass_at_k,
)
from groupwise.intervals import wilson_interval
from groupwise.lazy import attributes_from

if TYPE_CHECKING:
    from groupwise.evaluation.measure import EvaluationSets, evaluate, evaluation_sets
    from groupwise.evaluation.result import EvaluationResult, SetResult, summarise
    from groupwise.evaluation.strict import gap_alarm
    from groupwise.records.settings import EvaluationSettings

_HOMES = {
    "EvaluationResult": "groupwise.evaluation.result",
    "EvaluationSets": "groupwise.evaluation.measure",
    "EvaluationSettings": "groupwise.records.settings",
    "SetResult": "groupwise.evaluation.result",
    "evaluate": "groupwise.evaluation.measure",
    "evaluation_sets": "groupwise.evaluation.measure",
    "gap_alarm": "groupwise.evaluation.strict",
    "summarise": "groupwise.evaluation.result",
}

__all__ = [
    "EvaluationResult",
    "EvaluationSets",
    "EvaluationSettings",
    "SetResult",
    "evaluate",
    "evaluation_sets",
    "gap_alarm",
    "maj_at_k",
    "mean_interval",
    "pass_at_k",
    "summarise",
    "wilson_interval",
]


__getattr__ = attributes_from(__name__, _HOMES)
