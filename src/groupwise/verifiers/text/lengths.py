"""How long and how repetitive a completion is: `length` and `repetition`.

Tokens are counted in the completion's ids, never re-encoded. DAPO's soft overlong punishment is
part of the algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.types import Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier, Verifier, score_cases
from groupwise.verifiers.core.registry import load_verifier
from groupwise.verifiers.core.scores import graded


class Length(SettingsVerifier):
    """A value by the number of tokens.

    `budget`: 1 within [min_tokens, max_tokens], falling to 0 over `slack` tokens on either side.
    `cosine` (Yeo et al. 2025, arXiv 2502.03373): between two values along half a cosine from 0
    tokens to `max_tokens`, one pair for right completions and one for wrong ones; beyond
    `max_tokens` the value is `exceeded`.
    """

    verifier_name: ClassVar[str] = "length"

    kind: Literal["budget", "cosine"] = Field(default="budget", description="Which of the two.")
    max_tokens: int = Field(ge=1, description="The budget, in tokens of the completion.")
    min_tokens: int = Field(default=0, ge=0, description="Fewest tokens that get the full value.")
    slack: int = Field(default=0, ge=0, description="Over how many tokens a budget's value falls.")
    correct_by: str = Field(
        default="number", description="cosine: the verifier that tells right from wrong."
    )
    right_short: float = Field(default=1.0, description="cosine: right, at 0 tokens.")
    right_long: float = Field(default=0.5, description="cosine: right, at max_tokens.")
    wrong_short: float = Field(default=0.0, description="cosine: wrong, at 0 tokens.")
    wrong_long: float = Field(default=0.0, description="cosine: wrong, at max_tokens.")
    exceeded: float = Field(default=0.0, description="cosine: above max_tokens.")

    @model_validator(mode="after")
    def _ordered(self) -> Length:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens = {self.min_tokens} is above max_tokens")
        return self

    @property
    def needs_answer(self) -> bool:
        return self.kind == "cosine" and self._judge.needs_answer

    @cached_property
    def _judge(self) -> Verifier:
        return load_verifier(self.correct_by)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        for case in cases:
            if case.text and not case.completion_ids:
                raise ValueError("length counts tokens, but a case has text and no completion_ids")
        if self.kind == "budget":
            return [self.score_case(case) for case in cases]
        judged = score_cases(self._judge, cases)
        return [self._cosine(case, score) for case, score in zip(cases, judged)]

    def score_case(self, case: Case) -> Score:
        num = len(case.completion_ids)
        excess = max(num - self.max_tokens, self.min_tokens - num, 0)
        value = 1.0 if excess == 0 else max(0.0, 1 - excess / self.slack) if self.slack else 0.0
        return graded(value, f"{num} tokens")

    def _cosine(self, case: Case, judged: Score) -> Score:
        num = len(case.completion_ids)
        if judged.value is None:
            return Score(None, judged.outcome, judged.reason)
        if num > self.max_tokens:
            return graded(self.exceeded, f"{num} tokens, above {self.max_tokens}")
        right = judged.outcome == "correct"
        short = self.right_short if right else self.wrong_short
        long = self.right_long if right else self.wrong_long
        share = (1 - math.cos(math.pi * num / self.max_tokens)) / 2
        return graded(short + (long - short) * share, f"{num} tokens, {judged.outcome}")


class Repetition(SettingsVerifier):
    """The share of n-grams that are not repeats of an earlier one: 1 if none is.

    >>> Repetition(ngram=2).unique_share("a b a b a b".split())
    0.4
    """

    verifier_name: ClassVar[str] = "repetition"

    ngram: int = Field(default=4, ge=1, description="How many words or tokens make one n-gram.")
    unit: Literal["words", "tokens"] = Field(
        default="words", description="Words of the text without case, or the completion's ids."
    )

    def score_case(self, case: Case) -> Score:
        words: Sequence[object] = case.text.casefold().split()
        share = self.unique_share(case.completion_ids if self.unit == "tokens" else words)
        return graded(share, f"{share:.0%} of {self.ngram}-grams are new")

    def unique_share(self, units: Sequence[object]) -> float:
        """Distinct n-grams over all n-grams; 1 if there is none."""
        total = len(units) - self.ngram + 1
        if total < 1:
            return 1.0
        return len({tuple(units[start : start + self.ngram]) for start in range(total)}) / total
