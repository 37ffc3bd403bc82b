"""String tasks: what a letter-blind model finds hard and a program trivial.

Reversing, counting, picking, removing and shifting letters of made-up words (few tokenizers know
them whole), initials and word order. One word is one family, whatever is asked about it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from string import ascii_lowercase
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
from groupwise.environments.vocabulary import WORDS, made_up_word
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

Kind = Literal["reverse", "count", "letter", "remove", "shift", "initials", "word_order", "merge"]
Made = tuple[str, str, str]
"""Question, answer, family."""

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"kinds": ("reverse", "count", "letter"), "length": (3, 5)},
    "medium": {"kinds": ("reverse", "count", "letter", "remove", "initials"), "length": (6, 9)},
    "hard": {"kinds": ("reverse", "remove", "shift", "word_order", "merge"), "length": (10, 14)},
}
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
)  # fmt: skip


class StringsSettings(GeneratedSettings):
    """The arguments of `strings`; what is not set comes from the level."""

    kinds: tuple[Kind, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which of reverse, count, letter, remove, shift (each letter along the "
        "alphabet), initials, word_order, merge (two words, letter by letter).",
    )
    length: tuple[int, int] | None = Field(
        default=None, description="Fewest and most letters of a word, as [3, 6]."
    )

    @model_validator(mode="after")
    def _fits(self) -> StringsSettings:
        check_range("length", self.length, 2, 40)
        return self


def make_strings(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `strings` environment."""
    settings = validated(StringsSettings, arguments, "environment 'strings'")

    def draw(random: random.Random, level: Level) -> Task | None:
        kind: Kind = random.choice(bound(settings, LEVELS, "kinds", level))
        length = random.randint(*bound(settings, LEVELS, "length", level))
        made = _MAKERS[kind](random, length)
        return None if made is None else Task(*made, {"kind": kind})

    own = VerifierSettings(name="text")
    return generated("strings", settings, draw, seed, verifiers or [own])


def _reverse(random: random.Random, length: int) -> Made | None:
    word = made_up_word(random, length)
    if word == word[::-1]:
        return None
    return f'Write the word "{word}" backwards.', word[::-1], word


def _count(random: random.Random, length: int) -> Made | None:
    word = made_up_word(random, length)
    by_count: dict[int, list[str]] = {}
    for letter in ascii_lowercase:
        by_count.setdefault(word.count(letter), []).append(letter)
    letter = random.choice(by_count[random.choice(sorted(by_count))])
    question = f'How many times does the letter "{letter}" occur in "{word}"?'
    return question, str(word.count(letter)), word


def _letter(random: random.Random, length: int) -> Made | None:
    word = made_up_word(random, length)
    place = random.randrange(min(length, len(_ORDINALS)))
    question = f'Which letter is the {_ORDINALS[place]} one of "{word}"?'
    return question, word[place], word


def _remove(random: random.Random, length: int) -> Made | None:
    word = made_up_word(random, length)
    letter = random.choice(word)
    left = word.replace(letter, "")
    if not left:
        return None
    return f'Remove every "{letter}" from "{word}". What is left?', left, word


def _shift(random: random.Random, length: int) -> Made | None:
    word = made_up_word(random, length)
    by = random.randint(1, 5)
    shifted = "".join(chr((ord(letter) - ord("a") + by) % 26 + ord("a")) for letter in word)
    question = (
        f'Replace every letter of "{word}" by the letter {by} {"place" if by == 1 else "places"} '
        "later in the alphabet; after z comes a."
    )
    return question, shifted, word


def _initials(random: random.Random, length: int) -> Made | None:
    words = random.sample(WORDS, max(3, min(length // 2, 6)))
    question = f"Join the first letters of these words into one word: {', '.join(words)}"
    return question, "".join(word[0] for word in words), " ".join(sorted(words))


def _word_order(random: random.Random, length: int) -> Made | None:
    words = random.sample(WORDS, max(3, min(length // 2, 6)))
    question = f'Write these words in reverse order: "{" ".join(words)}"'
    return question, " ".join(words[::-1]), " ".join(sorted(words))


def _merge(random: random.Random, length: int) -> Made | None:
    half = max(length // 2, 2)
    first, second = made_up_word(random, half), made_up_word(random, half)
    question = (
        f'Merge "{first}" and "{second}" letter by letter: the first letter of the first word, the '
        "first of the second, the second of the first, and so on."
    )
    merged = "".join(a + b for a, b in zip(first, second))
    return question, merged, " ".join(sorted((first, second)))


_MAKERS: dict[str, Callable[[random.Random, int], Made | None]] = {
    "reverse": _reverse,
    "count": _count,
    "letter": _letter,
    "remove": _remove,
    "shift": _shift,
    "initials": _initials,
    "word_order": _word_order,
    "merge": _merge,
}
