"""Which prompts are sampled and which rollouts get a gradient: `[selection]`, and what it does.

`PromptPicker` chooses prompts, `group_sizes` their groups' sizes, `down_sample` what of a group is
learned from, `ReplayBuffer` what is learned from again. No torch.
"""

from groupwise.selection.curriculum import Curriculum
from groupwise.selection.history import History
from groupwise.selection.prompts import PromptPicker, curriculum_of, signal_weight
from groupwise.selection.replay import ReplayBuffer
from groupwise.selection.settings import (
    CurriculumSettings,
    LengthSettings,
    PoolSettings,
    ReplaySettings,
    SelectionSettings,
    SizeSettings,
    max_tokens_at,
)
from groupwise.selection.sizes import group_sizes, signal_chance
from groupwise.selection.stored import group_from_plain, group_to_plain
from groupwise.selection.subset import down_sample, largest_variance

__all__ = [
    "Curriculum",
    "CurriculumSettings",
    "History",
    "LengthSettings",
    "PoolSettings",
    "PromptPicker",
    "ReplayBuffer",
    "ReplaySettings",
    "SelectionSettings",
    "SizeSettings",
    "curriculum_of",
    "down_sample",
    "group_from_plain",
    "group_sizes",
    "group_to_plain",
    "largest_variance",
    "max_tokens_at",
    "signal_chance",
    "signal_weight",
]
