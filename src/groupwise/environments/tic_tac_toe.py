"""Tic-tac-toe against a seeded opponent, from a position in which some moves have been made.

easy: four moves made, the opponent plays at random. medium: two made, half of its moves are the
best. hard: two made, all of them are. A win is 1, a draw 0.5, a loss 0. It shows the contract of
several turns: an opponent, illegal moves, rewards of turns, a result.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from pydantic import Field

from groupwise.environments.base import Environment, Judged
from groupwise.environments.episode import Episode
from groupwise.environments.generated import (
    LEVELS,
    MAX_IDLE,
    Level,
    ask,
    chat_prompt,
    is_heldout,
)
from groupwise.environments.identity import prompt_id
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.types import Message, Outcome, Prompt, Score
from groupwise.verifiers import VerifierSettings, VerifierTables, compose
from groupwise.verifiers.answers.extraction import after_reasoning, last_tagged
from groupwise.verifiers.core.names import Arguments

RULES = (
    "We play tic-tac-toe. You are X, I am O. Three in a row, a column or a diagonal win. Free "
    "cells show their number. Answer with the number of the cell that you take."
)
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
MOVES_MADE: dict[Level, int] = {"easy": 4, "medium": 2, "hard": 2}
BEST_MOVES: dict[Level, float] = {"easy": 0.0, "medium": 0.5, "hard": 1.0}


class TicTacToeSettings(Arguments):
    """The arguments of `tic_tac_toe`."""

    level: Literal["easy", "medium", "hard", "mixed"] = Field(
        default="easy",
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


class TicTacToe(Environment):
    """Games from different positions. The column `game` is the key of a game's randomness."""

    judged: Judged = "all"

    def __init__(
        self, settings: TicTacToeSettings, seed: int, verifiers: VerifierTables = ()
    ) -> None:
        """Raises RecipeError if there are too few starting positions for both splits."""
        own = VerifierSettings(name="play", arguments={"turns": settings.turn_rewards})
        facts = {"arguments": settings.model_dump(mode="json"), "duplicates": 0, "overlap": 0}
        splits = _splits(settings, seed)
        super().__init__("tic_tac_toe", compose(verifiers or [own]), splits, facts)
        self.settings = settings

    def start(self, prompt: Prompt) -> Episode:
        return Game(prompt, self.settings.max_illegal)


class Game(Episode):
    """One game; every completion is a move of X. The same moves always get the same answers."""

    def __init__(self, prompt: Prompt, max_illegal: int) -> None:
        super().__init__(prompt)
        self.level: Level = prompt.columns["level"]
        self.draw = random.Random(prompt.columns["game"])
        self.board = opening(self.draw, self.level)
        self.max_illegal = max_illegal
        self.ended: str | None = None

    def next(self, completion: str) -> Sequence[Message] | None:
        legal = [str(cell + 1) for cell in free(self.board)]
        move = read_move(completion, legal)
        if move is None:
            self.rewards.append(0.0)
            self.counts["illegal_moves"] += 1
            if self.counts["illegal_moves"] > self.max_illegal:
                self.ended = "lost by illegal moves"
                return None
            words = f"That is not a legal move. Legal moves: {', '.join(legal)}."
            return [{"role": "user", "content": words}]
        self.board = with_move(self.board, int(move) - 1, "X")
        if winner(self.board) is None and free(self.board):
            self.board = with_move(self.board, self._answer(), "O")
        won = winner(self.board)
        if won is None and free(self.board):
            self.rewards.append(0.0)
            return [{"role": "user", "content": shown(self.board)}]
        self.rewards.append({"X": 1.0, "O": 0.0, None: 0.5}[won])
        self.ended = {"X": "won", "O": "lost", None: "a draw"}[won]
        return None

    def result(self) -> Score:
        total = sum(self.rewards)
        if self.ended is None:
            return Score(total, "limit", "not played to its end")
        outcome: Outcome = "correct" if total == 1 else "partial" if total else "incorrect"
        return Score(total, outcome, self.ended)

    def _answer(self) -> int:
        cells = free(self.board)
        if self.draw.random() >= BEST_MOVES[self.level]:
            return self.draw.choice(cells)
        values = {cell: -_value(with_move(self.board, cell, "O"), "X") for cell in cells}
        best = max(values.values())
        return self.draw.choice([cell for cell in cells if values[cell] == best])


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
        return tagged.strip() if tagged.strip() in legal else None
    return next((word for word in reversed(re.findall(r"\w+", text)) if word in legal), None)


def opening(draw: random.Random, level: Level) -> str:
    """A position without a winner, X to move; its nine cells are X, O or a point."""
    while True:
        board = "." * 9
        for number in range(MOVES_MADE[level]):
            board = with_move(board, draw.choice(free(board)), "XO"[number % 2])
        if winner(board) is None:
            return board


def shown(board: str) -> str:
    """The board as three lines, free cells by their numbers."""
    cells = [str(at + 1) if cell == "." else cell for at, cell in enumerate(board)]
    return "\n".join(" ".join(cells[start : start + 3]) for start in (0, 3, 6))


def winner(board: str) -> str | None:
    """X, O, or None if no line is full."""
    for first, second, third in LINES:
        if board[first] != "." and board[first] == board[second] == board[third]:
            return board[first]
    return None


@cache
def _value(board: str, side: str) -> int:
    """The game's value for `side`, who is to move: 1, 0 or -1, by trying everything."""
    if winner(board) is not None:
        return -1
    other = "O" if side == "X" else "X"
    return max((-_value(with_move(board, cell, side), other) for cell in free(board)), default=0)


def with_move(board: str, cell: int, side: str) -> str:
    return board[:cell] + side + board[cell + 1 :]


def free(board: str) -> list[int]:
    return [cell for cell, side in enumerate(board) if side == "."]


def _splits(settings: TicTacToeSettings, seed: int) -> dict[str, list[Prompt]]:
    """Both splits' prompts; a position that training starts from is never held out."""
    levels = LEVELS if settings.level == "mixed" else (settings.level,)
    wanted = {"train": settings.num_train, "heldout": settings.num_heldout}
    found: dict[str, list[Prompt]] = {"train": [], "heldout": []}
    attempt = idle = 0
    while any(len(found[split]) < wanted[split] for split in wanted):
        level = levels[attempt % len(levels)]
        key = stream_key(seed, "data", "tic_tac_toe", level, attempt)
        attempt, idle = attempt + 1, idle + 1
        observation = shown(opening(random.Random(key), level))
        split = "heldout" if is_heldout(seed, "tic_tac_toe", observation) else "train"
        if len(found[split]) < wanted[split]:
            prompt = chat_prompt(
                ask(RULES, f"\n{observation}"),
                system=settings.system,
                columns={"level": level, "game": key},
            )
            found[split].append(replace(prompt, id=prompt_id(prompt.messages, answer=key)))
            idle = 0
        if idle > MAX_IDLE:
            raise RecipeError(
                f"environment 'tic_tac_toe', level {settings.level!r}: too few starting positions "
                "to hold some of them out; give num_heldout = 0 or another level"
            )
    return found
