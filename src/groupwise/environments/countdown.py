"""Countdown: reach a target with the offered numbers, each at most once.

Every target is made from all of the numbers or all but one, so each task has a solution, though a
shorter one may exist; the verifier `countdown` accepts any. A target is never one of the offered
numbers. Numbers in another order are the same task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field, model_validator

from groupwise.environments.generated import GeneratedSettings, Level, Task, check_range, listed
from groupwise.verifiers import VerifierSettings

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


class CountdownSettings(GeneratedSettings):
    """The arguments of `countdown`; what is not set comes from the level."""

    environment_name: ClassVar = "countdown"
    levels: ClassVar = {
        "easy": {"num_numbers": (3, 3), "max_number": 12, "max_target": 40, "operations": "+-"},
        "medium": {"num_numbers": (4, 4), "max_number": 25, "max_target": 200, "operations": "+-*"},
        "hard": {"num_numbers": (5, 6), "max_number": 100, "max_target": 999, "operations": "+-*/"},
    }

    num_numbers: tuple[int, int] | None = Field(
        default=None, description="Fewest and most numbers offered, as [3, 4]."
    )
    max_number: int | None = Field(
        default=None, ge=3, le=10_000, description="Largest number offered; the smallest is 1."
    )
    max_target: int | None = Field(
        default=None, ge=2, le=1_000_000, description="Largest target; the smallest is 1."
    )
    operations: str | None = Field(
        default=None,
        min_length=1,
        description='Which operations are allowed, as "+-*/".',
    )
    use_all: bool = Field(
        default=False, description="Whether every number must be used, instead of may."
    )
    legal: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="What an expression within the rules earns that misses the target.",
    )

    @model_validator(mode="after")
    def _fits(self) -> CountdownSettings:
        check_range("num_numbers", self.num_numbers, 2, 8)
        given = self.operations or "+"
        if set(given) - set("+-*/") or len(set(given)) < len(given):
            raise ValueError(f'operations = {given!r}: give some of "+-*/", each once, as "+-"')
        return self

    def own_verifiers(self) -> list[VerifierSettings]:
        arguments = {"use_all": self.use_all, "legal": self.legal}
        return [VerifierSettings(name="countdown", arguments=arguments)]

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        fewest, most = self.bound("num_numbers", level)
        operations, max_target = self.bound("operations", level), self.bound("max_target", level)
        largest = self.bound("max_number", level)
        numbers = [random.randint(1, largest) for _ in range(random.randint(fewest, most))]
        num_used = len(numbers) - (0 if self.use_all or len(numbers) == 2 else random.randint(0, 1))
        solution = _combined(random, random.sample(numbers, num_used), operations, max_target)
        if solution is None or solution[1] in numbers or not 1 <= solution[1] <= max_target:
            return None
        expression, target = solution
        how = "exactly" if self.use_all else "at most"
        question = (
            f"Use the numbers {listed(numbers)} to make {target}. Use each number {how} once, "
            f"with {listed([*operations, 'parentheses'])}. Answer with one expression."
        )
        columns = {"numbers": numbers, "target": target, "operations": operations}
        return Task(question, expression, f"{sorted(numbers)}={target}", columns)


def _combined(
    random: random.Random, numbers: Sequence[int], operations: str, largest: int
) -> tuple[str, int] | None:
    """An expression of all the numbers with its value; whole, positive values on the way."""
    pool = [(str(number), number, 3) for number in numbers]
    while len(pool) > 1:
        random.shuffle(pool)
        left, right = pool.pop(), pool.pop()
        sign = random.choice(operations)
        value = _applied(sign, left[1], right[1])
        if value is None or value > 10 * largest:
            return None
        pool.append((_written(sign, left, right), value, _STRENGTH[sign]))
    return pool[0][0], pool[0][1]


def _applied(sign: str, left: int, right: int) -> int | None:
    """The value; None where it is not whole and positive, or the operation does nothing."""
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right if left > right else None
    if right == 1 or (sign == "*" and left == 1):
        return None
    if sign == "*":
        return left * right
    return left // right if left % right == 0 else None


def _written(sign: str, left: tuple[str, int, int], right: tuple[str, int, int]) -> str:
    """Both sides with the parentheses they need."""
    strength = _STRENGTH[sign]
    first = f"({left[0]})" if left[2] < strength else left[0]
    weak = right[2] < strength or (right[2] == strength and sign in "-/")
    second = f"({right[0]})" if weak else right[0]
    return f"{first} {sign} {second}"
