"""A verifier with a reward for each step: lines such as `3 + 4 = 7`."""

from __future__ import annotations

from groupwise.types import Score, StepReward
from groupwise.verifiers import Case, Verifier


class Sums(Verifier):
    """The share of the lines with an equation of sums whose sides are equal; each is a step."""

    name = "sums"  # type: ignore[assignment]

    @property
    def gives_steps(self) -> bool:
        return True

    def score_case(self, case: Case) -> Score:
        steps, end = [], 0
        for line in case.text.splitlines(keepends=True):
            end += len(line)
            if "=" in line:
                sides = {sum(map(int, side.split("+"))) for side in line.split("=")}
                steps.append(StepReward(float(len(sides) == 1), end))
        if not steps:
            return Score(0.0, "no_answer", "no line has an equation", steps=())
        value = sum(step.value for step in steps) / len(steps)
        outcome = "correct" if value == 1 else "partial" if value else "incorrect"
        return Score(value, outcome, "sums", steps=tuple(steps))
