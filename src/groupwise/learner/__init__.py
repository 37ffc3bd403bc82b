"""Batch -> loss -> backward -> optimiser update -> metrics.

`learner.py` runs a step's updates, `critic.py` the comparator's critic beside them.
"""

from groupwise.learner.critic import CriticLearner
from groupwise.learner.learner import FixedLogprobs, Learner, StepReport, peak_memory_bytes
from groupwise.learner.optimizers import make_optimizer
from groupwise.learner.settings import TrainingSettings, learning_rate_at

__all__ = [
    "CriticLearner",
    "FixedLogprobs",
    "Learner",
    "StepReport",
    "TrainingSettings",
    "learning_rate_at",
    "make_optimizer",
    "peak_memory_bytes",
]
