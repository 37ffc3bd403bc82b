"""Rare successes are learned from again: a small buffer of whole groups.

A replayed group keeps its rollouts and their `sampler_logprobs`, so the algorithm's correction (or
its ratio to the sampler) weighs it against the policy that sampled it; without one, replay is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.selection.settings import ReplaySettings
from groupwise.selection.stored import PromptOf, group_from_plain, group_to_plain
from groupwise.types import Group


@dataclass(slots=True)
class _Kept:
    group: Group
    version: int
    uses: int = 0


class ReplayBuffer:
    """Groups that were passed rarely, the oldest first."""

    def __init__(self, settings: ReplaySettings) -> None:
        self.settings = settings
        self._kept: list[_Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, step: int) -> list[Group]:
        """The groups that join this step: the least used first, and of those the newest.

        What is too stale or used up is dropped.
        """
        limit = self.settings.max_staleness
        self._kept = [
            each
            for each in self._kept
            if step - each.version <= limit and each.uses < self.settings.uses
        ]
        order = sorted(self._kept, key=lambda each: (each.uses, -each.version))
        chosen = order[: self.settings.per_step]
        for each in chosen:
            each.uses += 1
        return [each.group for each in chosen]

    def see(self, groups: Sequence[Group]) -> None:
        """Keep those of a step's new groups with a rare success; the oldest make room."""
        for group in groups:
            if is_rare(group, self.settings.at_most):
                version = min(rollout.version for rollout in group.rollouts)
                self._kept.append(_Kept(group, version))
        del self._kept[: -self.settings.capacity]

    def state_dict(self, *, whole_prompts: bool = False) -> list[dict[str, Any]]:
        return [
            {
                "group": group_to_plain(each.group, whole_prompts=whole_prompts),
                "version": each.version,
                "uses": each.uses,
            }
            for each in self._kept
        ]

    def load_state_dict(self, data: Sequence[Mapping[str, Any]], prompt_of: PromptOf) -> None:
        self._kept = [
            _Kept(group_from_plain(each["group"], prompt_of), each["version"], each["uses"])
            for each in data
        ]


def is_rare(group: Group, at_most: float) -> bool:
    """Whether a group's mean accuracy is above 0 and at most `at_most`."""
    scored = [each.score.accuracy for each in group.rollouts if each.score.accuracy is not None]
    return bool(scored) and 0 < sum(scored) / len(scored) <= at_most
