"""One verifier as a recipe states it: `[[environment.verifiers]]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from groupwise.verifiers.core.contract import OnError
from groupwise.verifiers.core.names import Arguments


class VerifierSettings(Arguments):
    """One component of the reward."""

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
    correct_from: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Value from which the outcome is `correct`, for accuracy and pass rates; the "
        "reward stays as it is. By default 1 is correct; values above 1 have no verdict.",
    )
    on_error: OnError = Field(
        default="stop",
        description="stop: an exception ends the run naming verifier, row and error. skip: the row "
        "is excluded and counted; where every row fails the run still ends.",
    )
    deadline: float = Field(
        default=600.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds for one batch of a `module:function` or `module:Class`, after which "
        "a warning names it; 0 is none. An `async` one is abandoned then and its completions are "
        "`verifier_timeout`; a plain one runs in the main thread and is waited for. Not for one "
        "with a time_limit.",
    )
    time_limit: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Where set, a `module:function` or `module:Class` runs in worker processes, "
        "and this is the seconds for one call. A function is called with the whole batch, and with "
        "each completion alone where that overran; a completion that overruns alone is "
        "`verifier_timeout` (not scored, counted), and so are those left after 8 in a row.",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="The verifier's own arguments."
    )


VerifierTables = Sequence[Mapping[str, Any] | VerifierSettings]
"""Verifiers as a recipe states them."""
