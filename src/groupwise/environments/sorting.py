"""Sorting: numbers by size, words by the alphabet, up or down.

The same items in another order, or to be sorted the other way, are the same family. A list that is
sorted already is not asked for: repeating it would be right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.generated import (
    GeneratedSettings,
    Level,
    Task,
    bound,
    check_range,
    generated,
)
from groupwise.environments.vocabulary import WORDS
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

Items = Literal["numbers", "negative", "decimals", "words"]
Direction = Literal["ascending", "descending"]

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"num_items": (3, 4), "items": ("numbers",), "directions": ("ascending",)},
    "medium": {
        "num_items": (5, 7), "items": ("numbers", "negative", "words"),
        "directions": ("ascending", "descending"),
    },
    "hard": {
        "num_items": (9, 14), "items": ("negative", "decimals", "words"),
        "directions": ("ascending", "descending"),
    },
}  # fmt: skip
_WORDS = {"ascending": "alphabetically", "descending": "alphabetically in reverse, from z to a"}
_NUMBERS = {"ascending": "from smallest to largest", "descending": "from largest to smallest"}


class SortingSettings(GeneratedSettings):
    """The arguments of `sorting`; what is not set comes from the level."""

    num_items: tuple[int, int] | None = Field(
        default=None, description="Fewest and most items of a list, as [3, 6]."
    )
    items: tuple[Items, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which of numbers (0 to 99), negative (-99 to 99), decimals (two places), "
        "words.",
    )
    directions: tuple[Direction, ...] | None = Field(
        default=None, min_length=1, description="Which of ascending, descending."
    )

    @model_validator(mode="after")
    def _fits(self) -> SortingSettings:
        check_range("num_items", self.num_items, 2, 40)
        return self


def make_sorting(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `sorting` environment."""
    settings = validated(SortingSettings, arguments, "environment 'sorting'")

    def draw(random: random.Random, level: Level) -> Task | None:
        return _task(random, level, settings)

    own = VerifierSettings(name="sequence")
    return generated("sorting", settings, draw, seed, verifiers or [own])


def _task(random: random.Random, level: Level, settings: SortingSettings) -> Task | None:
    fewest, most = bound(settings, LEVELS, "num_items", level)
    kind: Items = random.choice(bound(settings, LEVELS, "items", level))
    direction: Direction = random.choice(bound(settings, LEVELS, "directions", level))
    items = _items(random, kind, random.randint(fewest, most))
    ordered = sorted(items, key=str if kind == "words" else float)
    answer = ordered if direction == "ascending" else ordered[::-1]
    if answer == items:
        return None
    noun = "words" if kind == "words" else "numbers"
    how = (_WORDS if kind == "words" else _NUMBERS)[direction]
    question = f"Sort these {noun} {how}: {', '.join(items)}\nSeparate them by commas."
    columns = {"items": items, "kind": kind, "direction": direction}
    return Task(question, ", ".join(answer), ",".join(ordered), columns)


def _items(random: random.Random, kind: Items, num: int) -> list[str]:
    """Distinct items, as texts."""
    if kind == "words":
        return random.sample(WORDS, num)
    if kind == "decimals":
        return [f"{each / 100:.2f}" for each in random.sample(range(1, 10_000), num)]
    low = -99 if kind == "negative" else 0
    return [str(each) for each in random.sample(range(low, 100), num)]
