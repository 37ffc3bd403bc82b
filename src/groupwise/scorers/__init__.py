"""Verifiers that are models in this process: reward models, process reward models, local judges.

Found by name through the entry point group `groupwise.verifiers`, as those of any other package
are. A model loads when it first scores. Left out: judges behind an endpoint (`verifiers/judge.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.scorers.classifiers import ProcessRewardModel, RewardModel
    from groupwise.scorers.local_judge import LocalJudge

_HOMES = {
    "LocalJudge": "groupwise.scorers.local_judge",
    "ProcessRewardModel": "groupwise.scorers.classifiers",
    "RewardModel": "groupwise.scorers.classifiers",
}

__all__ = ["LocalJudge", "ProcessRewardModel", "RewardModel"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
