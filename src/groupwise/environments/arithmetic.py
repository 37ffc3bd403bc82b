"""Seeded arithmetic: from the table of single-digit sums to questions of several steps.

`level` sets the bounds; every bound can also be set by itself. Training and held-out problems never
overlap. The reward reads the last number; if an answer format is asked for, a gated bonus for the
format is added and the strict reading (right inside the format) is reported as its own part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.generated import ask, from_prompts
from groupwise.environments.identity import prompt_id
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
    hold_out: Literal["ordered", "unordered"] | None = Field(
        default=None,
        description="unordered: 3+4 and 4+3 are held out together. ordered: each by itself "
        "(default of the table level).",
    )
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
    format_weight: float = Field(
        default=0.2,
        ge=0,
        allow_inf_nan=False,
        description="The format's bonus, where one is asked for.",
    )
    format_gate: Literal["correct", "parsed"] = Field(
        default="correct",
        description="When the bonus counts: the last number is right, or there is one at all.",
    )
    strict_weight: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="What a right answer inside the format adds; 0 only reports it.",
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

    def of_level(self, name: str) -> Any:
        """A field, or the level's value where it is not set."""
        value = getattr(self, name)
        return LEVELS[self.level][name] if value is None else value


def make_arithmetic(
    settings: ArithmeticSettings, seed: int, verifiers: VerifierTables = ()
) -> Environment:
    """The `arithmetic` environment. Raises RecipeError for arguments that do not fit together."""
    ordered = settings.hold_out == "ordered" or (
        settings.hold_out is None and settings.level == "table"
    )
    train, heldout = split_problems(
        _space(settings),
        seed,
        settings.of_level("num_train"),
        settings.of_level("num_heldout"),
        ordered,
    )
    examples = _examples(settings, train, seed)
    sides = [
        [_prompt(problem, settings, examples, seed) for problem in side]
        for side in (train, heldout)
    ]
    verifiers = verifiers or default_verifiers(settings)
    return from_prompts("arithmetic", settings, sides[0], sides[1], verifiers)


def default_verifiers(settings: ArithmeticSettings) -> list[VerifierSettings]:
    """Last number; and for a format its gated bonus and the strict reading."""
    number = VerifierSettings(name="number")
    if settings.instructions == "none":
        return [number]
    return [
        number,
        VerifierSettings(
            name="format",
            weight=settings.format_weight,
            gate=f"number:{settings.format_gate}",
            arguments={"kind": settings.instructions},
        ),
        VerifierSettings(name=settings.instructions, label="strict", weight=settings.strict_weight),
    ]


def _space(settings: ArithmeticSettings) -> Space:
    fewest, most = settings.of_level("num_operations")
    low, high = settings.of_level("min_operand"), settings.of_level("max_operand")
    if not 1 <= fewest <= most <= 6:
        raise RecipeError(
            f"environment.num_operations = [{fewest}, {most}]: give fewest and most, "
            "1 <= fewest <= most <= 6, for instance [1, 3]"
        )
    if low > high:
        raise RecipeError(
            f"environment.min_operand = {low} is above environment.max_operand = {high}; "
            f"give max_operand = {low + 9}"
        )
    max_value = settings.of_level("max_value")
    return Space(
        operations=tuple(dict.fromkeys(settings.of_level("operations"))),
        min_operand=low,
        max_operand=high,
        min_value=-max_value if settings.negative else 0,
        max_value=max_value,
        min_operations=fewest,
        max_operations=most,
    )


def _question(problem: Problem, settings: ArithmeticSettings, seed: int) -> Message:
    text = settings.instructions_text
    if text is None:
        text = INSTRUCTIONS[settings.instructions]
    question = f"{problem.compact}="
    if settings.of_level("phrasing") == "question":
        draw = generator(seed, "data", "wording", problem.expression)
        question = draw.choice(QUESTIONS).format(problem.expression)
    return ask(question, text)


def _examples(
    settings: ArithmeticSettings, train: Sequence[Problem], seed: int
) -> list[tuple[Problem, tuple[Message, Message]]]:
    """One more example than asked for, so that no prompt has to show its own solution."""
    if settings.examples and len(train) <= settings.examples:
        raise RecipeError(
            f"environment.examples = {settings.examples} needs more than the {len(train)} training "
            f"problems; give examples = {max(len(train) - 1, 0)}"
        )
    reply = REPLIES[settings.instructions]
    shown: list[tuple[Problem, tuple[Message, Message]]] = []
    for problem in train[: settings.examples + 1] if settings.examples else ():
        content = reply.format(expression=problem.expression, answer=problem.value)
        user = _question(problem, settings, seed)
        shown.append((problem, (user, {"role": "assistant", "content": content})))
    return shown


def _prompt(
    problem: Problem,
    settings: ArithmeticSettings,
    examples: Sequence[tuple[Problem, tuple[Message, Message]]],
    seed: int,
) -> Prompt:
    messages: list[Message] = []
    if settings.system:
        messages.append({"role": "system", "content": settings.system})
    others = [pair for shown, pair in examples if shown != problem][: settings.examples]
    messages.extend(message for pair in others for message in pair)
    messages.append(_question(problem, settings, seed))
    answer = str(problem.value)
    columns = {
        "expression": problem.expression,
        "operands": list(problem.operands),
        "num_operations": len(problem.steps),
        "level": settings.level,
    }
    return Prompt(prompt_id(messages, answer=answer), tuple(messages), answer, columns=columns)
