"""The recipe's `[environment]` table: a name, that environment's own arguments, the verifiers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from groupwise.verifiers import VerifierSettings


class EnvironmentSettings(BaseModel):
    """Which prompts, and what judges them.

    Every further key is an argument of the named environment and is validated by it.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(
        description="arithmetic, dataset, or `module:Class`, an Environment of your own."
    )
    verifiers: tuple[VerifierSettings, ...] = Field(
        default=(),
        description="What judges completions; the environment's own verifiers where empty.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The named environment's own arguments."""
        return dict(self.model_extra or {})
