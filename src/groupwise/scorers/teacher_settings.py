"""The recipe's [teacher] table: who teaches, and what it reads beside the prompt. No torch."""

from __future__ import annotations

import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Context = Literal["none", "answer", "feedback", "sibling"]
WORDINGS: Mapping[Context, str] = MappingProxyType(
    {
        "none": "{text}",
        "answer": "The correct answer is {text}.",
        "feedback": "An earlier attempt was judged so: {text}",
        "sibling": "A correct solution:\n{text}",
    }
)
SELF = "self"


class TeacherSettings(BaseModel):
    """A policy whose probabilities of the student's own completions are learned from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        min_length=1,
        description="A built-in model, a model folder or a hub id, with the student's tokenizer; "
        "`self`: the policy itself, which then needs a context.",
    )
    weights: Literal["input", "step"] = Field(
        default="input",
        description="Of `self`: the policy as the run begins, or as each step begins.",
    )
    context: Context = Field(
        default="none",
        description="What the teacher reads beside the prompt: the gold `answer`, the verifier's "
        "reason (`feedback`), or a right completion of the same group (`sibling`); rows without "
        "one have no teacher and are counted.",
    )
    wording: str = Field(
        default="",
        description="How the context is said, with {text} in it; default by kind. It follows the "
        "chat's last message after an empty line, or stands above a raw prompt.",
    )
    temperature: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Divides the teacher's logits; default sampling.temperature.",
    )
    by_source: dict[str, str] = Field(
        default_factory=dict,
        description="Another teacher for the prompts of a source of a mixture: label to name.",
    )

    @field_validator("wording")
    @classmethod
    def _wording(cls, value: str) -> str:
        fields = [name for _, name, _, _ in string.Formatter().parse(value) if name is not None]
        if value and fields != ["text"]:
            raise ValueError(f'wording = {value!r}: hold {{text}} once, as "Answer: {{text}}"')
        return value

    @property
    def is_self(self) -> bool:
        return self.name == SELF

    @property
    def names(self) -> list[str]:
        """Every teacher that is loaded, the default one first."""
        return list(dict.fromkeys([self.name, *self.by_source.values()]))
