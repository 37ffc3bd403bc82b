r"""Where a completion states its answer: the one place that decides it (docs/answers.md).

Only what follows the reasoning section is read. Then the first of these that is there: the last
box; the last answer tag; what the verifier says (`last_number`, `last_formula`, `last_line`). A box
or tag that is there and empty, or never closed, is no answer: nothing else is read in its place.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.answers.gold import unboxed, without_box
from groupwise.verifiers.answers.reading import read
from groupwise.verifiers.answers.runs import formula_runs
from groupwise.verifiers.answers.tokens import UnreadableError
from groupwise.verifiers.core.contract import AnswerVerifier, Case
from groupwise.verifiers.core.scores import TAG, no_answer

MAX_ANSWER = 2000
"""Characters; a longer answer is `limit`."""

_FENCED = re.compile(r"```\w*[ \t]*\r?\n(.*?)```", re.DOTALL)
_BORDER = re.compile(r"```\w*|[|:+=_ -]*[-_=]{2}[|:+=_ -]*")
_LEAD = re.compile(r"\banswers?\b[ \t*]{0,9}(?:is|are|:|=)[ \t*]{0,9}:?\s{0,99}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|\Z)")
_MAX_WORDS = 60
"""Characters of an answer in words behind `answer is`."""


def last_line(text: str, num_lines: int = 1) -> str | None:
    """The last lines that hold something; of one line, what follows `answer is`.

    `num_lines` above 1: of a text with one fenced block, that block's.

    >>> last_line("So 1 + 2.\\nThe answer is 3."), last_line("a\\n1 2\\n3 4", 2), last_line(" ")
    ('3.', '1 2\\n3 4', None)
    """
    fenced = _FENCED.findall(text) if num_lines > 1 else []
    if len(fenced) == 1:
        text = fenced[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _BORDER.fullmatch(line)][-num_lines:]
    if num_lines == 1 and lines:
        line = lines[0][-MAX_ANSWER:]
        leads = list(_LEAD.finditer(line))
        lines = [line[leads[-1].end() :] if leads else line]
    return "\n".join(lines).strip() or None


def last_formula(text: str) -> str | None:
    """The first formula, or the words, behind the last `answer is`; without one, the last formula.

    >>> last_formula("The answer is $x+1$, not 3."), last_formula("The largest $n$ is 34.")
    ('x+1', '34')
    >>> last_formula("The answer is Tuesday."), last_formula("no idea")
    ('Tuesday', None)
    """
    leads = list(_LEAD.finditer(text))
    if leads:
        rest = text[leads[-1].end() :]
        end = _SENTENCE_END.search(rest)
        sentence = rest if end is None else rest[: end.end()]
        runs = formula_runs(sentence)
        if runs:
            return _result(runs[0])
        if sentence.strip() and len(sentence) <= _MAX_WORDS:
            return sentence.strip().rstrip(".!?") or None
    runs = formula_runs(text)
    return _result(runs[-1]) if runs else None


def _result(run: str) -> str:
    """The formula; of a calculation in numbers or with units in it, its result.

    >>> _result("$5 + $15 = $20"), _result("3 cm + 4 cm = 7 cm"), _result("y = 2x")
    ('$20', '7 cm', 'y = 2x')
    """
    run = run.rstrip("!")
    calculation, _, result = run.rpartition("=")
    if not calculation:
        return run
    try:
        formula = all(side.kind != "mixed" for side in read(run).items[:-1])
    except UnreadableError:
        formula = False
    formula = formula and re.search("[A-Za-z]", calculation) is not None
    return run if formula else result.strip()


def stated_answer(
    text: str, tag: str = "answer", unmarked: Callable[[str], str | None] = last_line
) -> str | None:
    r"""The answer of a text without its reasoning, as it is written; None where there is none.

    >>> stated_answer(r"\boxed{7} <answer>8</answer>"), stated_answer("<answer>8</answer> or 9")
    ('7', '8')
    >>> stated_answer("So\n9"), stated_answer("9 <answer></answer>")
    ('9', None)
    """
    if r"\boxed" in text or r"\fbox" in text:
        return last_box(text)
    if f"<{tag}>" in text:
        return last_tagged(text, tag)
    return unmarked(text)


class FinalAnswer(AnswerVerifier):
    """Finds the final answer and leaves its judgement to `judge`."""

    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", description=TAG)

    def unmarked(self, text: str) -> str | None:
        """The answer of a text without box and tag."""
        return last_line(text)

    @abstractmethod
    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        """The score of an answer that was found; `BadAnswer` for an unusable gold one."""

    def located(self, text: str) -> str | Score:
        """The answer as it is written, or the score of a completion that has none."""
        rest = after_reasoning(repaired(text), self.reasoning_tag)
        if rest is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        given = stated_answer(rest, self.tag, self.unmarked)
        if given is None or not given.strip():
            return no_answer("no answer is given")
        if len(given) > MAX_ANSWER:
            return Score(0.0, "limit", f"an answer of {len(given)} characters")
        return given

    def compare(self, case: Case, gold: str) -> Score:
        given = self.located(case.whole)
        if isinstance(given, Score):
            self.judge("", unboxed(gold), case.prompt)  # an unusable gold answer comes first
            return given
        return self.judge(given, unboxed(gold), case.prompt)

    def write(self, gold: str) -> str:
        return f"<{self.tag}>{without_box(gold)}</{self.tag}>"
