"""Warnings about a run that teaches nothing: verifiers of one value, groups without signal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from groupwise.records import Value
from groupwise.types import Group


class ConstantWatch:
    """Counts, per verifier, the steps in a row whose every value was the same.

    Such a part of the reward teaches nothing; a format that no completion can have (its opening
    tag stands in the prompt, say) looks just like that.
    """

    def __init__(self, steps: int = 20) -> None:
        self._steps = steps
        self._runs: dict[str, tuple[float, int]] = {}

    def see(self, groups: Sequence[Group]) -> list[str]:
        """The warnings due after a step's groups, each once for as long as the value stays."""
        values: dict[str, set[float]] = {}
        for group in groups:
            for rollout in group.rollouts:
                for name, value in rollout.score.parts.items():
                    if value is not None:
                        values.setdefault(name, set()).add(value)
        found = []
        for name, seen in values.items():
            value = next(iter(seen))
            last, count = self._runs.get(name, (value, 0))
            count = count + 1 if len(seen) == 1 and last == value else int(len(seen) == 1)
            self._runs[name] = (value, count)
            if count == self._steps:
                found.append(
                    f"verifier {name!r} gave {value:g} to every completion of the last "
                    f"{count} steps, so it teaches nothing; read some completions and its reasons"
                )
        return found


class NoSignalWatch:
    """The mean share of groups without signal over the last steps; one warning until it falls."""

    def __init__(self, alarm: float, group_size: int, steps: int = 10) -> None:
        self.alarm = alarm
        self.group_size = group_size
        self._shares: deque[float] = deque(maxlen=steps)
        self._warned = False

    def see(self, share: Value) -> list[str]:
        """The warnings due after a step with that share."""
        if share is None:
            return []
        self._shares.append(float(share))
        if len(self._shares) < (self._shares.maxlen or 0):
            return []
        mean = sum(self._shares) / len(self._shares)
        due = mean >= self.alarm and not self._warned
        self._warned = mean >= self.alarm
        if not due:
            return []
        return [
            f"{mean:.0%} of the groups sampled in the last {len(self._shares)} steps have "
            "completions of one reward each and teach nothing. At a success rate p the share is "
            f"p^G + (1 - p)^G with G = sampling.group_size = {self.group_size}: larger groups, "
            "prompts that are sometimes passed and sometimes not ([selection.pool], a "
            'curriculum), or dynamic sampling (algorithm.filters = ["dynamic_sampling"])'
        ]
