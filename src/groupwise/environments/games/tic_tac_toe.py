"""Tic-tac-toe against a seeded opponent, from a position in which some moves have been made.

easy: four moves made, the opponent plays at random. medium: two made, half of its moves are the
best. hard: two made, all of them are. A win is 1, a draw 0.5, a loss 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from groupwise.environments.games.base import Game, GameSettings, Step
from groupwise.environments.generated import Level

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
MOVES_MADE: dict[Level, int] = {"easy": 4, "medium": 2, "hard": 2}
BEST_MOVES: dict[Level, float] = {"easy": 0.0, "medium": 0.5, "hard": 1.0}


class TicTacToe(Game):
    """The policy is X and to move."""

    rules: ClassVar[str] = (
        "We play tic-tac-toe. You are X, I am O. Three in a row, a column or a diagonal win. Free "
        "cells show their number. Answer with the number of the cell that you take."
    )

    def __init__(self, level: Level, draw: random.Random) -> None:
        super().__init__(level, draw)
        self.board = "." * 9

    def reset(self) -> str:
        while True:
            self.board = "." * 9
            for number in range(MOVES_MADE[self.level]):
                self._put(self.draw.choice(_free(self.board)), "XO"[number % 2])
            if winner(self.board) is None:
                return self.shown()

    def moves(self) -> Sequence[str]:
        return [str(cell + 1) for cell in _free(self.board)]

    def step(self, move: str) -> Step:
        self._put(int(move) - 1, "X")
        if winner(self.board) is None and _free(self.board):
            self._put(self._answer(), "O")
        won = winner(self.board)
        if won is not None:
            return Step(self.shown(), float(won == "X"), "won" if won == "X" else "lost")
        if not _free(self.board):
            return Step(self.shown(), 0.5, "a draw")
        return Step(self.shown())

    def shown(self) -> str:
        """The board as three lines, free cells by their numbers."""
        cells = [str(at + 1) if cell == "." else cell for at, cell in enumerate(self.board)]
        return "\n".join(" ".join(cells[start : start + 3]) for start in (0, 3, 6))

    def _put(self, cell: int, side: str) -> None:
        self.board = self.board[:cell] + side + self.board[cell + 1 :]

    def _answer(self) -> int:
        free = _free(self.board)
        if self.draw.random() >= BEST_MOVES[self.level]:
            return self.draw.choice(free)
        values = {cell: -_value(_with(self.board, cell, "O"), "X") for cell in free}
        best = max(values.values())
        return self.draw.choice([cell for cell in free if values[cell] == best])


def winner(board: str) -> str | None:
    """X, O, or None where no line is full."""
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
    return max((-_value(_with(board, cell, side), other) for cell in _free(board)), default=0)


def _with(board: str, cell: int, side: str) -> str:
    return board[:cell] + side + board[cell + 1 :]


def _free(board: str) -> list[int]:
    return [cell for cell, side in enumerate(board) if side == "."]


class TicTacToeSettings(GameSettings):
    """The arguments of `tic_tac_toe`."""

    environment_name: ClassVar = "tic_tac_toe"
    game: ClassVar = TicTacToe
