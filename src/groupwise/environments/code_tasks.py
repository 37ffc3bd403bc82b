"""The `code` environment: write a small function of a list, a text or a number.

A task is a chain of one to four operations, drawn by the seed. Its test cases run in the sandbox;
further ones are held out: the strict verifier scores evaluations with them, training never does.
What the prompt shows is in neither. Functions that do the same are one family, whatever their
words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.checks import check_prompts
from groupwise.environments.functions import (
    ARGUMENTS,
    KINDS,
    TYPES,
    Chain,
    Kind,
    draw_argument,
    draw_chain,
)
from groupwise.environments.generated import (
    DrawnSettings,
    Level,
    Task,
    check_range,
    make_generated,
)
from groupwise.randomness import generator
from groupwise.verifiers import VerifierSettings, VerifierTables, compose


class CodeSettings(DrawnSettings):
    """The arguments of `code`; what is not set comes from the level."""

    environment_name: ClassVar = "code"
    levels: ClassVar = {
        "easy": {"num_operations": (1, 1)},
        "medium": {"num_operations": (2, 2)},
        "hard": {"num_operations": (3, 4)},
    }

    num_train: int = Field(default=200, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=50, ge=0, description="Held-out prompts.")
    kinds: tuple[Kind, ...] = Field(
        default=KINDS,
        min_length=1,
        description="What the functions take: lists, strings, numbers.",
    )
    num_operations: tuple[int, int] | None = Field(
        default=None, description="Fewest and most operations of a function, as [1, 2]."
    )
    wording: Literal["full", "brief"] = Field(
        default="full",
        description="full: sentences. brief: `solve(x): add 7`, for small models.",
    )
    num_shown: int = Field(
        default=2, ge=0, le=5, description="Examples in the prompt, where its wording is full."
    )
    num_tests: int = Field(default=6, ge=1, le=50, description="Cases that the reward is made of.")
    num_hidden: int = Field(
        default=6, ge=0, le=50, description="Cases of the strict verifier; 0 = no strict verifier."
    )
    credit: Literal["all", "fraction"] = Field(
        default="all", description="1 only where all cases pass, or the share that passes."
    )

    @model_validator(mode="after")
    def _fits(self) -> CodeSettings:
        check_range("num_operations", self.num_operations, 1, 6)
        return self

    @property
    def asks(self) -> str:
        return "Answer with one block of Python code." if self.wording == "full" else ""

    def reply(self, task: Task) -> str:
        return f"```python\n{task.answer}```"

    def own_verifiers(self) -> list[VerifierSettings]:
        return [VerifierSettings(name="code", arguments={"credit": self.credit})]

    def draw(self, random: random.Random, level: Level, seed: int) -> Task | None:
        fewest, most = self.bound("num_operations", level)
        kind: Kind = random.choice(self.kinds)
        chain = draw_chain(random, kind, random.randint(fewest, most))
        if chain is None:
            return None
        # The cases depend on the function alone: the same function drawn again is the same
        # question, and is not asked twice.
        num = self.num_shown + self.num_tests + self.num_hidden
        cases = draw_cases(generator(seed, "data", "cases", chain.program("solve")), chain, num)
        if cases is None:
            return None
        shown, rest = cases[: self.num_shown], cases[self.num_shown :]
        tests, hidden = rest[: self.num_tests], rest[self.num_tests :]
        columns: dict[str, Any] = {
            "entry": "solve", "tests": tests, "operations": len(chain.operations),
        }  # fmt: skip
        if hidden:
            columns["hidden_tests"] = hidden
        question = _question(chain, shown)
        if self.wording == "brief":
            question = f"solve(x): {chain.description}"
        return Task(question, chain.program("solve"), f"{kind}: {chain.values()}", columns)


def make_code(settings: CodeSettings, seed: int, verifiers: VerifierTables = ()) -> Environment:
    """The `code` environment; its gold programs run in the sandbox when it is loaded."""
    made = make_generated(settings, seed, verifiers)
    if settings.num_hidden:
        hidden = {"tests_column": "hidden_tests"}
        made.strict = compose([VerifierSettings(name="code", arguments=hidden)])
        check_prompts(made.strict, made.prompts(split="all"), "environment 'code', hidden cases")
    return made


def draw_cases(draw: random.Random, chain: Chain, num: int) -> list[list[Any]] | None:
    """`[[argument], value]` for distinct arguments; None where most values are the same."""
    cases: dict[str, list[Any]] = {}
    function = chain.function()
    while len(cases) < num:
        argument = draw_argument(draw, chain.takes)
        cases[repr(argument)] = [[argument], function(argument)]
    values = [repr(value) for _, value in cases.values()]
    if num > 1 and max(map(values.count, values)) > num // 2:
        return None
    return list(cases.values())


def _question(chain: Chain, shown: Sequence[Sequence[Any]]) -> str:
    lines = [
        f"Write a Python function solve(x: {TYPES[chain.takes]}) -> {TYPES[chain.gives]}. "
        f"It takes {ARGUMENTS[chain.takes]} and does this: {chain.description}. "
        "It returns the result.",
        *(f"solve({argument!r}) == {value!r}" for (argument,), value in shown),
    ]
    return "\n".join(lines)
