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
from groupwise.verifiers.answers.arithmetic import plain_signs, value
from groupwise.verifiers.answers.numbers import parse_number
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import BadAnswer, accepted_answers, graded

_LONGEST = 200
_NUMBERING = re.compile(r"\s*(?:(?:\d+[.):]|[-*+•])\s+)?")
_MARKS = re.compile(r"[,$]|\\[()]")
_BOLD = re.compile(r"(?<![\d)\s])\*\*|\*\*(?!\s*[\d(])")
_JUXTAPOSED = re.compile(r"(?<=[\d)])\s*\(")
# What makes the numbers beside it a piece of something else: a variable, a power, a command.
_BEHIND = re.compile(r"[\^\\%!]|(?![mgshl])[A-Za-z](?![A-Za-z])")
_PART = r"[-+*/()\d.\s]"
_EQUATION = re.compile(rf"(?<!{_PART}){_PART}++(?:={_PART}++)+")


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


def equations(text: str) -> list[tuple[tuple[Fraction, ...], int]]:
    """Every line's equation, as the values of its sides and the character count at the line's end.

    >>> [(sides[-1], end) for sides, end in equations("First 3+4=7.\\n7 * 2 = 15")]
    [(Fraction(7, 1), 13), (Fraction(15, 1), 23)]
    """
    found = []
    end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        sides = _equation(line)
        if sides is not None:
            found.append((sides, end))
    return found


def _equation(line: str) -> tuple[Fraction, ...] | None:
    start = _NUMBERING.match(line)
    rest = line[start.end() if start else 0 :][: 20 * _LONGEST]
    rest = plain_signs(_BOLD.sub("", _MARKS.sub("", rest)))
    rest = _JUXTAPOSED.sub("*(", rest)[: 10 * _LONGEST]
    for match in _EQUATION.finditer(rest):
        if _is_piece(rest, match):
            continue
        written = match.group().split("=")
        if not written[0].strip() and len(written) > 2:
            del written[0]  # after a name: "n = 3 * 4 = 12"
        sides = [_value(side.strip().rstrip(".")) for side in written]
        known = tuple(side for side in sides if side is not None)
        if len(known) == len(sides):
            return known
    return None


def _is_piece(text: str, match: re.Match[str]) -> bool:
    """Whether the outermost numbers of an equation belong to a variable or a power beside it."""
    left = text[max(0, match.start() - 20) : match.start()]
    first = match.group().lstrip()[:1]
    word = re.search(r"[A-Za-z]+\Z", left)
    if left and not left[-1].isspace() and word is None:
        joined = left[-1] in "^}%\\_"
    else:
        joined = first in "+*/" or (first == "-" and word is not None and len(word.group()) == 1)
        attached = not match.group()[:1].isspace()
        joined = joined or (word is not None and (attached or word.group().lower() == "of"))
    return joined or bool(_BEHIND.match(text, match.end()))


def _value(expression: str) -> Fraction | None:
    """The exact value of a sum, difference, product or quotient of numbers; else None."""
    if "**" in expression or len(expression) > _LONGEST:
        return None
    try:
        return value(expression)
    except (ValueError, ZeroDivisionError):
        return None
