"""Arithmetic problems: chains of operations, all of them or drawn, split without overlap.

A problem starts with a number and applies operations from left to right; every intermediate result
stays within bounds. Problems of one `family` (3+4 and 4+3) go to the same split.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.errors import RecipeError
from groupwise.randomness import generator, stream_key

SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*"}
APPLIED = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}
ENUMERABLE = 30_000
"""Spaces up to this many problems are listed whole; larger ones are drawn from."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`start`, then (operation, operand) pairs applied in order.

    >>> problem = Problem(3, (("add", 4), ("multiply", 2)))
    >>> problem.value, problem.expression, problem.compact
    (14, '(3 + 4) * 2', '(3+4)*2')
    """

    start: int
    steps: tuple[tuple[str, int], ...]

    @property
    def values(self) -> list[int]:
        """The start and every result on the way; the last one is the answer."""
        values = [self.start]
        for operation, operand in self.steps:
            values.append(APPLIED[operation](values[-1], operand))
        return values

    @property
    def value(self) -> int:
        return self.values[-1]

    @property
    def operands(self) -> tuple[int, ...]:
        return (self.start, *(operand for _, operand in self.steps))

    @property
    def expression(self) -> str:
        text = str(self.start)
        summed = False
        for operation, operand in self.steps:
            if operation == "multiply" and summed:
                text = f"({text})"
            summed = operation != "multiply"
            text = f"{text} {SYMBOLS[operation]} {operand}"
        return text

    @property
    def compact(self) -> str:
        return self.expression.replace(" ", "")

    def family(self, ordered: bool) -> str:
        """What is held out together; unless `ordered`, 3+4 and 4+3 are."""
        operation, operand = self.steps[0]
        first = (self.start, operand)
        if not ordered and operation in ("add", "multiply"):
            first = (min(first), max(first))
        return f"{first}{operation}{self.steps[1:]}"


@dataclass(frozen=True, slots=True)
class Space:
    """The problems within bounds: operands and every result on the way."""

    operations: tuple[str, ...]
    min_operand: int
    max_operand: int
    min_value: int
    max_value: int
    min_operations: int = 1
    max_operations: int = 1

    @property
    def size_bound(self) -> int:
        """Problems at most, before the bounds on results."""
        choices = self.max_operand - self.min_operand + 1
        lengths = range(self.min_operations, self.max_operations + 1)
        return sum(choices * (choices * len(self.operations)) ** length for length in lengths)

    def contains(self, problem: Problem) -> bool:
        return all(self.min_value <= value <= self.max_value for value in problem.values)

    def all(self) -> Iterator[Problem]:
        """Every problem, in a fixed order."""
        operands = range(self.min_operand, self.max_operand + 1)
        for length in range(self.min_operations, self.max_operations + 1):
            for start in operands:
                choices = itertools.product(self.operations, operands)
                for steps in itertools.product(choices, repeat=length):
                    problem = Problem(start, steps)
                    if self.contains(problem):
                        yield problem

    def drawn(self, seed: int, num: int) -> list[Problem]:
        """`num` distinct problems; `RecipeError` where the space seems to hold fewer."""
        random = generator(seed, "data", "arithmetic")
        found: dict[Problem, None] = {}
        for _ in range(200 * num + 10_000):
            length = random.randint(self.min_operations, self.max_operations)
            problem = Problem(random.randint(self.min_operand, self.max_operand), ())
            for _ in range(length):
                operation = random.choice(self.operations)
                step = (operation, random.randint(self.min_operand, self.max_operand))
                problem = Problem(problem.start, (*problem.steps, step))
                if not self.min_value <= problem.value <= self.max_value:
                    break
            if len(problem.steps) == length and self.contains(problem):
                found[problem] = None
            if len(found) == num:
                return list(found)
        raise RecipeError(
            f"environment.num_train + environment.num_heldout asks for {num} problems, but only "
            f"{len(found)} were found within the bounds; ask for fewer, or raise max_operand or "
            "max_value"
        )


def split_problems(
    space: Space, seed: int, num_train: int | None, num_heldout: int, ordered: bool
) -> tuple[list[Problem], list[Problem]]:
    """Training and held-out problems, no family in both; a function of the seed.

    `num_train` None takes all that the held-out ones leave (2000 where the space is too large to
    list). `RecipeError` where there are not enough.
    """
    if space.size_bound <= ENUMERABLE:
        problems: Sequence[Problem] = list(space.all())
    else:
        problems = space.drawn(seed, (num_train or 2000) + num_heldout + num_heldout // 2)
    families: dict[str, list[Problem]] = {}
    for problem in problems:
        families.setdefault(problem.family(ordered), []).append(problem)
    order = sorted(families, key=lambda family: stream_key(seed, "data", "split", family))
    heldout, train = list[Problem](), list[Problem]()
    for family in order:
        (heldout if len(heldout) < num_heldout else train).extend(families[family])
    heldout = heldout[:num_heldout]
    wanted = len(train) if num_train is None else num_train
    if len(heldout) < num_heldout or len(train) < max(wanted, 1):
        raise RecipeError(
            f"environment.num_heldout = {num_heldout} and environment.num_train = {num_train} do "
            f"not fit: the bounds give {len(problems)} problems; num_heldout = "
            f"{max(len(problems) // 5, 1)} would"
        )
    return train[:wanted], heldout
