"""How a search runs. No torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from groupwise.search.methods import Combine
from groupwise.suggestions import unknown
from groupwise.types import LEAST_TEMPERATURE
from groupwise.verifiers.core.names import Arguments

METHODS = {
    "best_of_n": "the completion with the highest score",
    "majority": "the most frequent answer",
    "weighted": "the answer with the largest sum of scores",
    "process": "the completion with the best steps",
    "beam": "steps are added one by one, and the best beginnings kept",
    "verbalized": "one completion states several answers with probabilities",
    "budget": "thinking is lengthened by a word and ended by a budget",
}
READ_BY = {
    **dict.fromkeys(("combine", "separator"), ("process", "beam")),
    **dict.fromkeys(("width", "max_steps", "lookahead"), ("beam",)),
    **dict.fromkeys(
        ("thinking_budget", "waits", "wait", "thinking_start", "thinking_stop"), ("budget",)
    ),
}
"""Fields that some methods alone read."""
SCORED = ("best_of_n", "weighted", "process", "beam")
LIKELIHOOD = "likelihood"
"""The default scorer: the policy's own mean probability of a token (geometric)."""


class SearchSettings(Arguments):
    """How a search runs; fields that its method does not read keep their defaults."""

    method: str = Field(description=", ".join(METHODS))
    samples: int = Field(default=8, ge=1, description="Completions a prompt.")
    max_tokens: int = Field(default=128, ge=1, description="Tokens of a completion at most.")
    temperature: float = Field(
        default=1.0, ge=LEAST_TEMPERATURE, allow_inf_nan=False, description="Divides the logits."
    )
    seed: int = Field(default=0, ge=0, description="The same seed gives the same completions.")
    combine: Combine = Field(default="min", description="How scores of steps become one.")
    above_mean: bool = Field(
        default=False, description="Votes: only answers with a score above their group's mean."
    )
    width: int = Field(default=2, ge=1, description="Beam: beginnings kept after a step.")
    separator: str = Field(default="\n", min_length=1, description="What ends a step.")
    max_steps: int = Field(default=32, ge=1, description="Beam: steps at most.")
    lookahead: int = Field(
        default=0, ge=0, description="Beam: completions of a beginning whose mean score judges it."
    )
    thinking_budget: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(),
        description="Budget: tokens after which thinking is closed; several are measured one after "
        "the other. By default three quarters of max_tokens.",
    )
    waits: int = Field(
        default=0, ge=0, description="Budget: how often an end of thinking is replaced by `wait`."
    )
    wait: str = Field(default="Wait, ", min_length=1, description="Budget: what replaces it.")
    thinking_start: str = Field(default="<think>", min_length=1, description="Opens thinking.")
    thinking_stop: str = Field(default="</think>", min_length=1, description="Closes thinking.")

    @field_validator("thinking_budget", mode="before")
    @classmethod
    def _one_budget(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(value.split(","))
        return (value,) if isinstance(value, int) else value

    @field_validator("method")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in METHODS:
            raise ValueError(unknown(f"method = {value!r}", value, METHODS))
        return value

    @model_validator(mode="after")
    def _fits(self) -> SearchSettings:
        highest = max(self.budgets)
        if self.method == "budget" and highest >= self.max_tokens:
            raise ValueError(
                f"thinking_budget = {highest} leaves nothing of max_tokens = {self.max_tokens} for "
                "the answer; give less, or more max_tokens"
            )
        if self.method == "beam" and self.width > self.samples:
            raise ValueError(
                f"width = {self.width} is above samples = {self.samples}; keep at most that many"
            )
        for name in sorted(self.model_fields_set & READ_BY.keys()):
            if self.method not in READ_BY[name]:
                raise ValueError(
                    f"{name} is for {' and '.join(READ_BY[name])}, not for {self.method}; "
                    "leave it out"
                )
        if self.above_mean and self.method not in ("majority", "weighted"):
            raise ValueError(f"above_mean is for majority and weighted, not for {self.method}")
        return self

    @property
    def uses_scores(self) -> bool:
        return self.above_mean or self.method in SCORED

    @property
    def budgets(self) -> tuple[int, ...]:
        """Tokens of thinking, the fewest first."""
        return tuple(sorted(set(self.thinking_budget))) or (max(1, self.max_tokens * 3 // 4),)
