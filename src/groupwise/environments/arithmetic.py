"""Seeded arithmetic: from the table of single-digit sums to questions of several steps.

`level` sets the bounds; every bound can also be set by itself. Training and held-out problems never
overlap. The reward reads the last number; if an answer format is asked for, a gated bonus for the
format is added and the strict reading (right inside the format) is reported as its own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.generated import ask, chat_prompt, check_range, from_prompts
from groupwise.environments.problems import Problem, Space, split_problems
from groupwise.errors import RecipeError
from groupwise.randomness import generator
from groupwise.types import Message, Prompt
from groupwise.verifiers import VerifierSettings, VerifierTables
from groupwise.verifiers.core.names import Arguments

Operation = Literal["add", "subtract", "multiply"]
Phrasing = Literal["bare", "question"]
Level = Literal["table", "below_20", "below_100", "products", "multi_step"]

LEVELS: dict[str, dict[str, Any]] = {
    "table": {
        "operations": ("add",), "min_operand": 0, "max_operand": 9, "max_value": 9,
        "num_operations": (1, 1), "phrasing": "bare", "num_train": None, "num_heldout": 11,
    },
    "below_20": {
        "operations": ("add",), "min_operand": 0, "max_operand": 19, "max_value": 19,
        "num_operations": (1, 1), "phrasing": "question", "num_train": None, "num_heldout": 40,
    },
    "below_100": {
        "operations": ("add", "subtract"), "min_operand": 0, "max_operand": 99, "max_value": 99,
        "num_operations": (1, 1), "phrasing": "question", "num_train": 2000,
        "num_heldout": 200,
    },
    "products": {
        "operations": ("multiply",), "min_operand": 2, "max_operand": 12, "max_value": 144,
        "num_operations": (1, 1), "phrasing": "question", "num_train": None,
        "num_heldout": 24,
    },
    "multi_step": {
        "operations": ("add", "subtract", "multiply"), "min_operand": 2, "max_operand": 20,
        "max_value": 200, "num_operations": (2, 3), "phrasing": "question", "num_train": 2000,
        "num_heldout": 200,
    },
}  # fmt: skip
"""What each level sets. `table` is the 55 ordered sums of at most 9."""

INSTRUCTIONS = {
    "none": "",
    "boxed": "Give the final number in \\boxed{}.",
    "tagged": "Give the final number inside <answer></answer> tags.",
}
REPLIES = {
    "none": "{answer}",
    "boxed": "{expression} = {answer}\n\\boxed{{{answer}}}",
    "tagged": "{expression} = {answer}\n<answer>{answer}</answer>",
}
FORMAT_WEIGHT = 0.2
QUESTIONS = (
    "What is {}?", "Calculate {}.", "How much is {}?", "Compute {}.", "Find the value of {}.",
)  # fmt: skip


class ArithmeticSettings(Arguments):
    """The arguments of `arithmetic`; what is not set comes from the level."""

    level: Level = Field(
        default="table",
        description="table, below_20, below_100, products or multi_step: sets the bounds.",
    )
    operations: tuple[Operation, ...] | None = Field(
        default=None, min_length=1, description="Which of add, subtract, multiply."
    )
    min_operand: int | None = Field(default=None, ge=0, description="Smallest operand.")
    max_operand: int | None = Field(default=None, ge=0, description="Largest operand.")
    max_value: int | None = Field(
        default=None, ge=0, description="Largest result, on the way or at the end."
    )
    negative: bool = Field(default=False, description="Whether results may be below 0.")
    num_operations: tuple[int, int] | None = Field(
        default=None, description="Fewest and most operations in a problem, as [1, 3]."
    )
    num_train: int | None = Field(
        default=None,
        ge=1,
        description="Training problems; the table, below_20 and products take all "
        "that are not held out, the other levels 2000.",
    )
    num_heldout: int | None = Field(default=None, ge=0, description="Held-out problems.")
    phrasing: Phrasing | None = Field(
        default=None, description="bare (3+4=) or question (What is 3 + 4?)."
    )
    instructions: Literal["none", "boxed", "tagged"] = Field(
        default="none", description="The answer format that is asked for and, if any, rewarded."
    )
    instructions_text: str | None = Field(
        default=None, description="Words for it in place of the built-in ones."
    )
    system: str | None = Field(default=None, description="A system message.")
    examples: int = Field(
        default=0, ge=0, le=32, description="Solved examples before the question."
    )

    @model_validator(mode="before")
    @classmethod
    def _has_no_stories(cls, values: Any) -> Any:
        for name in ("level", "phrasing"):
            if isinstance(values, Mapping) and values.get(name) in ("word", "mixed"):
                raise ValueError(
                    f"{name} = {values[name]!r} was removed; for problems in words use the "
                    "environment reasoning_gym:gsm_symbolic"
                )
        return values

    @model_validator(mode="after")
    def _fits(self) -> ArithmeticSettings:
        check_range("num_operations", self.num_operations, 1, 6)
        low, high = self.of_level("min_operand"), self.of_level("max_operand")
        if low > high:
            raise ValueError(
                f"min_operand = {low} is above max_operand = {high}; give max_operand = {low + 9}"
            )
        return self

    def of_level(self, name: str) -> Any:
        """A field, or the level's value where it is not set."""
        value = getattr(self, name)
        return LEVELS[self.level][name] if value is None else value

    @property
    def space(self) -> Space:
        """The problems within the bounds."""
        fewest, most = self.of_level("num_operations")
        max_value = self.of_level("max_value")
        return Space(
            operations=tuple(dict.fromkeys(self.of_level("operations"))),
            min_operand=self.of_level("min_operand"),
            max_operand=self.of_level("max_operand"),
            min_value=-max_value if self.negative else 0,
            max_value=max_value,
            min_operations=fewest,
            max_operations=most,
        )


def make_arithmetic(
    settings: ArithmeticSettings, seed: int, verifiers: VerifierTables = ()
) -> Environment:
    """The `arithmetic` environment. Raises RecipeError for arguments that do not fit together."""
    numbers = settings.of_level("num_train"), settings.of_level("num_heldout")
    train, heldout = split_problems(settings.space, seed, *numbers, settings.level == "table")
    if settings.examples and len(train) <= settings.examples:
        raise RecipeError(
            f"environment.examples = {settings.examples} needs more than the {len(train)} training "
            f"problems; give examples = {max(len(train) - 1, 0)}"
        )
    # One more example than asked for, so that no prompt has to show its own solution.
    num = settings.examples + 1 if settings.examples else 0
    examples = {problem: _solved(problem, settings, seed) for problem in train[:num]}
    sides = [
        [_prompt(each, settings, examples, seed) for each in side] for side in (train, heldout)
    ]
    verifiers = verifiers or default_verifiers(settings)
    return from_prompts("arithmetic", settings, sides[0], sides[1], verifiers)


def default_verifiers(settings: ArithmeticSettings) -> list[VerifierSettings]:
    """Last number; and for a format a bonus behind a right number and the strict reading."""
    kind, found = settings.instructions, [VerifierSettings(name="number")]
    if kind != "none":
        bonus = {"weight": FORMAT_WEIGHT, "gate": "number:correct", "arguments": {"kind": kind}}
        found.append(VerifierSettings(name="format", **bonus))
        found.append(VerifierSettings(name=kind, label="strict", weight=0.0))
    return found


def _question(problem: Problem, settings: ArithmeticSettings, seed: int) -> Message:
    text = settings.instructions_text
    question = f"{problem.compact}="
    if settings.of_level("phrasing") == "question":
        draw = generator(seed, "data", "wording", problem.expression)
        question = draw.choice(QUESTIONS).format(problem.expression)
    return ask(question, INSTRUCTIONS[settings.instructions] if text is None else text)


def _solved(problem: Problem, settings: ArithmeticSettings, seed: int) -> tuple[Message, Message]:
    reply = REPLIES[settings.instructions]
    content = reply.format(expression=problem.expression, answer=problem.value)
    return _question(problem, settings, seed), {"role": "assistant", "content": content}


def _prompt(
    problem: Problem,
    settings: ArithmeticSettings,
    examples: Mapping[Problem, tuple[Message, Message]],
    seed: int,
) -> Prompt:
    others = [pair for shown, pair in examples.items() if shown != problem][: settings.examples]
    return chat_prompt(
        _question(problem, settings, seed),
        str(problem.value),
        system=settings.system,
        opening=[message for pair in others for message in pair],
        columns={
            "expression": problem.expression,
            "operands": list(problem.operands),
            "num_operations": len(problem.steps),
            "level": settings.level,
        },
    )
