"""Evaluation: accuracy sampled and greedy, held-out gap, guard sets, pass@k, maj@k, intervals.

The estimates need nothing heavy; the rest loads on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.evaluation.estimates import answer_entropy as answer_entropy
    from groupwise.evaluation.estimates import distinct_n as distinct_n
    from groupwise.evaluation.estimates import maj_at_k as maj_at_k
    from groupwise.evaluation.estimates import mean_interval as mean_interval
    from groupwise.evaluation.estimates import no_signal_share as no_signal_share
    from groupwise.evaluation.estimates import pass_at_k as pass_at_k
    from groupwise.evaluation.measure import EvaluationSets as EvaluationSets
    from groupwise.evaluation.measure import evaluate as evaluate
    from groupwise.evaluation.measure import evaluation_sets as evaluation_sets
    from groupwise.evaluation.prospects import Prospects as Prospects
    from groupwise.evaluation.prospects import prospects_of as prospects_of
    from groupwise.evaluation.result import EvaluationResult as EvaluationResult
    from groupwise.evaluation.result import SetResult as SetResult
    from groupwise.evaluation.result import diversity as diversity
    from groupwise.evaluation.result import summarise as summarise
    from groupwise.evaluation.strict import gap_alarm as gap_alarm
    from groupwise.intervals import wilson_interval as wilson_interval
    from groupwise.records.settings import EvaluationSettings as EvaluationSettings

__getattr__, __all__ = lazy_names(__name__, __file__)
