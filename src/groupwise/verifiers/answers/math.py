r"""The `math` verifier: one mathematical answer, equal to the gold one in structure and in value.

An answer is read whole by one grammar (`reading.py`) and compared member by member
(`comparing.py`); what rational arithmetic does not settle is compared in killable workers, under a
deadline and a memory limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import PERCENT, FinalAnswer
from groupwise.verifiers.answers.comparing import Percent
from groupwise.verifiers.answers.final_answer import last_formula
from groupwise.verifiers.answers.gold import mutants, unboxed, without_box
from groupwise.verifiers.answers.judging import judge, prompt_words, same_value
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import (
    BadAnswer,
    accepted_answers,
    bad_answer,
    best_of,
    no_answer,
    verdict,
)
from groupwise.waiting.processes import shared_pool

WORKER = "groupwise.verifiers.answers.judging:make"
MAX_CHARACTERS = 2000
"""A longer gold answer is refused."""
MAX_KNOWN = 100_000
"""Gold answers whose check is remembered."""

Question = tuple[str, str, frozenset[str]]
"""Gold answer, given answer, the prompt's words."""
Answered = tuple[str, str]
"""`equal`, `different`, `no_answer`, `bad_answer`, `limit`, `timeout`, ...; and the reason."""

_DIGITS = re.compile(r"-?\d+(?:[.,]\d+)*")
_REFUSALS: dict[str, dict[str, str | None]] = {}


class Math(FinalAnswer):
    """A mathematical answer: number, formula, set, tuple, interval, relation, matrix, words.

    Read in the last box, else the last answer tag, else the formula behind the last "answer is",
    else the last formula of the text. It must be of the gold answer's kind as a whole. A decimal is
    equal to a fraction or a root only where it is exactly equal. Gold answers of which a small
    change would be accepted too are refused (`bad_answer`).
    """

    verifier_name: ClassVar[str] = "math"

    percent: Percent = Field(default="ignore", description=PERCENT)
    box: Literal["preferred", "required"] = Field(
        default="preferred", description="Whether an answer without a box is read at all."
    )
    time_limit: float = Field(
        default=5.0,
        gt=0,
        description="Seconds for one comparison. One that overruns is tried again; twice is "
        "`timeout`, value 0.",
    )
    workers: int | None = Field(
        default=None, ge=1, description="Worker processes; by default one a core, at most 8."
    )

    @property
    def judges_singly(self) -> bool:
        return True

    def unmarked(self, text: str) -> str | None:
        return last_formula(text) if self.box == "preferred" else None

    def score(self, cases: Sequence[Case]) -> list[Score]:
        """The comparisons of a batch run in the workers together."""
        golds = [_golds(case.prompt) for case in cases]
        refused = self.refusals([gold for own in golds if not isinstance(own, str) for gold in own])
        found = [self.located(case.whole) for case in cases]
        words = [prompt_words(case.prompt.text or "") for case in cases]
        asked = [
            (gold, given, words[row])
            for row, (given, own) in enumerate(zip(found, golds))
            if isinstance(given, str) and not isinstance(own, str)
            for gold in own
            if refused[gold] is None
        ]
        answers = dict(zip(asked, self._answers(asked)))

        def scored(row: int, gold: str) -> Score:
            given, gold = found[row], unboxed(gold)
            if refused[gold] is not None:
                raise BadAnswer(refused[gold])
            if isinstance(given, Score):
                return given
            return self._scored(answers[gold, given, words[row]], given, gold)

        return [
            bad_answer(own)
            if isinstance(own, str)
            else best_of(cases[row].prompt.answer, partial(scored, row))
            for row, own in enumerate(golds)
        ]

    def score_case(self, case: Case) -> Score:
        return self.score([case])[0]

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        question = (gold, given, prompt_words(prompt.text or ""))
        return self._scored(self._answers([question])[0], given, gold)

    def _scored(self, answer: Answered, given: str, gold: str) -> Score:
        kind, reason = answer
        match kind:
            case "equal" | "different":
                return verdict(kind == "equal", given, gold)
            case "no_answer":
                return no_answer(reason)
            case "timeout":
                return Score(0.0, "timeout", f"comparing overran {self.time_limit:g} s twice")
            case "out_of_memory":
                return Score(0.0, "out_of_memory", "comparing needed more memory than a worker has")
            case "limit":
                return Score(0.0, "limit", f"{given[:60]!r} has a value beyond the bounds")
        return Score(0.0, "crash", f"comparing failed: {reason}")

    def _answers(self, questions: Sequence[Question]) -> list[Answered]:
        answers: list[Answered] = []
        jobs: dict[int, tuple[object, ...]] = {}
        for row, (gold, given, words) in enumerate(questions):
            found = judge(gold, given, percent=self.percent, words=words)
            answers.append((found.kind, found.reason))
            if found.kind == "undecided":
                jobs[row] = (gold, given, self.percent, tuple(words))
        if jobs:
            pool = shared_pool(WORKER, self.workers)
            replies = pool.map(list(jobs.values()), self.time_limit, tries=2)
            for row, reply in zip(jobs, replies):
                kind = str(reply.value) if reply.kind == "ok" else reply.kind
                reason = answers[row][1] if reply.kind == "ok" else str(reply.value)
                answers[row] = (kind, reason)
        return answers

    def refusals(self, golds: Sequence[str]) -> dict[str, str | None]:
        """By gold answer, why it is refused; None where it is not.

        It must be right itself, and each of its mutants wrong.
        """
        if len(known := _REFUSALS.setdefault(self.percent, {})) > MAX_KNOWN:
            known.clear()
        questions: list[Question] = []
        for gold in dict.fromkeys(gold for gold in golds if gold not in known):
            known[gold] = None
            if len(gold) > MAX_CHARACTERS:
                known[gold] = f"the answer has {len(gold)} characters, above {MAX_CHARACTERS}"
                continue
            changed = [] if _DIGITS.fullmatch(gold) else mutants(gold)  # digits compare exactly
            questions += [(gold, each, frozenset()) for each in (gold, *changed)]
        for (gold, given, _), (kind, reason) in zip(questions, self._answers(questions)):
            if gold == given and kind != "equal":
                known[gold] = reason or f"{gold[:60]!r} is not equal to itself: {kind}"
            elif gold != given and kind == "equal" and not (known[gold] or same_value(gold, given)):
                known[gold] = f"{given[:60]!r} would be accepted for {gold[:60]!r}"
        return {gold: known[gold] for gold in golds}

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Refused are gold answers that cannot be read, or of which a mutant is accepted."""
        golds = [_golds(prompt) for prompt in prompts]
        refused = self.refusals([gold for own in golds if not isinstance(own, str) for gold in own])
        return [
            own if isinstance(own, str) else next(filter(None, map(refused.get, own)), None)
            for own in golds
        ]

    def write(self, gold: str) -> str:
        return f"\\boxed{{{without_box(gold)}}}"


def _golds(prompt: Prompt) -> tuple[str, ...] | str:
    """The accepted answers, or why there are none."""
    try:
        return tuple(map(unboxed, accepted_answers(prompt.answer)))
    except BadAnswer as error:
        return str(error)
