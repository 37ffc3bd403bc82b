r"""The `math` verifier: one mathematical answer, equal to the gold one in structure and in value.

An answer is read whole by one grammar (`reading.py`) and compared member by member
(`comparing.py`); what rational arithmetic does not settle is compared in killable workers, under a
deadline and a memory limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import FinalAnswer, score_of
from groupwise.verifiers.answers.final_answer import last_formula
from groupwise.verifiers.answers.gold import without_box
from groupwise.verifiers.answers.judging import Judged, judge, prompt_words
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import BadAnswer, bad_answer, best_of
from groupwise.waiting.processes import Reply, shared_pool

WORKER = "groupwise.verifiers.answers.judging:make"

Question = tuple[str, str, frozenset[str]]
"""Gold answer, given answer, the prompt's words."""


class Math(FinalAnswer):
    """A mathematical answer: number, formula, set, tuple, interval, relation, matrix, words.

    Read in the last box, else the last answer tag, else the formula behind the last "answer is",
    else the last formula of the text. It must be of the gold answer's kind as a whole. A decimal is
    equal to a fraction or a root only where it is exactly equal.
    """

    verifier_name: ClassVar[str] = "math"

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
        """What fractions do not settle, of all cases, is compared in the workers together."""
        known: dict[Question, Judged] = {}
        scores = [self._score(case, known) for case in cases]
        asked = [each for each, found in known.items() if found.kind == "undecided"]
        if asked:
            replies = shared_pool(WORKER, self.workers).map(asked, self.time_limit, tries=2)
            known.update(zip(asked, map(self._replied, replies)))
            scores = [self._score(case, known) for case in cases]
        return scores

    def score_case(self, case: Case) -> Score:
        return self.score([case])[0]

    def _score(self, case: Case, known: dict[Question, Judged]) -> Score:
        def ask(given: str, gold: str, prompt: Prompt) -> Score:
            question = (gold, given, prompt_words(prompt.text or ""))
            if question not in known:
                known[question] = judge(gold, given, words=question[2])
            return score_of(known[question], given, gold)

        try:
            return best_of(case.prompt.answer, lambda gold: self.judged(case, gold, ask))
        except BadAnswer as error:
            return bad_answer(str(error))

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        return self.score([Case(Prompt("", text=prompt.text, answer=gold), self.write(given))])[0]

    def _replied(self, reply: Reply) -> Judged:
        match reply.kind:
            case "ok":
                kind: Any = reply.value
                return Judged(kind)
            case "timeout":
                return Judged("timeout", f"comparing overran {self.time_limit:g} s twice")
            case "out_of_memory":
                return Judged("out_of_memory", "comparing needed more memory than a worker has")
        return Judged("crash", f"comparing failed: {reply.value}")

    def write(self, gold: str) -> str:
        return f"\\boxed{{{without_box(gold)}}}"
