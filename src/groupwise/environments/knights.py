"""Knights and knaves: who tells the truth and who lies, from what each one says.

Every puzzle has exactly one solution, found by trying all. Puzzles that differ only in who is
called what, or stands where, are one family: a held-out puzzle's structure was never trained on.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    listed,
)
from groupwise.environments.vocabulary import PEOPLE
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

Form = Literal["knight", "knave", "same", "different", "either", "both", "count"]

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"num_people": (2, 2)},
    "medium": {"num_people": (3, 3)},
    "hard": {"num_people": (4, 5)},
}


class KnightsSettings(GeneratedSettings):
    """The arguments of `knights`; what is not set comes from the level."""

    num_people: tuple[int, int] | None = Field(
        default=None, description="Fewest and most people, as [2, 3]; at most 5."
    )

    @model_validator(mode="after")
    def _fits(self) -> KnightsSettings:
        check_range("num_people", self.num_people, 2, 5)
        return self


@dataclass(frozen=True, slots=True)
class Statement:
    """What one person says. `about`: people by number; `knights`: what each is said to be.

    `either` and `both` join two claims; `count` says how many knights there are (`about` unused).
    """

    form: Form
    about: tuple[int, ...] = ()
    knights: tuple[bool, ...] = ()
    num: int = 0

    def holds(self, world: Sequence[bool]) -> bool:
        """Whether it is true where `world` says who is a knight."""
        if self.form == "count":
            return sum(world) == self.num
        if self.form == "same":
            return world[self.about[0]] == world[self.about[1]]
        if self.form == "different":
            return world[self.about[0]] != world[self.about[1]]
        claims = [world[person] == knight for person, knight in zip(self.about, self.knights)]
        return any(claims) if self.form == "either" else all(claims)

    def words(self, names: Sequence[str]) -> str:
        """The statement as it is spoken."""
        if self.form == "count":
            noun = "knight" if self.num == 1 else "knights"
            verb = "is" if self.num == 1 else "are"
            return f"There {verb} exactly {self.num} {noun} among us."
        people = [names[person] for person in self.about]
        if self.form == "same":
            return f"{people[0]} and {people[1]} are of the same kind."
        if self.form == "different":
            return f"{people[0]} and {people[1]} are of different kinds."
        kinds = ["knight" if knight else "knave" for knight in self.knights]
        claims = [f"{name} is a {kind}" for name, kind in zip(people, kinds)]
        return f"{listed(claims, 'or' if self.form == 'either' else 'and')}."

    def renamed(self, order: Sequence[int]) -> tuple[Any, ...]:
        """What it says once person p is called order[p]; equal for equal claims."""
        about = [order[person] for person in self.about]
        claims = sorted(zip(about, self.knights)) if self.knights else sorted(about)
        return (self.form, *claims, self.num)


def make_knights(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `knights` environment."""
    settings = validated(KnightsSettings, arguments, "environment 'knights'")

    def draw(random: random.Random, level: Level) -> Task | None:
        return _task(random, random.randint(*bound(settings, LEVELS, "num_people", level)))

    own = VerifierSettings(name="assignment")
    return generated("knights", settings, draw, seed, verifiers or [own])


def _task(random: random.Random, num: int) -> Task | None:
    said = [_statement(random, speaker, num) for speaker in range(num)]
    worlds = solutions(said)
    if len(worlds) != 1:
        return None
    names = random.sample(PEOPLE, num)
    kinds = ["knight" if knight else "knave" for knight in worlds[0]]
    quotes = [f'{name} says: "{statement.words(names)}"' for name, statement in zip(names, said)]
    form = ", ".join(f"{name}: ..." for name in names)
    question = "\n".join(
        [
            "On an island live knights, who always tell the truth, and knaves, who always lie. "
            f"You meet {listed(names)}.",
            *quotes,
            f'Who is what? Answer in the form "{form}", each time with the word knight or knave.',
        ]
    )
    answer = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds))
    return Task(question, answer, structure(said), {"names": names, "num_people": num})


def solutions(said: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Every assignment under which knights speak the truth and knaves do not."""
    return [
        world
        for world in itertools.product((True, False), repeat=len(said))
        if all(statement.holds(world) == knight for statement, knight in zip(said, world))
    ]


def structure(said: Sequence[Statement]) -> str:
    """What is said by whom, the same for every naming and order of the people."""
    return repr(
        min(
            sorted((order[speaker], each.renamed(order)) for speaker, each in enumerate(said))
            for order in itertools.permutations(range(len(said)))
        )
    )


def _statement(random: random.Random, speaker: int, num: int) -> Statement:
    others = [person for person in range(num) if person != speaker]
    form: Form = random.choice(("knight", "knave", "same", "different", "either", "both", "count"))
    if form in ("knight", "knave"):
        return Statement(form, (random.choice(others),), (form == "knight",))
    if form == "count":
        return Statement(form, num=random.randint(0, num - 1))
    pair = tuple(random.sample(range(num), 2))
    if form in ("same", "different"):
        return Statement(form, pair)
    return Statement(form, pair, tuple(random.choice((True, False)) for _ in pair))
