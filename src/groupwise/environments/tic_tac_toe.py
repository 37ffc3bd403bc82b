"""Tic-tac-toe against a seeded opponent, from a position in which four moves have been made.

A win is 1, a draw 0.5, a loss 0. It shows the contract of several turns: an opponent, illegal
moves, rewards of turns, a result.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from pydantic import Field

from groupwise.environments.base import Environment, Judged
from groupwise.environments.episode import Episode
from groupwise.environments.generated import DrawnSettings, Level, Task
from groupwise.types import Message, Outcome, Prompt, Score
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.answers.extraction import after_reasoning, last_tagged

RULES = (
    "We play tic-tac-toe. You are X, I am O. Three in a row, a column or a diagonal win. Free "
    "cells show their number. Answer with the number of the cell that you take."
)
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class TicTacToe(Environment):
    """Every prompt is the start of a game; its columns are what the game needs to know."""

    judged: Judged = "all"

    def start(self, prompt: Prompt) -> Episode:
        return Game(prompt)


class TicTacToeSettings(DrawnSettings):
    """The arguments of `tic_tac_toe`. The level says how much of the opponent's moves is best."""

    environment_name: ClassVar = "tic_tac_toe"
    environment_class: ClassVar = TicTacToe
    levels: ClassVar = {"easy": {"skill": 0.0}, "medium": {"skill": 0.5}, "hard": {"skill": 1.0}}

    num_train: int = Field(default=400, ge=1, description="Training games.")
    num_heldout: int = Field(default=100, ge=0, description="Held-out games.")
    skill: float | None = Field(
        default=None, ge=0, le=1, description="Share of the opponent's moves that are best ones."
    )
    max_illegal: int = Field(
        default=2, ge=0, description="Illegal moves that are pointed out; the next one loses."
    )
    turn_rewards: bool = Field(
        default=False,
        description="Whether every turn's reward is kept as a step, for process supervision.",
    )

    def own_verifiers(self) -> list[VerifierSettings]:
        return [VerifierSettings(name="play", arguments={"turns": self.turn_rewards})]

    def reply(self, task: Task) -> str:
        return str(free(task.columns["board"])[0] + 1)

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        board = "." * 9
        for side in "XOXO":
            board = with_move(board, random.choice(free(board)), side)
        question = f"{RULES}\n\n{shown(board)}"
        columns = {"board": board, "skill": self.bound("skill", level),
                   "max_illegal": self.max_illegal, "game": random.getrandbits(32)}  # fmt: skip
        return None if winner(board) else Task(question, None, board, columns)


class Game(Episode):
    """One game; every completion is a move of X. The same moves always get the same answers."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__(prompt)
        self.draw = random.Random(prompt.columns["game"])
        self.board: str = prompt.columns["board"]
        self.ended: str | None = None

    def next(self, completion: str) -> Sequence[Message] | None:
        legal = [str(cell + 1) for cell in free(self.board)]
        move = read_move(completion, legal)
        if move is None:
            self.rewards.append(0.0)
            self.counts["illegal_moves"] += 1
            if self.counts["illegal_moves"] > self.prompt.columns["max_illegal"]:
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
        if self.draw.random() >= self.prompt.columns["skill"]:
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
