"""A grid world: walk from S to G around walls, one step a turn, within a budget.

easy: 4 x 4, all in sight. medium: 6 x 6, all in sight. hard: 7 x 7, only the cells around in sight.
Each turn's reward is the share of the way that it came closer, so the rewards of a walk that
arrives add up to 1.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from groupwise.environments.games.base import Game, GameSettings, Step
from groupwise.environments.generated import Level

Cell = tuple[int, int]
DIRECTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
SIZES: dict[Level, int] = {"easy": 4, "medium": 6, "hard": 7}
WALLS = 0.25
"""The share of cells that are walls."""


class GridWorld(Game):
    """One map."""

    rules: ClassVar[str] = (
        "Walk to G. You are at P, # are walls, ? is out of sight. Answer with one step: up, down, "
        "left or right."
    )

    def __init__(self, level: Level, draw: random.Random) -> None:
        super().__init__(level, draw)
        self.size = SIZES[level]
        self.walls: frozenset[Cell] = frozenset()
        self.place: Cell = (0, 0)
        self.goal: Cell = (0, 0)
        self.ways: dict[Cell, int] = {}
        self.length = 0
        self.left = 0

    def reset(self) -> str:
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        while True:
            self.walls = frozenset(cell for cell in cells if self.draw.random() < WALLS)
            self.place, self.goal = self.draw.sample(cells, 2)
            self.walls -= {self.place, self.goal}
            self.ways = self._ways()
            self.length = self.ways.get(self.place, 0)
            if self.length >= self.size // 2:
                self.left = 2 * self.length + 2
                return self.shown()

    def moves(self) -> Sequence[str]:
        return [name for name in DIRECTIONS if self._next(self.place, name) is not None]

    def step(self, move: str) -> Step:
        before = self.ways[self.place]
        self.place = self._next(self.place, move) or self.place
        self.left -= 1
        now = self.ways[self.place]
        ended = "arrived" if not now else None if self.left else "out of steps"
        return Step(self.shown(), (before - now) / self.length, ended)

    def shown(self) -> str:
        """The map as far as it is in sight, and the steps left."""
        rows = [
            "".join(self._mark((row, column)) for column in range(self.size))
            for row in range(self.size)
        ]
        return "\n".join([*rows, f"Steps left: {self.left}."])

    def _mark(self, cell: Cell) -> str:
        if cell == self.place:
            return "P"
        if cell == self.goal:
            return "G"
        far = max(abs(cell[0] - self.place[0]), abs(cell[1] - self.place[1]))
        if self.level == "hard" and far > 1:
            return "?"
        return "#" if cell in self.walls else "."

    def _next(self, cell: Cell, name: str) -> Cell | None:
        row, column = cell[0] + DIRECTIONS[name][0], cell[1] + DIRECTIONS[name][1]
        inside = 0 <= row < self.size and 0 <= column < self.size
        return (row, column) if inside and (row, column) not in self.walls else None

    def _ways(self) -> dict[Cell, int]:
        """The length of the shortest way to the goal from every cell that has one."""
        found = {self.goal: 0}
        line = deque([self.goal])
        while line:
            cell = line.popleft()
            for name in DIRECTIONS:
                other = self._next(cell, name)
                if other is not None and other not in found:
                    found[other] = found[cell] + 1
                    line.append(other)
        return found


class GridWorldSettings(GameSettings):
    """The arguments of `grid_world`."""

    environment_name: ClassVar = "grid_world"
    game: ClassVar = GridWorld
