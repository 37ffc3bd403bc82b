"""Batch -> loss -> backward -> optimiser update -> metrics.

`learner.py` runs a step's updates, `critic.py` the comparator's critic beside them.
"""

from groupwise.learner.critic import CriticLearner as CriticLearner
from groupwise.learner.details import TokenDetails as TokenDetails
from groupwise.learner.faults import PassFaults as PassFaults
from groupwise.learner.learner import FixedLogprobs as FixedLogprobs
from groupwise.learner.learner import Learner as Learner
from groupwise.learner.memory import peak_memory_bytes as peak_memory_bytes
from groupwise.learner.memory import resident_memory_bytes as resident_memory_bytes
from groupwise.learner.optimizers import clipped_norm as clipped_norm
from groupwise.learner.optimizers import make_optimizer as make_optimizer
from groupwise.learner.optimizers import step_optimizer as step_optimizer
from groupwise.learner.report import StepReport as StepReport
from groupwise.learner.settings import OptimizerSettings as OptimizerSettings
from groupwise.learner.settings import TrainingSettings as TrainingSettings
from groupwise.learner.settings import learning_rate_at as learning_rate_at
