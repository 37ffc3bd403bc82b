"""One verifier as a recipe states it: `[[environment.verifiers]]`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from groupwise.verifiers.contract import OnError


class VerifierSettings(BaseModel):
    """One component of the reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="A built-in verifier (number, boxed, ...) or `module:function`, a TRL-style "
        "reward function, or `module:Class`, a Verifier."
    )
    weight: float = Field(
        default=1.0,
        allow_inf_nan=False,
        description="What its value is multiplied by in the sum; 0 reports it without counting it.",
    )
    label: str | None = Field(
        default=None,
        description="What metrics and gates call it; the name by default. Two components of one "
        "name need it.",
    )
    gate: str | None = Field(
        default=None,
        description="Another component's label: this one counts only where that one was correct "
        "(`label` or `label:correct`) or at least found an answer (`label:parsed`).",
    )
    threshold: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Where set, the value becomes 1 at or above it and 0 below.",
    )
    on_error: OnError = Field(
        default="stop",
        description="stop: an exception ends the run naming verifier, row and error. skip: the row "
        "is excluded and counted; where every row fails the run still ends.",
    )
    time_limit: float | None = Field(
        default=None,
        gt=0,
        description="Seconds for one completion, after which it is `verifier_timeout` (not scored, "
        "counted). For `module:function` and `module:Class`.",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="The verifier's own arguments."
    )
