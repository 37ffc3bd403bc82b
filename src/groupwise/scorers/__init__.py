"""Verifiers that are models in this process: reward models, process reward models, local judges.

Found by name through the entry point group `groupwise.verifiers`. A model loads when it first
scores. Judges behind an endpoint: `verifiers/judge/judge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import attributes_from

if TYPE_CHECKING:
    from groupwise.scorers.classifiers import ProcessRewardModel, RewardModel
    from groupwise.scorers.local_judge import LocalJudge

_HOMES = {
    "LocalJudge": "groupwise.scorers.local_judge",
    "ProcessRewardModel": "groupwise.scorers.classifiers",
    "RewardModel": "groupwise.scorers.classifiers",
}

__all__ = ["LocalJudge", "ProcessRewardModel", "RewardModel"]


__getattr__ = attributes_from(__name__, _HOMES)
