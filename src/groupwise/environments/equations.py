"""Linear equations with whole solutions: one step, both sides, brackets, two unknowns.

The name of the unknown is drawn and does not make a task another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.generated import GeneratedSettings, Level, Task, bound, generated
from groupwise.verifiers import VerifierSettings
from groupwise.verifiers.core.names import validated

Form = Literal["simple", "both_sides", "brackets", "system"]

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"forms": ("simple",), "max_coefficient": 9, "max_solution": 10},
    "medium": {"forms": ("both_sides", "brackets"), "max_coefficient": 12, "max_solution": 20},
    "hard": {"forms": ("system",), "max_coefficient": 12, "max_solution": 30},
}
_UNKNOWNS = "xyztkmnp"


class EquationsSettings(GeneratedSettings):
    """The arguments of `equations`; what is not set comes from the level."""

    forms: tuple[Form, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which of simple (3x + 4 = 10), both_sides, brackets, system (two unknowns).",
    )
    max_coefficient: int | None = Field(
        default=None, ge=3, le=1000, description="Largest coefficient, without its sign."
    )
    max_solution: int | None = Field(
        default=None, ge=2, le=10_000, description="Largest solution, without its sign."
    )


def make_equations(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `equations` environment."""
    settings = validated(EquationsSettings, arguments, "environment 'equations'")

    def draw(random: random.Random, level: Level) -> Task | None:
        form: Form = random.choice(bound(settings, LEVELS, "forms", level))
        numbers = _Numbers(
            random,
            bound(settings, LEVELS, "max_coefficient", level),
            bound(settings, LEVELS, "max_solution", level),
        )
        return _MAKERS[form](numbers)

    own = VerifierSettings(name="assignment")
    return generated("equations", settings, draw, seed, verifiers or [own])


class _Numbers:
    """Draws of a task's numbers and names within its bounds."""

    def __init__(self, draw: random.Random, max_coefficient: int, max_solution: int) -> None:
        self.draw = draw
        self.max_coefficient = max_coefficient
        self.max_solution = max_solution

    def coefficient(self, least: int = 1) -> int:
        """Not 0; its size at least `least`."""
        return self.draw.choice((-1, 1)) * self.draw.randint(least, self.max_coefficient)

    def solution(self) -> int:
        return self.draw.randint(-self.max_solution, self.max_solution)

    def names(self, num: int) -> list[str]:
        return self.draw.sample(_UNKNOWNS, num)


def _simple(numbers: _Numbers) -> Task | None:
    (name,), value = numbers.names(1), numbers.solution()
    a, b = numbers.coefficient(2), numbers.coefficient()
    left = f"{term(a, name)}{term(b, first=False)}"
    return _single("simple", f"{left} = {a * value + b}", name, value)


def _both_sides(numbers: _Numbers) -> Task | None:
    (name,), value = numbers.names(1), numbers.solution()
    a, b, c = numbers.coefficient(2), numbers.coefficient(), numbers.coefficient()
    if a == c:
        return None
    d = (a - c) * value + b
    left = f"{term(a, name)}{term(b, first=False)}"
    right = f"{term(c, name)}{term(d, first=False) if d else ''}"
    return _single("both_sides", f"{left} = {right}", name, value)


def _brackets(numbers: _Numbers) -> Task | None:
    (name,), value = numbers.names(1), numbers.solution()
    a, b, c = numbers.coefficient(2), numbers.coefficient(), numbers.coefficient()
    if a == c:
        return None
    d = a * (value + b) - c * value
    left = f"{a}({name}{term(b, first=False)})"
    right = f"{term(c, name)}{term(d, first=False) if d else ''}"
    return _single("brackets", f"{left} = {right}", name, value)


def _system(numbers: _Numbers) -> Task | None:
    first, second = sorted(numbers.names(2))
    x, y = numbers.solution(), numbers.solution()
    a, b, c, d = (numbers.coefficient() for _ in range(4))
    if a * d == b * c:
        return None
    rows = [
        f"{term(p, first)}{term(q, second, first=False)} = {p * x + q * y}"
        for p, q in ((a, b), (c, d))
    ]
    question = (
        f"Solve for {first} and {second}:\n" + "\n".join(rows) + "\n"
        f'Answer in the form "{first} = ..., {second} = ...".'
    )
    family = str(sorted([(a, b, a * x + b * y), (c, d, c * x + d * y)]))
    return Task(question, f"{first} = {x}, {second} = {y}", family, {"form": "system"})


def _single(form: Form, equation: str, name: str, value: int) -> Task:
    question = f'Solve for {name}: {equation}\nAnswer in the form "{name} = ...".'
    return Task(question, f"{name} = {value}", equation.replace(name, "x"), {"form": form})


def term(number: int, name: str = "", first: bool = True) -> str:
    """A term of a sum as it is written, with its sign in front.

    >>> term(-1, "x"), term(3, "x", first=False), term(-4, first=False)
    ('-x', ' + 3x', ' - 4')
    """
    size = "" if name and abs(number) == 1 else str(abs(number))
    if first:
        return ("-" if number < 0 else "") + size + name
    return (" - " if number < 0 else " + ") + size + name


_MAKERS: dict[str, Callable[[_Numbers], Task | None]] = {
    "simple": _simple,
    "both_sides": _both_sides,
    "brackets": _brackets,
    "system": _system,
}
