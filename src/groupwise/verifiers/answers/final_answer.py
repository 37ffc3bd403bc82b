"""Where a completion states its final answer, and the verifiers that only differ in judging it.

Read, in this order, from what follows the reasoning: the last box, the last answer tag, the last
line. A box or tag that is there and empty is no answer; nothing else is read in its place. Left
out: what a right answer is (`puzzles.py`, `sequences.py`, `moments.py`).
"""

from __future__ import annotations

import re
from abc import abstractmethod

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import TAG, bad_answer, no_answer
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.core.contract import Case, SettingsVerifier

MAX_ANSWER = 2000
"""Characters; a longer answer is none of the short ones that are asked for here."""

_FENCED = re.compile(r"```\w*[ \t]*\r?\n(.*?)```", re.DOTALL)
_BORDER = re.compile(r"```\w*|[|:+=_ -]*[-_=]{2}[|:+=_ -]*")
_LEAD = re.compile(r"^.*\b(?:answer|result|solution)\b\s*(?:is|:|=)+\s*", re.IGNORECASE)


def final_answer(text: str, tag: str = "answer", num_lines: int = 1) -> str | None:
    r"""The answer as it is written, outer white space off; None where there is none.

    `num_lines`: how many of the last lines that hold something make up an answer without box or
    tag; of a text with one fenced block, of that. One line alone loses a lead as `The answer is`.

    >>> final_answer("So 1 + 2.\nThe answer is 3."), final_answer(r"\boxed{4} or 5")
    ('3.', '4')
    >>> final_answer("5 <answer></answer>") is None
    True
    """
    if r"\boxed" in text:
        return last_box(text)
    tagged = last_tagged(text, tag)
    if tagged is not None or f"<{tag}>" in text:
        return tagged
    fenced = _FENCED.findall(text) if num_lines > 1 else []
    if len(fenced) == 1:
        text = fenced[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _BORDER.fullmatch(line)][-num_lines:]
    if num_lines == 1 and lines:
        lines = [_LEAD.sub("", lines[0][-MAX_ANSWER:])]
    return "\n".join(lines).strip() or None


class FinalAnswer(SettingsVerifier):
    """Reads the final answer and leaves its judgement to `judge`."""

    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", description=TAG)

    def problem(self, prompt: Prompt) -> str | None:
        """Why the prompt itself cannot be judged by; None where it can."""
        return None if str(prompt.answer or "").strip() else "the prompt has no answer"

    def num_lines(self, prompt: Prompt) -> int:
        """Lines of an answer that stands in no box or tag."""
        return 1

    @abstractmethod
    def judge(self, given: str, prompt: Prompt) -> Score:
        """The score of an answer that was given."""

    def score_case(self, case: Case) -> Score:
        problem = self.problem(case.prompt)
        if problem is not None:
            return bad_answer(problem)
        text = after_reasoning(repaired(case.whole), self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        given = final_answer(text, self.tag, self.num_lines(case.prompt))
        if given is None:
            return no_answer("no answer is given")
        if len(given) > MAX_ANSWER:
            return no_answer(f"an answer of {len(given)} characters")
        return self.judge(given, case.prompt)

    def gold_completion(self, prompt: Prompt) -> str | None:
        if not str(prompt.answer or "").strip():
            return None
        return f"<{self.tag}>{prompt.answer}</{self.tag}>"
