"""The environment's own verdict as a verifier: `play`, for games and simulators.

Left out: making the verdict, which the environment's `Episode` does in `result()`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from groupwise.types import Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier


class PlayResult(SettingsVerifier):
    """The score that the play gave when it ended; not applicable where it gave none."""

    verifier_name: ClassVar[str] = "play"

    turns: bool = Field(
        default=False,
        description="Whether every play gives a reward for each of its turns, which process "
        "supervision reads.",
    )

    @property
    def needs_answer(self) -> bool:
        return False

    @property
    def gives_steps(self) -> bool:
        return self.turns

    def score_case(self, case: Case) -> Score:
        if case.result is None:
            return Score(None, "not_applicable", "the play gave no verdict of its own")
        return case.result
