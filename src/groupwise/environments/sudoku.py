"""Sudoku of 4 times 4 with one solution each.

All 288 filled grids are known, so a puzzle's solutions are counted by comparing. A solution is in
training or held out, with all puzzles made from it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.generated import GeneratedSettings, Level, Task, bound, generated
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"num_empty": 5},
    "medium": {"num_empty": 8},
    "hard": {"num_empty": 11},
}


class SudokuSettings(GeneratedSettings):
    """The arguments of `sudoku`; what is not set comes from the level."""

    num_empty: int | None = Field(
        default=None,
        ge=1,
        le=12,
        description="Empty cells of the 16; 12 is the most that can leave one solution.",
    )


def make_sudoku(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `sudoku` environment."""
    settings = validated(SudokuSettings, arguments, "environment 'sudoku'")

    def draw(random: random.Random, level: Level) -> Task | None:
        return _task(random, bound(settings, LEVELS, "num_empty", level))

    return generated("sudoku", settings, draw, seed, verifiers or [VerifierSettings(name="sudoku")])


def _task(random: random.Random, num_empty: int) -> Task | None:
    grid = random.choice(grids())
    puzzle = list(grid)
    cells = list(range(16))
    random.shuffle(cells)
    for cell in cells:
        if puzzle.count(".") == num_empty:
            break
        puzzle[cell] = "."
        if num_solutions("".join(puzzle)) > 1:
            puzzle[cell] = grid[cell]
    if puzzle.count(".") < num_empty:
        return None
    rows = _rows("".join(puzzle))
    question = (
        "Fill the empty cells (.) of this 4x4 sudoku, so that every row, every column and every "
        "2x2 box holds 1, 2, 3 and 4:\n" + "\n".join(rows) + "\nAnswer with all four rows."
    )
    return Task(question, "\n".join(_rows(grid)), grid, {"puzzle": rows, "num_empty": num_empty})


def num_solutions(puzzle: str) -> int:
    """How many filled grids agree with a puzzle of 16 cells, row by row, `.` for an empty one.

    >>> num_solutions("." * 16), num_solutions("1234" + "." * 12)
    (288, 12)
    """
    agreeing = (1 << len(grids())) - 1
    for cell, digit in enumerate(puzzle):
        if digit != ".":
            agreeing &= _holding()[cell, digit]
    return agreeing.bit_count()


@cache
def _holding() -> dict[tuple[int, str], int]:
    """For a cell and a digit, the grids that hold it there: bit g for grid g."""
    return {
        (cell, digit): sum(
            1 << number for number, grid in enumerate(grids()) if grid[cell] == digit
        )
        for cell in range(16)
        for digit in "1234"
    }


@cache
def grids() -> tuple[str, ...]:
    """The 288 filled grids, in order."""
    rows = ["".join(each) for each in itertools.permutations("1234")]
    tops = [first + second for first in rows for second in rows if _half(first, second)]
    return tuple(
        top + bottom
        for top in tops
        for bottom in tops
        if all(len({*top[column::4], *bottom[column::4]}) == 4 for column in range(4))
    )


def _half(first: str, second: str) -> bool:
    """Whether two rows make two complete boxes."""
    return not (set(first[:2]) & set(second[:2]) or set(first[2:]) & set(second[2:]))


def _rows(grid: str) -> list[str]:
    return [grid[start : start + 4] for start in range(0, 16, 4)]
