"""What every contender is given: the same prompts, group size, lengths and rewards.

Fixed length means that no stop id ends a completion, so every contender samples the same number of
tokens; natural means that the model's own stop ids do. Left out: how a contender is asked for it.
No torch.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any

PHASES = ("rollout", "natural", "step")
"""What is measured: rollouts of fixed length, rollouts that end by themselves, whole steps."""


@dataclass(frozen=True)
class Workload:
    """Sizes. A rollout samples `rollout_prompts` x `group_size` completions of `rollout_tokens`;
    a step samples `step_prompts` x `group_size` of `step_tokens` and trains on them once."""

    model: str
    group_size: int
    rollout_prompts: int
    rollout_tokens: int
    step_prompts: int
    step_tokens: int
    warmup_tokens: int
    seed: int = 0

    @property
    def rollout_rows(self) -> int:
        return self.rollout_prompts * self.group_size

    @property
    def step_rows(self) -> int:
        return self.step_prompts * self.group_size

    def to_table(self) -> dict[str, Any]:
        return asdict(self)


FULL = Workload(
    model="smollm2-135m",
    group_size=8,
    rollout_prompts=8,
    rollout_tokens=64,
    step_prompts=4,
    step_tokens=128,
    warmup_tokens=8,
)
SMALL = Workload(
    model="tiny",
    group_size=4,
    rollout_prompts=2,
    rollout_tokens=8,
    step_prompts=2,
    step_tokens=8,
    warmup_tokens=2,
)

_NAMES = ("Anna", "Bruno", "Carla", "David", "Elena", "Farid", "Grace", "Hugo")
_THINGS = ("apples", "pencils", "stamps", "marbles", "tickets", "shells", "coins", "cards")


def questions(model: str, count: int) -> list[str]:
    """`count` different questions: about 75 tokens each as a chat of SmolLM2, sums for `tiny`."""
    if model == "tiny":
        return [f"{number % 10}+{number // 10}=" for number in range(count)]
    return [_story(number) for number in range(count)]


def _story(number: int) -> str:
    name = _NAMES[number % len(_NAMES)]
    thing = _THINGS[(number + number // len(_NAMES)) % len(_THINGS)]
    return (
        f"{name} has {12 + number} {thing} and buys {3 + number % 7} more on every day of a week. "
        f"On Sunday {name} gives half of all {thing} away. How many are left? "
        "Explain each step, then give the number."
    )


def messages(question: str) -> list[dict[str, str]]:
    """The question as the one message of a chat."""
    return [{"role": "user", "content": question}]


def spread_reward(completions: list[Any], **_: Any) -> list[float]:
    """A number in [0, 1) from the completion's text: groups always have something to learn from.

    In TRL's form, so that this project and TRL are given the same function.
    """
    texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
    return [zlib.crc32(text.encode()) % 1000 / 1000 for text in texts]
