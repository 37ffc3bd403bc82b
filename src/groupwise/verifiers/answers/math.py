r"""The `math` verifier: one mathematical answer, equal to the gold one in structure and in value.

An answer is read whole by one grammar (`reading.py`) and compared member by member
(`comparing.py`); what rational arithmetic does not settle is compared in killable workers, under a
deadline and a memory limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import PERCENT, FinalAnswer, Judge, score_of
from groupwise.verifiers.answers.comparing import Percent
from groupwise.verifiers.answers.final_answer import last_formula
from groupwise.verifiers.answers.gold import without_box
from groupwise.verifiers.answers.judging import Judged, judge, prompt_words
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import BadAnswer, bad_answer, best_of
from groupwise.waiting.processes import Reply, shared_pool

WORKER = "groupwise.verifiers.answers.judging:make"

Question = tuple[str, str, Percent, tuple[str, ...]]
"""Gold answer, given answer, percent policy, the prompt's words."""


class Math(FinalAnswer):
    """A mathematical answer: number, formula, set, tuple, interval, relation, matrix, words.

    Read in the last box, else the last answer tag, else the formula behind the last "answer is",
    else the last formula of the text. It must be of the gold answer's kind as a whole. A decimal is
    equal to a fraction or a root only where it is exactly equal.
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
        scores: dict[int, Score] = {}
        replies: dict[Question, Reply] = {}
        rows: Sequence[int] = range(len(cases))
        while rows:
            asked: dict[int, list[Question]] = {row: [] for row in rows}
            for row in rows:
                scores[row] = self._score(cases[row], partial(self._judge, replies, asked[row]))
            rows = [row for row in rows if asked[row]]
            questions = list(dict.fromkeys(each for row in rows for each in asked[row]))
            if questions:
                pool = shared_pool(WORKER, self.workers)
                replies.update(zip(questions, pool.map(questions, self.time_limit, tries=2)))
        return [scores[row] for row in range(len(cases))]

    def score_case(self, case: Case) -> Score:
        return self.score([case])[0]

    def _score(self, case: Case, judge: Judge) -> Score:
        try:
            return best_of(case.prompt.answer, lambda gold: self.judged(case, gold, judge))
        except BadAnswer as error:
            return bad_answer(str(error))

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        return self.score([Case(Prompt("", text=prompt.text, answer=gold), self.write(given))])[0]

    def _judge(
        self,
        replies: Mapping[Question, Reply],
        asked: list[Question],
        given: str,
        gold: str,
        prompt: Prompt,
    ) -> Score:
        """The score, or any while a worker has to be `asked`."""
        words = prompt_words(prompt.text or "")
        question = (gold, given, self.percent, tuple(sorted(words)))
        if (reply := replies.get(question)) is not None:
            return self._replied(reply, given, gold)
        found = judge(gold, given, percent=self.percent, words=words)
        if found.kind == "undecided":
            asked.append(question)
        return score_of(found, given, gold)

    def _replied(self, reply: Reply, given: str, gold: str) -> Score:
        match reply.kind:
            case "ok":
                kind: Any = reply.value
                return score_of(Judged(kind, f"{given[:60]!r} is not one answer"), given, gold)
            case "timeout":
                return Score(0.0, "timeout", f"comparing overran {self.time_limit:g} s twice")
            case "out_of_memory":
                return Score(0.0, "out_of_memory", "comparing needed more memory than a worker has")
        return Score(0.0, "crash", f"comparing failed: {reply.value}")

    def write(self, gold: str) -> str:
        return f"\\boxed{{{without_box(gold)}}}"
