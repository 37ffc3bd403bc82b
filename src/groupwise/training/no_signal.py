"""Notices that most sampled groups teach nothing, step after step.

Such a run looks like a method that does not work, and is a matter of group size and prompts. Left
out: the share of one step (the metric `groups/no_signal`).
"""

from __future__ import annotations

from collections import deque

from groupwise.records import Value

STEPS = 10
"""Steps that the share is taken over."""


class NoSignalWatch:
    """The mean share of groups without signal over the last steps; told once until it falls."""

    def __init__(self, alarm: float, group_size: int, steps: int = STEPS) -> None:
        self.alarm = alarm
        self.group_size = group_size
        self._shares: deque[float] = deque(maxlen=steps)
        self._told = False

    def see(self, share: Value) -> str | None:
        """The warning due after a step with that share, None where there is none."""
        if share is None:
            return None
        self._shares.append(float(share))
        if len(self._shares) < (self._shares.maxlen or 0):
            return None
        mean = sum(self._shares) / len(self._shares)
        high = mean >= self.alarm
        due, self._told = high and not self._told, high
        if not due:
            return None
        return (
            f"{mean:.0%} of the groups sampled in the last {len(self._shares)} steps have "
            "completions of one reward each and teach nothing. At a success rate p the share is "
            f"p^G + (1 - p)^G with G = sampling.group_size = {self.group_size}: larger groups, "
            "prompts that are sometimes passed and sometimes not ([selection.pool], a "
            'curriculum), or dynamic sampling (algorithm.filters = ["dynamic_sampling"])'
        )
