"""How much of a completion is a wanted text: `target`, the demonstration of credit by token.

Where in a completion the reward was earned is known exactly, so methods that tell tokens apart
(a critic, step rewards) can be compared with those that do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.texts import counted
from groupwise.types import Score, StepReward
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import graded, no_answer


class Target(SettingsVerifier):
    """The share of a text that is the target, or how often the target is in it.

    Occurrences are counted from the left and do not overlap. Each is a step with reward 1 (0 beyond
    `cap`, if they are counted), every other character a step with reward 0.

    >>> verifier = Target(target="7", kind="count", cap=4)
    >>> verifier.judge("717").value, Target(target="7").judge("7177").value
    (0.5, 0.75)
    """

    verifier_name: ClassVar[str] = "target"

    target: str = Field(min_length=1, description="The wanted text, usually one token.")
    kind: Literal["share", "count"] = Field(
        default="share",
        description="share: characters that belong to the target over all characters. count: "
        "occurrences over `cap`, at most 1.",
    )
    cap: int = Field(default=8, ge=1, description="count: occurrences that give the full value.")

    @property
    def gives_steps(self) -> bool:
        return True

    def score_case(self, case: Case) -> Score:
        return self.judge(case.text)

    def judge(self, text: str) -> Score:
        """The score of a text."""
        if not text:
            return replace(no_answer("nothing was written"), steps=())
        steps: list[StepReward] = []
        found = end = 0
        while end < len(text):
            hit = text.startswith(self.target, end)
            end += len(self.target) if hit else 1
            found += hit
            counts = hit and (self.kind == "share" or found <= self.cap)
            steps.append(StepReward(float(counts), end))
        share = found * len(self.target) / len(text)
        value = share if self.kind == "share" else min(found, self.cap) / self.cap
        return replace(
            graded(value, f"{counted(found, 'time')} in {len(text)} characters"), steps=tuple(steps)
        )
