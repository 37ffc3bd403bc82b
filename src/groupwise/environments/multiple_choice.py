"""Multiple choice: comparing, ordering and calculating, with the options shuffled by the seed.

The right option stands in every place equally often, so that no letter is a good guess. Wrong
options of a calculation are near the right one. The same options in another order are one family.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.generated import GeneratedSettings, Level, Task, bound, generated
from groupwise.environments.vocabulary import WORDS
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

Kind = Literal["extreme", "alphabet", "sum", "product", "multiple", "remainder"]
Made = tuple[str, str, list[str]]
"""Question, right option, wrong options."""

LETTERS = "ABCDEFGHIJ"
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"kinds": ("extreme", "alphabet"), "num_choices": 3, "largest": 100},
    "medium": {"kinds": ("alphabet", "sum", "multiple"), "num_choices": 4, "largest": 100},
    "hard": {"kinds": ("product", "multiple", "remainder"), "num_choices": 6, "largest": 999},
}


class MultipleChoiceSettings(GeneratedSettings):
    """The arguments of `multiple_choice`; what is not set comes from the level."""

    kinds: tuple[Kind, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which of extreme (largest or smallest), alphabet (first word), sum, product, "
        "multiple (of a number), remainder.",
    )
    num_choices: int | None = Field(default=None, ge=2, le=10, description="Options a question.")
    largest: int | None = Field(
        default=None, ge=50, le=10_000, description="Largest number in a question."
    )


def make_multiple_choice(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `multiple_choice` environment."""
    settings = validated(MultipleChoiceSettings, arguments, "environment 'multiple_choice'")

    def draw(random: random.Random, level: Level) -> Task | None:
        kind: Kind = random.choice(bound(settings, LEVELS, "kinds", level))
        num = bound(settings, LEVELS, "num_choices", level)
        made = _MAKERS[kind](random, num - 1, bound(settings, LEVELS, "largest", level))
        return None if made is None else _task(random, kind, made)

    own = VerifierSettings(name="choice")
    return generated("multiple_choice", settings, draw, seed, verifiers or [own])


def _task(random: random.Random, kind: Kind, made: Made) -> Task:
    question, right, wrong = made
    options, letter = shuffled(random, right, wrong)
    lines = [question, *written(options), "Answer with the letter of the right option."]
    family = f"{question} {sorted(options)}"
    return Task("\n".join(lines), letter, family, {"choices": options, "kind": kind})


def shuffled(random: random.Random, right: str, wrong: Sequence[str]) -> tuple[list[str], str]:
    """All options in a drawn order, and the letter of the right one."""
    options = [right, *wrong]
    random.shuffle(options)
    return options, LETTERS[options.index(right)]


def written(options: Sequence[str]) -> list[str]:
    """One line an option, lettered.

    >>> written(["cat", "dog"])
    ['A) cat', 'B) dog']
    """
    return [f"{letter}) {option}" for letter, option in zip(LETTERS, options)]


def _extreme(random: random.Random, num_wrong: int, largest: int) -> Made | None:
    numbers = sorted(random.sample(range(1, largest + 1), num_wrong + 1))
    word = random.choice(("largest", "smallest"))
    right = numbers.pop(-1 if word == "largest" else 0)
    return f"Which of these numbers is the {word}?", str(right), [str(each) for each in numbers]


def _alphabet(random: random.Random, num_wrong: int, _: int) -> Made | None:
    words = sorted(random.sample(WORDS, num_wrong + 1))
    return "Which of these words comes first in the alphabet?", words[0], words[1:]


def _sum(random: random.Random, num_wrong: int, largest: int) -> Made | None:
    a, b = random.randint(10, largest), random.randint(10, largest)
    return f"What is {a} + {b}?", str(a + b), _near(random, a + b, num_wrong)


def _product(random: random.Random, num_wrong: int, largest: int) -> Made | None:
    a, b = random.randint(11, 11 + largest // 10), random.randint(11, 11 + largest // 10)
    return f"What is {a} * {b}?", str(a * b), _near(random, a * b, num_wrong)


def _multiple(random: random.Random, num_wrong: int, largest: int) -> Made | None:
    divisor = random.randint(3, 13)
    right = divisor * random.randint(2, largest // divisor)
    others = [each for each in range(divisor, largest + 1) if each % divisor]
    wrong = [str(each) for each in random.sample(others, num_wrong)]
    return f"Which of these numbers is a multiple of {divisor}?", str(right), wrong


def _remainder(random: random.Random, num_wrong: int, largest: int) -> Made | None:
    divisor = random.randint(num_wrong + 2, num_wrong + 12)
    number = random.randint(divisor + 1, max(largest, 2 * divisor))
    right = number % divisor
    wrong = random.sample([each for each in range(divisor) if each != right], num_wrong)
    question = f"What is the remainder when {number} is divided by {divisor}?"
    return question, str(right), [str(each) for each in wrong]


def _near(random: random.Random, right: int, num: int) -> list[str]:
    """Distinct numbers near the right one, on both sides of it in a drawn proportion.

    The place of the right one among them by size is drawn, so that the middle is no good guess.
    """
    steps = (1, 2, 9, 10, 11, 20, 21, 30, 90, 100)
    below = random.randint(0, num)
    chosen = sorted(random.sample(steps, max(below, num - below)))
    wrong = {right - step for step in chosen[:below]} | {
        right + step for step in chosen[: num - below]
    }
    return [str(each) for each in sorted(wrong)]


_MAKERS: dict[str, Callable[[random.Random, int, int], Made | None]] = {
    "extreme": _extreme,
    "alphabet": _alphabet,
    "sum": _sum,
    "product": _product,
    "multiple": _multiple,
    "remainder": _remainder,
}
