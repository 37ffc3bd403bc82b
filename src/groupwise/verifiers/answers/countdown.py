"""The verifier `countdown`: an expression of the offered numbers that equals the target."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import FinalAnswer
from groupwise.verifiers.answers.arithmetic import numbers_in, operations_in, parse
from groupwise.verifiers.answers.evaluator import evaluate
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import BadAnswer, no_answer, shorten

_DRESSING = re.compile(r"^(?:[$`*\s]|\\[(\[])+|(?:[$`*\s.,;]|\\[)\]])+$")
_WHOLE = re.compile(r"\s*(-?\d{1,18})(?:\.0+)?\s*")
_FRACTION = re.compile(r"frac\s*\{[^{}]*\}\s*\{")
_MAX_SIDES = 4
_MAX_LENGTH = 300


class Countdown(FinalAnswer):
    """An expression of the offered numbers, each at most once, that equals the target.

    Only + - * / and parentheses. `= 24` behind it, or `24 =` before it, is read and must be true;
    of several expressions each must be right. Nothing is executed (`arithmetic.py`). Columns: the
    numbers, the target, and `operations` (a text as `+-*`) where not all four are allowed.
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

    def score_case(self, case: Case) -> Score:
        numbers, target = self._task(case.prompt)
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
        if not numbers or not whole or not isinstance(target, int):
            raise BadAnswer(
                f"numbers {numbers!r:.60} and target {target!r:.20} are not whole numbers"
            )
        given = self.located(case.whole)
        return given if isinstance(given, Score) else self.judge(given, "", case.prompt)

    def gold_completion(self, prompt: Prompt) -> str | None:
        return None if prompt.answer is None else super().gold_completion(prompt)

    def _task(self, prompt: Prompt) -> tuple[list[Any], Any]:
        numbers = prompt.columns.get(self.numbers_column)
        numbers = list(numbers) if isinstance(numbers, (list, tuple)) else []
        return numbers, prompt.columns.get(self.target_column)

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        offered, target = self._task(prompt)
        try:
            expressions, stated = _sides(_DRESSING.sub("", given))
            values = [evaluate(each) for each in expressions]
        except ValueError as error:
            return no_answer(f"no expression: {error}"[:120])
        except ZeroDivisionError:
            return Score(0.0, "incorrect", "it divides by zero")
        objections = (self._objection(each, offered, prompt) for each in expressions)
        if objection := next(filter(None, objections), None):
            return Score(0.0, "incorrect", objection)
        value = next((each for each in values if each != target), target)
        if value != target:
            reason = f"it equals {shorten(str(value), 40)}, not {target}"
            return Score(self.legal, "partial" if self.legal else "incorrect", reason)
        number = next((each for each in stated if each != target), target)
        if number != target:
            reason = f"it equals {target}, and {number} is written beside it"
            return Score(0.0, "incorrect", reason)
        return Score(1.0, "correct", f"it equals {target}")

    def _objection(
        self, expression: ast.expr, offered: Sequence[int], prompt: Prompt
    ) -> str | None:
        used, there = Counter(numbers_in(expression)), Counter(map(Fraction, offered))
        for number, count in used.items():
            if count > there[number]:
                return f"{number} is used {count} times and offered {there[number]} times"
        if self.use_all and used != there:
            left = sorted(int(each) for each in (there - used).elements())
            return f"not every number is used: {left} left over"
        allowed = prompt.columns.get("operations") or "+-*/"
        forbidden = sorted(operations_in(expression) - set(allowed))
        return f"{' '.join(forbidden)} is not among {' '.join(allowed)}" if forbidden else None


def _sides(text: str) -> tuple[list[ast.expr], list[int]]:
    """The expressions between the signs of equality, and the numbers that stand there alone.

    A lone number is an expression where nothing else is. `ValueError` where one cannot be read.
    """
    sides = text.split("=")
    if len(sides) > _MAX_SIDES or len(text) > _MAX_LENGTH:
        raise ValueError(f"{len(sides)} sides of an equation, {len(text)} characters")
    alone = [match and int(match.group(1)) for match in map(_WHOLE.fullmatch, sides)]
    expressions = [_expression(side) for side, number in zip(sides, alone) if number is None]
    stated = [number for number in alone if number is not None]
    return expressions or [_expression(sides[0])], stated


def _expression(text: str) -> ast.expr:
    """Whole numbers with + - * / between them; no powers, signs, decimals or names."""
    node = parse(text)
    if operations_in(node) & {"**", "sign"} or set(".[{") & set(_FRACTION.sub("", text)):
        raise ValueError("a power, a sign, a decimal or another bracket")
    if any(isinstance(each, ast.Name) for each in ast.walk(node)):
        raise ValueError("a name")
    return node
