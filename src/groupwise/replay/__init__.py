"""A record played again: other verdicts on its rollouts, another algorithm on one of its steps.

Nothing that the run's own recipe names as `module:function` is imported here.
"""

from groupwise.replay.updates import UpdateReplay as UpdateReplay
from groupwise.replay.updates import replay_update as replay_update
from groupwise.replay.verdicts import VerdictReplay as VerdictReplay
from groupwise.replay.verdicts import replay_verdicts as replay_verdicts
