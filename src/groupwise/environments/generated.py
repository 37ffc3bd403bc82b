"""The base of every generated environment: settings, drawing, splitting, wording.

An environment draws one task of a level; here the tasks become prompts. Tasks that could give each
other away share a `family`, and a hash of the seed and the family decides whether it is held out:
training and held-out prompts are disjoint by construction, and changing how many are asked for
never moves a task to the other side.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from groupwise.environments.base import Environment
from groupwise.environments.checks import check_prompts
from groupwise.environments.identity import prompt_id, with_unique_ids
from groupwise.errors import RecipeError
from groupwise.randomness import generator, stream_key
from groupwise.types import Message, Prompt
from groupwise.verifiers import VerifierSettings, VerifierTables, compose
from groupwise.verifiers.core.names import Arguments

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
HELDOUT_SHARE = 0.2
"""The share of families on the held-out side."""
MAX_IDLE = 3000
"""Draws in a row without a new task after which there are taken to be no more."""

INSTRUCTIONS = {
    "tagged": "Give the final answer inside <answer></answer> tags.",
    "boxed": "Give the final answer in \\boxed{}.",
    "line": "End with the final answer alone on the last line.",
}
_REPLIES = {"tagged": "<answer>{}</answer>", "boxed": "\\boxed{{{}}}", "line": "{}"}


@dataclass(frozen=True, slots=True)
class Task:
    """One generated task. `family`: what must not be on both sides of the split.

    `answer` is None where there is no right one, only texts that pass.
    """

    question: str
    answer: str | None
    family: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])


Draw = Callable[[random.Random, Level], Task | None]
"""Draws a task of a level with its own random generator; None if this attempt failed."""


class DrawnSettings(Arguments):
    """The arguments that every environment of generated tasks has, whatever an answer looks like.

    A built-in environment is a subclass that names itself, sets `levels` (defaults by level, for
    fields that are None) and implements `draw` and `own_verifiers`.
    """

    environment_name: ClassVar[str] = ""
    environment_class: ClassVar[type[Environment]] = Environment
    levels: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    level: Literal["easy", "medium", "hard", "mixed"] = Field(
        default="easy",
        description="easy, medium, hard, or mixed: a third of each, with the column `level`.",
    )
    num_train: int = Field(default=1000, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=200, ge=0, description="Held-out prompts.")
    instructions_text: str | None = Field(
        default=None, description="Words for it in place of the built-in ones; may be empty."
    )
    system: str | None = Field(default=None, description="A system message.")
    examples: int = Field(
        default=0,
        ge=0,
        le=32,
        description="Solved examples before the question; they are in neither split.",
    )

    @property
    def asks(self) -> str:
        """The built-in instructions after a question."""
        return ""

    @property
    def words(self) -> str:
        """The instructions after a question: the recipe's, else the built-in ones."""
        return self.asks if self.instructions_text is None else self.instructions_text

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        """One task of a level, a function of `random`; None if this attempt failed."""
        raise NotImplementedError

    def own_verifiers(self) -> list[VerifierSettings]:
        """What judges completions if the recipe does not say."""
        raise NotImplementedError

    def bound(self, name: str, level: Level) -> Any:
        """A field's value, or the level's default if it is None."""
        value = getattr(self, name)
        return self.levels[level][name] if value is None else value

    def reply(self, task: Task) -> str:
        """A completion that solves the task."""
        return task.answer or ""


class GeneratedSettings(DrawnSettings):
    """The arguments that every environment of generated puzzles has."""

    instructions: Literal["tagged", "boxed", "line"] = Field(
        default="tagged",
        description="Where the answer is asked for: in a tag, in a box, on the last line.",
    )

    @property
    def asks(self) -> str:
        return INSTRUCTIONS[self.instructions]

    def reply(self, task: Task) -> str:
        return _REPLIES[self.instructions].format(task.answer)


def generated(
    name: str, settings: DrawnSettings, draw: Draw, seed: int, verifiers: VerifierTables
) -> Environment:
    """The environment of a `draw`. Raises RecipeError if it gives too few distinct tasks."""
    train, heldout = _split(name, settings, draw, seed)
    opening: list[Message] = []
    for _, task in train[: settings.examples]:
        opening.append(ask(task.question, settings.words))
        opening.append({"role": "assistant", "content": settings.reply(task)})

    def prompt(level: Level, task: Task) -> Prompt:
        return chat_prompt(
            ask(task.question, settings.words),
            task.answer,
            system=settings.system,
            opening=opening,
            columns={**task.columns, "level": level},
        )

    train = train[settings.examples :]
    sides = [[prompt(level, task) for level, task in side] for side in (train, heldout)]
    kind = settings.environment_class
    return from_prompts(name, settings, sides[0], sides[1], verifiers, kind)


def make_generated(
    settings: DrawnSettings, seed: int, verifiers: VerifierTables = ()
) -> Environment:
    """A built-in environment of generated tasks. Raises RecipeError as `generated`."""

    def draw(random: random.Random, level: Level) -> Task | None:
        return settings.draw(random, level, seed)

    return generated(
        settings.environment_name, settings, draw, seed, verifiers or settings.own_verifiers()
    )


def from_prompts(
    name: str,
    settings: BaseModel,
    train: Sequence[Prompt],
    heldout: Sequence[Prompt],
    verifiers: VerifierTables,
    kind: type[Environment] = Environment,
) -> Environment:
    """The environment of prompts that were made here, with unique ids.

    Raises RecipeError if the verifiers need a column that is missing or reject a gold answer.
    """
    prompts, duplicates = with_unique_ids([*train, *heldout])
    verifier = compose(verifiers)
    check_prompts(verifier, prompts, f"environment {name!r}")
    splits = {"train": prompts[: len(train)], "heldout": prompts[len(train) :]}
    facts = {"duplicates": duplicates, "overlap": 0, "arguments": settings.model_dump(mode="json")}
    return kind(name, verifier, splits, facts)


def is_heldout(seed: int, name: str, family: str) -> bool:
    """Whether a family is on the held-out side: a function of seed, environment and family."""
    return stream_key(seed, "data", name, "side", family) < HELDOUT_SHARE * 2**64


Drawn = tuple[Level, Task]


def _split(
    name: str, settings: DrawnSettings, draw: Draw, seed: int
) -> tuple[list[Drawn], list[Drawn]]:
    """Training tasks (examples first) and held-out ones; levels in turn where they are mixed."""
    levels: tuple[Level, ...] = LEVELS if settings.level == "mixed" else (settings.level,)
    seen: set[str] = set()
    counts = settings.num_train + settings.examples, settings.num_heldout
    found: tuple[list[list[Drawn]], list[list[Drawn]]] = ([], [])
    for place, level in enumerate(levels):
        wanted = [each // len(levels) + (place < each % len(levels)) for each in counts]
        own = partial(_drawn, draw, level)
        sides = drawn_sides(own, seed, (name, level), wanted, seen)
        for rows, tasks in zip(found, sides, strict=True):
            rows.append([(level, task) for task in tasks])
    train, heldout = (
        [each for row in itertools.zip_longest(*rows) for each in row if each is not None]
        for rows in found
    )
    return train, heldout


def _drawn(draw: Draw, level: Level, random: random.Random) -> Task | None:
    return draw(random, level)


def drawn_sides(
    draw: Callable[[random.Random], Task | None],
    seed: int,
    key: tuple[str, ...],
    wanted: Sequence[int],
    seen: set[str] | None = None,
) -> tuple[list[Task], list[Task]]:
    """`wanted` training and held-out tasks with distinct questions, none of which is in `seen`.

    Every attempt has a generator of its own, named by `key`: the environment, then its level.
    Raises RecipeError if `draw` gives too few.
    """
    sides: tuple[list[Task], list[Task]] = ([], [])
    seen = set() if seen is None else seen
    attempt = idle = 0
    while [len(side) for side in sides] != list(wanted):
        task = draw(generator(seed, "data", *key, attempt))
        attempt, idle = attempt + 1, idle + 1
        if task is not None and task.question not in seen:
            side = int(is_heldout(seed, key[0], task.family))
            if len(sides[side]) < wanted[side]:
                seen.add(task.question)
                sides[side].append(task)
                idle = 0
        if idle > MAX_IDLE:
            raise RecipeError(
                f"environment {', level '.join(map(repr, key))}: num_train with examples and "
                f"num_heldout ask for {wanted[0]} and {wanted[1]} tasks, but only {len(sides[0])} "
                f"and {len(sides[1])} distinct ones were found; ask for fewer, or widen the bounds"
            )
    return sides


def ask(question: str, words: str | None) -> Message:
    """The user's message: a question, with `words` behind it if there are any."""
    return {"role": "user", "content": f"{question}\n{words}" if words else question}


def chat_prompt(
    user: Message,
    answer: Any = None,
    *,
    system: str | None = None,
    opening: Sequence[Message] = (),
    columns: Mapping[str, Any],
) -> Prompt:
    """The prompt that ends with the user's message, behind a system message and an opening."""
    first: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = (*first, *opening, user)
    return Prompt(prompt_id(messages, answer=answer), messages, answer, columns=columns)


def listed(items: Sequence[object], last: str = "and") -> str:
    """Items as English lists them.

    >>> listed([3, 5, 8]), listed(["x"])
    ('3, 5 and 8', 'x')
    """
    texts = [str(item) for item in items]
    return " ".join([", ".join(texts[:-1]), last, texts[-1]]) if len(texts) > 1 else texts[0]


def check_range(name: str, values: tuple[int, int] | None, low: int, high: int) -> None:
    """`ValueError` unless low <= values[0] <= values[1] <= high; None passes."""
    if values is not None and not low <= values[0] <= values[1] <= high:
        raise ValueError(
            f"{name} = {list(values)}: give fewest and most, {low} <= fewest <= most <= {high}, "
            f"for instance [{low}, {min(low + 2, high)}]"
        )
