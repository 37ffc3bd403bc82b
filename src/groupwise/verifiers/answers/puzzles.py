"""Puzzles judged by their rules, not by one solution: `countdown`, `sudoku`.

The prompt's columns state the puzzle; its gold answer, where there is one, is only a solution that
must be accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import no_answer
from groupwise.verifiers.answers.expressions import Expression, parse_expression
from groupwise.verifiers.answers.final_answer import FinalAnswer

_DRESSING = re.compile(r"^(?:[$`*\s]|\\[(\[])+|(?:[$`*\s.,;]|\\[)\]])+$")
_WHOLE = re.compile(r"\s*(-?\d{1,18})(?:\.0+)?\s*")
_MAX_SIDES = 4
_FRAME = re.compile(r"```\w*|\\(?:begin|end)\{\w+\*?\}(?:\{[lcr|]*\})?|\\hline")
_RULE = re.compile(r"[\s|,;:/'\"\[\](){}+\-_=*`$&\\]+")


class Countdown(FinalAnswer):
    """An expression of the offered numbers, each at most once, that equals the target.

    Only + - * / and parentheses. `= 24` behind it, or `24 =` before it, is read and must be true;
    of several expressions each must be right. The parser is our own (`expressions.py`): nothing is
    executed. Columns: the numbers, the target, and `operations` (a text as `+-*`) where not all
    four are allowed.
    """

    verifier_name: ClassVar[str] = "countdown"

    numbers_column: str = Field(
        default="numbers", min_length=1, description="The column with the offered numbers."
    )
    target_column: str = Field(
        default="target", min_length=1, description="The column with the target."
    )
    use_all: bool = Field(
        default=False, description="Whether every number must be used, instead of may."
    )
    legal: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="What an expression within the rules earns that has another value.",
    )

    @property
    def needs_answer(self) -> bool:
        return False

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.numbers_column, self.target_column})

    def problem(self, prompt: Prompt) -> str | None:
        numbers, target = self._task(prompt)
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
        if not numbers or not whole or not isinstance(target, int):
            return f"numbers {numbers!r:.60} and target {target!r:.20} are not whole numbers"
        return None

    def _task(self, prompt: Prompt) -> tuple[list[Any], Any]:
        numbers = prompt.columns.get(self.numbers_column) or []
        return list(numbers), prompt.columns.get(self.target_column)

    def judge(self, given: str, prompt: Prompt) -> Score:
        offered, target = self._task(prompt)
        try:
            expressions, stated = _sides(_DRESSING.sub("", given))
        except ValueError as error:
            return no_answer(f"no expression: {error}"[:120])
        except ZeroDivisionError:
            return Score(0.0, "incorrect", "it divides by zero")
        for expression in expressions:
            objection = self._objection(expression, offered, prompt)
            if objection is not None:
                return Score(0.0, "incorrect", objection)
        for expression in expressions:
            if expression.value != target:
                reason = f"it equals {_short(expression)}, not {target}"
                return Score(self.legal, "partial" if self.legal else "incorrect", reason)
        for number in stated:
            if number != target:
                reason = f"it equals {target}, and {number} is written beside it"
                return Score(0.0, "incorrect", reason)
        return Score(1.0, "correct", f"it equals {target}")

    def _objection(
        self, expression: Expression, offered: Sequence[int], prompt: Prompt
    ) -> str | None:
        used, there = Counter(expression.numbers), Counter(offered)
        for number, count in used.items():
            if count > there[number]:
                return f"{number} is used {count} times and offered {there[number]} times"
        if self.use_all and used != there:
            return f"not every number is used: {sorted((there - used).elements())} left over"
        allowed = prompt.columns.get("operations") or "+-*/"
        forbidden = sorted(expression.operations - set(allowed))
        return f"{' '.join(forbidden)} is not among {' '.join(allowed)}" if forbidden else None


class Sudoku(FinalAnswer):
    """A filled grid: every given in its place, every row, column and box without a repetition.

    The column `puzzle` is a list of rows as texts, any character but 1 to n an empty cell; n is 4
    or 9. Cells may be separated by blanks, commas, bars or rules.
    """

    verifier_name: ClassVar[str] = "sudoku"

    puzzle_column: str = Field(
        default="puzzle", min_length=1, description="The column with the puzzle's rows."
    )

    @property
    def needs_answer(self) -> bool:
        return False

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.puzzle_column})

    def problem(self, prompt: Prompt) -> str | None:
        rows = self._rows(prompt)
        if len(rows) not in (4, 9) or any(len(row) != len(rows) for row in rows):
            return "the puzzle is not a square of 4 or 9 rows"
        return None

    def _rows(self, prompt: Prompt) -> list[str]:
        return [str(row) for row in prompt.columns.get(self.puzzle_column) or []]

    def num_lines(self, prompt: Prompt) -> int:
        return len(self._rows(prompt))

    def judge(self, given: str, prompt: Prompt) -> Score:
        puzzle = "".join(self._rows(prompt))
        size = len(self._rows(prompt))
        grid = _RULE.sub("", _FRAME.sub(" ", given))
        digits = "123456789"[:size]
        if len(grid) != size * size or any(cell not in digits for cell in grid):
            return no_answer(f"not a grid of {size} times {size} digits from 1 to {size}")
        for cell, want in enumerate(puzzle):
            if want in digits and grid[cell] != want:
                place = f"row {cell // size + 1}, column {cell % size + 1}"
                return Score(0.0, "incorrect", f"{place} must stay {want}")
        for name, cells in _units(size):
            if len({grid[cell] for cell in cells}) < size:
                return Score(0.0, "incorrect", f"{name} repeats a digit")
        return Score(1.0, "correct", "every row, column and box is complete")


def _sides(text: str) -> tuple[list[Expression], list[int]]:
    """The expressions between the signs of equality, and the numbers that stand there alone.

    A lone number is an expression where nothing else is. `ValueError` where one cannot be read.
    """
    sides = text.split("=")
    if len(sides) > _MAX_SIDES:
        raise ValueError(f"{len(sides)} sides of an equation")
    alone = [match and int(match.group(1)) for match in map(_WHOLE.fullmatch, sides)]
    expressions = [parse_expression(side) for side, number in zip(sides, alone) if number is None]
    stated = [number for number in alone if number is not None]
    if not expressions:
        expressions = [parse_expression(sides[0])]
    return expressions, stated


def _units(size: int) -> list[tuple[str, list[int]]]:
    """Rows, columns and boxes as lists of cells, numbered row by row from 0."""
    box = 2 if size == 4 else 3
    places = range(size)
    units: list[tuple[str, list[int]]] = []
    for each in places:
        units.append((f"row {each + 1}", [each * size + place for place in places]))
        units.append((f"column {each + 1}", [place * size + each for place in places]))
        top, left = each // box * box, each % box * box
        cells = [(top + place // box) * size + left + place % box for place in places]
        units.append((f"box {each + 1}", cells))
    return units


def _short(expression: Expression) -> str:
    text = str(expression.value)
    return text if len(text) <= 40 else text[:37] + "..."
