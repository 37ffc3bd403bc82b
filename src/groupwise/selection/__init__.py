"""Which prompts are sampled and which rollouts get a gradient: `[selection]`, and what it does.

`PromptPicker` chooses prompts, `group_sizes` their groups' sizes, `down_sample` what of a group is
learned from, `ReplayBuffer` what is learned from again. No torch.
"""

from groupwise.selection.history import History as History
from groupwise.selection.prompts import PromptPicker as PromptPicker
from groupwise.selection.prompts import curriculum_of as curriculum_of
from groupwise.selection.replay import ReplayBuffer as ReplayBuffer
from groupwise.selection.replay import from_plain as from_plain
from groupwise.selection.replay import to_plain as to_plain
from groupwise.selection.settings import CurriculumSettings as CurriculumSettings
from groupwise.selection.settings import ReplaySettings as ReplaySettings
from groupwise.selection.settings import SelectionSettings as SelectionSettings
from groupwise.selection.settings import max_tokens_at as max_tokens_at
from groupwise.selection.sizes import down_sample as down_sample
from groupwise.selection.sizes import group_sizes as group_sizes
from groupwise.selection.sizes import largest_variance as largest_variance
from groupwise.selection.sizes import signal_chance as signal_chance
