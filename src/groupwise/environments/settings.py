"""The recipe's `[environment]` table: a name, that environment's own arguments, the verifiers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from groupwise.verifiers import Combine, VerifierSettings


class EnvironmentSettings(BaseModel):
    """Which prompts, and what judges them.

    Every further key is an argument of the named environment and is validated by it.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(
        description="arithmetic, target_token, dataset, or `module:Class`, an Environment of your "
        "own."
    )
    verifiers: tuple[VerifierSettings, ...] = Field(
        default=(),
        description="What judges completions; the environment's own verifiers where empty.",
    )
    combine: Combine = Field(
        default="sum",
        description="How the weighted values become one: their sum, or their product, which is 0 "
        "where any of them is. For `strict_verifiers` too.",
    )
    strict_verifiers: tuple[VerifierSettings, ...] = Field(
        default=(),
        description="A second, stricter judgement (or hidden test cases) that training never "
        "sees: it scores the evaluations' completions; its gap to the reward is recorded and "
        "watched.",
    )
    drop_too_long: bool = Field(
        default=False,
        description="Drop and count prompts that leave no room for a completion of "
        "`sampling.max_tokens`. Without it they stop the run, their rows named; nothing is cut.",
    )
    audit: bool = Field(
        default=True,
        description="Audit the verifiers on this data before training, once for each pair: a few "
        "seconds; what it finds is printed and recorded.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The named environment's own arguments."""
        return dict(self.model_extra or {})
