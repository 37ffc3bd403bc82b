"""A reward for every line of a worked solution: `steps`.

A step is a line with an equation between numbers (`3 + 4 = 7`), right if its sides are equal.
Lines of words belong to the step that follows them. Whether a step was worth taking is a process
reward model's question.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score, StepReward
from groupwise.verifiers.answers.evaluator import rational
from groupwise.verifiers.answers.final_answer import formula_runs
from groupwise.verifiers.answers.numbers import parse_number
from groupwise.verifiers.answers.reading import read
from groupwise.verifiers.answers.tokens import UnreadableError
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import BadAnswer, accepted_answers, graded

_NUMBERING = re.compile(r"\s*(?:(?:\d+[.):]|[-*+•])\s+)?")

_PART_OF = re.compile(r"\bof\s+[-\d(]")  # "5% of 240 = 12"


class Steps(SettingsVerifier):
    """The share of a solution's equations that are right; each is a step with reward 1 or 0.

    The last one must end in the gold answer, else any true equation would do.
    """

    verifier_name: ClassVar[str] = "steps"

    match_answer: bool = Field(
        default=True, description="Whether the last equation must end in the gold answer."
    )

    @property
    def needs_answer(self) -> bool:
        return self.match_answer

    @property
    def gives_steps(self) -> bool:
        return True

    def score_case(self, case: Case) -> Score:
        golds = _gold_values(case.prompt) if self.match_answer else None
        found = equations(case.text)
        if not found:
            return Score(0.0, "no_answer", "no line has an equation", steps=())
        rights = [len(set(sides)) == 1 for sides, _ in found]
        if golds is not None and found[-1][0][-1] not in golds:
            rights[-1] = False
        steps = tuple(StepReward(float(right), end) for right, (_, end) in zip(rights, found))
        score = graded(sum(rights) / len(rights), f"{sum(rights)} of {len(rights)} steps are right")
        return replace(score, steps=steps)

    def gold_completion(self, prompt: Prompt) -> str | None:
        return "{0} = {0}".format(_gold_values(prompt)[0]) if self.match_answer else None


def _gold_values(prompt: Prompt) -> list[Fraction]:
    """The accepted answers that are numbers; `BadAnswer` if none is."""
    found = [parse_number(answer) for answer in accepted_answers(prompt.answer)]
    values = [number.value for number in found if number is not None]
    if not values:
        raise BadAnswer(f"the answer {prompt.answer!r:.60} is not a number")
    return values


def equations(text: str) -> list[tuple[list[Fraction], int]]:
    """Every line's equation, as the values of its sides and the character count at the line's end.

    >>> [(sides[-1], end) for sides, end in equations("First 3+4=7.\\n7 * 2 = 15")]
    [(Fraction(7, 1), 13), (Fraction(15, 1), 23)]
    """
    found = []
    end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        line = _NUMBERING.sub("", line.replace("$", ""), count=1)
        runs = formula_runs(line) if "=" in line and not _PART_OF.search(line) else []
        if sides := next(filter(None, map(_sides, runs)), None):
            found.append((sides, end))
    return found


def _sides(formula: str) -> list[Fraction] | None:
    """The values of an equation's sides; None if the formula is no equation between numbers."""
    try:
        relation = read(formula, unit_letters=True)
    except UnreadableError:
        return None
    values = [rational(side.node) if side.node is not None else None for side in relation.items]
    if set(relation.operators) != {"="}:
        return None
    values = values[values[0] is None and len(values) > 2 :]  # a name: "n = 3 * 4 = 12"
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None
