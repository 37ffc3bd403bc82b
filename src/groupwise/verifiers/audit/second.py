"""A second method for the same question: what an audit compares verdicts with.

For answers it is math-verify alone: its own parser, its own numeric comparison, no exact path and
no rules of ours. Neither is the truth; the rows on which they differ are for a person to read.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.types import Score
from groupwise.verifiers.answers.answers import bad_answer, no_answer, verdict
from groupwise.verifiers.answers.comparison import gold_text
from groupwise.verifiers.answers.extraction import after_reasoning, last_box
from groupwise.verifiers.core.contract import Case, CaseVerifier, Verifier
from groupwise.waiting.processes import shared_pool

WORKER = "groupwise.verifiers.audit.second_worker:make"
TIME_LIMIT = 5.0


class MathVerifyAlone(CaseVerifier):
    """math-verify's verdict on the last box, in killable workers."""

    @property
    def name(self) -> str:
        return "math-verify"

    def score(self, cases: Sequence[Case]) -> list[Score]:
        jobs = [(gold_text(case.prompt.answer) or "", _answer(case.text) or "") for case in cases]
        replies = shared_pool(WORKER).map(jobs, TIME_LIMIT)
        return [
            _score(reply.value if reply.kind == "ok" else reply.kind, gold, given)
            for reply, (gold, given) in zip(replies, jobs)
        ]

    def score_case(self, case: Case) -> Score:
        return self.score([case])[0]


def _answer(text: str) -> str | None:
    rest = after_reasoning(text)
    return None if rest is None else last_box(rest)


def _score(outcome: str, gold: str, given: str) -> Score:
    if outcome == "bad_answer":
        return bad_answer(f"{gold!r} cannot be parsed")
    if outcome in ("equal", "different"):
        return verdict(outcome == "equal", given, gold)
    return no_answer(outcome)


def second_method(kind: str) -> Verifier | None:
    """Another verifier for the same question as the built-in called `kind`; None where none is."""
    return MathVerifyAlone() if kind in ("number", "boxed", "tagged", "math") else None
