"""Verifiers that are models in this process: reward models, process reward models, local judges.

Teachers of a student are here too: `teacher.py`.
Found by name through the entry point group `groupwise.verifiers`. A model loads when it first
scores. Judges behind an endpoint: `verifiers/judge/judge.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.scorers.classifiers import ProcessRewardModel as ProcessRewardModel
    from groupwise.scorers.classifiers import RewardModel as RewardModel
    from groupwise.scorers.classifiers import check_classifiers as check_classifiers
    from groupwise.scorers.local_judge import LocalJudge as LocalJudge
    from groupwise.scorers.teacher import Teachers as Teachers
    from groupwise.scorers.teacher import check_teachers as check_teachers
    from groupwise.scorers.teacher_settings import SELF as SELF
    from groupwise.scorers.teacher_settings import TeacherSettings as TeacherSettings

__getattr__, __all__ = lazy_names(__name__, __file__)
