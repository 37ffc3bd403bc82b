"""Every kind of stage by name. A new kind is a `Stage` in its own module and one entry here."""

from __future__ import annotations

from groupwise.stages.constitution import Constitution
from groupwise.stages.distillation import Distillation
from groupwise.stages.evaluation import Evaluate
from groupwise.stages.models import Export, Merge
from groupwise.stages.preference import Preference
from groupwise.stages.process import Process
from groupwise.stages.reinforcement import Reinforcement
from groupwise.stages.rejection import Rejection
from groupwise.stages.reward_model import RewardModelling
from groupwise.stages.stage import Stage
from groupwise.stages.supervised import Supervised

KINDS: dict[str, type[Stage]] = {
    each.kind: each
    for each in (
        Supervised,
        Reinforcement,
        Rejection,
        Distillation,
        Preference,
        RewardModelling,
        Process,
        Constitution,
        Merge,
        Evaluate,
        Export,
    )
}
