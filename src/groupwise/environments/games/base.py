"""Games as environments: a first observation, moves as text, a result.

A game is a class with `reset` and `step`; prompts, disjoint splits, levels, reading moves, illegal
moves and the result are here. A hash of the first observation decides whether a game is held out:
no position that training starts from is.
"""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from groupwise.environments.base import Environment, Judged
from groupwise.environments.episode import Episode
from groupwise.environments.generated import LEVELS, MAX_IDLE, Level, is_heldout
from groupwise.environments.identity import prompt_id
from groupwise.errors import RecipeError
from groupwise.randomness import generator, stream_key
from groupwise.types import Message, Outcome, Prompt, Score
from groupwise.verifiers import VerifierSettings, compose
from groupwise.verifiers.answers.extraction import after_reasoning, last_tagged


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a move. `ended` is None while the game continues, otherwise how it ended.

    The rewards of a game add up to its score: 1 and above is a success.
    """

    observation: str
    reward: float = 0.0
    ended: str | None = None


class Game(ABC):
    """One game, from one starting position; single use. `rules` open the prompt.

    `draw` is the game's own random generator: the same game answers the same moves alike.
    """

    rules: ClassVar[str]

    def __init__(self, level: Level, draw: random.Random) -> None:
        self.level = level
        self.draw = draw

    @abstractmethod
    def reset(self) -> str:
        """The first observation."""

    @abstractmethod
    def step(self, move: str) -> Step:
        """Plays one of `moves()`."""

    @abstractmethod
    def moves(self) -> Sequence[str]:
        """The legal moves, in lower case."""


class GameSettings(BaseModel):
    """The arguments that every game has; a subclass names its game."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    environment_name: ClassVar[str]
    game: ClassVar[type[Game]]

    level: str = Field(
        default="easy",
        pattern="^(easy|medium|hard|mixed)$",
        description="easy, medium, hard, or mixed: a third of each, with the column `level`.",
    )
    num_train: int = Field(default=400, ge=1, description="Training games.")
    num_heldout: int = Field(default=100, ge=0, description="Held-out games.")
    max_illegal: int = Field(
        default=2, ge=0, description="Illegal moves that are pointed out; the next one loses."
    )
    turn_rewards: bool = Field(
        default=False,
        description="Whether every turn's reward is kept as a step, for process supervision.",
    )
    system: str | None = Field(default=None, description="A system message.")


MakeGame = Callable[[Level, random.Random], Game]


class GameEnvironment(Environment):
    """Games of one kind. Each prompt's column `game` is the key of its noise."""

    judged: Judged = "all"

    def __init__(
        self,
        name: str,
        make: MakeGame,
        settings: GameSettings,
        seed: int,
        verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
    ) -> None:
        """Raises RecipeError if there are too few starting positions for both splits."""
        own = VerifierSettings(name="play", arguments={"turns": settings.turn_rewards})
        splits = _games(name, make, settings, seed)
        facts = {"arguments": settings.model_dump(mode="json"), "duplicates": 0, "overlap": 0}
        super().__init__(name, compose(verifiers or [own]), splits, facts)
        self.make = make
        self.settings = settings

    def start(self, prompt: Prompt) -> Episode:
        game = self.make(prompt.columns["level"], random.Random(prompt.columns["game"]))
        return GameEpisode(prompt, game, self.settings.max_illegal)


class GameEpisode(Episode):
    """One game; every completion is a move."""

    def __init__(self, prompt: Prompt, game: Game, max_illegal: int) -> None:
        super().__init__(prompt)
        self.game = game
        self.max_illegal = max_illegal
        self.illegal = 0
        self.ended: str | None = None
        game.reset()

    def next(self, completion: str) -> Sequence[Message] | None:
        legal = self.game.moves()
        move = read_move(completion, legal)
        if move is None:
            self.rewards.append(0.0)
            self.counts["illegal_moves"] += 1
            self.illegal += 1
            if self.illegal > self.max_illegal:
                self.ended = "lost by illegal moves"
                return None
            return _messages(f"That is not a legal move. Legal moves: {', '.join(legal)}.")
        step = self.game.step(move)
        self.rewards.append(step.reward)
        self.ended = step.ended
        return None if step.ended is not None else _messages(step.observation)

    def result(self) -> Score:
        total = round(math.fsum(self.rewards), 9)  # sevenths add up to 1
        if self.ended is None:
            return Score(total, "limit" if total < 1 else "correct", "not played to its end")
        outcome: Outcome = "correct" if total >= 1 else "incorrect" if total <= 0 else "partial"
        return Score(total, outcome, self.ended)


def make_game(
    settings: GameSettings,
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The environment of a built-in game."""
    return GameEnvironment(settings.environment_name, settings.game, settings, seed, verifiers)


def read_move(completion: str, legal: Sequence[str]) -> str | None:
    """The move in a completion: in its last `<move>` tag, else the last legal one that it names.

    >>> read_move("Not 3, I take 5.", ["3", "5"]), read_move("<move>9</move> or 3", ["3"])
    ('5', None)
    """
    text = after_reasoning(completion)
    if text is None:
        return None
    tagged = last_tagged(text, "move")
    if tagged is not None:
        return tagged.strip().lower() if tagged.strip().lower() in legal else None
    words = re.findall(r"\w+", text.lower())
    return next((word for word in reversed(words) if word in legal), None)


def _messages(words: str) -> list[Message]:
    return [{"role": "user", "content": words}]


def _games(name: str, make: MakeGame, settings: GameSettings, seed: int) -> dict[str, list[Prompt]]:
    """Both splits' prompts, levels in turn where they are mixed."""
    levels = LEVELS if settings.level == "mixed" else (settings.level,)
    wanted = {"train": settings.num_train, "heldout": settings.num_heldout}
    found: dict[str, list[Prompt]] = {"train": [], "heldout": []}
    attempt = idle = 0
    while any(len(found[split]) < wanted[split] for split in wanted):
        level: Level = levels[attempt % len(levels)]  # type: ignore[assignment]
        key = stream_key(seed, "data", name, level, attempt)
        attempt, idle = attempt + 1, idle + 1
        observation = make(level, random.Random(key)).reset()
        split = "heldout" if is_heldout(seed, name, observation) else "train"
        if len(found[split]) < wanted[split]:
            messages = _opening(make, settings, level, observation)
            columns = {"level": level, "game": key}
            found[split].append(Prompt(prompt_id(messages, answer=key), messages, columns=columns))
            idle = 0
        if idle > MAX_IDLE:
            raise RecipeError(
                f"environment {name!r}, level {settings.level!r}: too few starting positions to "
                "hold some of them out; give num_heldout = 0 or another level"
            )
    return found


def _opening(
    make: MakeGame, settings: GameSettings, level: Level, observation: str
) -> tuple[Message, ...]:
    rules = make(level, generator(0, "data", "rules")).rules
    user: Message = {"role": "user", "content": f"{rules}\n\n{observation}"}
    if settings.system is None:
        return (user,)
    return ({"role": "system", "content": settings.system}, user)
