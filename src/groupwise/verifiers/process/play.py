"""The environment's own verdict as a verifier: `play`, for games and simulators."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from groupwise.types import Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier


class PlayResult(SettingsVerifier):
    """What the episode's `result()` returned; not applicable if it returned none."""

    verifier_name: ClassVar[str] = "play"

    turns: bool = Field(
        default=False,
        description="Whether every episode has a reward for each of its turns, for process "
        "supervision.",
    )

    @property
    def gives_steps(self) -> bool:
        return self.turns

    def score_case(self, case: Case) -> Score:
        if case.result is None:
            return Score(None, "not_applicable", "the episode has no result")
        return case.result
