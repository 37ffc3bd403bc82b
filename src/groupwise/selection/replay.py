"""Rare successes are learned from again: a small buffer of whole groups.

A replayed group keeps its rollouts and their `sampler_logprobs`, so the algorithm's correction (or
its ratio to the sampler) weighs it against the policy that sampled it; without one, replay is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from groupwise.selection.history import mean_accuracy
from groupwise.selection.settings import ReplaySettings
from groupwise.types import Completion, Extras, Group, Prompt, Rollout, Score, StepReward, Turn

PromptOf = Callable[[str], Prompt]
_TYPES = {
    each.__name__: each
    for each in (Completion, Extras, Group, Prompt, Rollout, Score, StepReward, Turn)
}


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
            if 0 < (mean_accuracy(group) or 0) <= self.settings.at_most:
                version = min(rollout.version for rollout in group.rollouts)
                self._kept.append(_Kept(group, version))
        del self._kept[: -self.settings.capacity]

    def state_dict(self) -> list[dict[str, Any]]:
        return [
            {"group": to_plain(each.group), "version": each.version, "uses": each.uses}
            for each in self._kept
        ]

    def load_state_dict(self, data: Sequence[Mapping[str, Any]], prompt_of: PromptOf) -> None:
        self._kept = [
            _Kept(from_plain(each["group"], prompt_of), each["version"], each["uses"])
            for each in data
        ]


def to_plain(value: Any) -> Any:
    """What a checkpoint holds of rollouts that wait, JSON-able; prompts are kept by id.

    Every field comes back equal, floats bit for bit. A tuple is written as a list, a list as
    `{"list": ...}`, a mapping as `{"map": ...}`, bytes as `{"bytes": ...}` in hex, a type of
    `types.py` as `{"of": name, "fields": ...}`. TypeError where a rollout's extras hold what JSON
    cannot.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [to_plain(inner) for inner in value]
    if isinstance(value, list):
        return {"list": [to_plain(inner) for inner in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"map": {key: to_plain(inner) for key, inner in value.items()}}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Prompt):
        return {"prompt": value.id}
    if is_dataclass(value) and type(value).__name__ in _TYPES:
        own = {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
        return {"of": type(value).__name__, "fields": own}
    raise TypeError(
        f"a rollout holds {value!r:.80}, a {type(value).__name__}, which no checkpoint can keep; "
        "give numbers, texts, lists and mappings with text keys"
    )


def from_plain(data: Any, prompt_of: PromptOf) -> Any:
    """What `to_plain` was given; `prompt_of` gives a prompt by its id."""
    if isinstance(data, list):
        return tuple(from_plain(inner, prompt_of) for inner in data)
    if not isinstance(data, dict):
        return data
    if "prompt" in data:
        return prompt_of(data["prompt"])
    if "bytes" in data:
        return bytes.fromhex(data["bytes"])
    if "list" in data:
        return [from_plain(inner, prompt_of) for inner in data["list"]]
    if "map" in data:
        return {key: from_plain(inner, prompt_of) for key, inner in data["map"].items()}
    own = {name: from_plain(inner, prompt_of) for name, inner in data["fields"].items()}
    return _TYPES[data["of"]](**own)
