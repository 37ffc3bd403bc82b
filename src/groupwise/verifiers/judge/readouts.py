"""What every judge shares: a rubric, and three readouts of one model.

`score` marks each completion by itself. `pair` and `list` compare the completions of one prompt
that are scored together, and the value is what a completion's places are worth: its mean share of
won comparisons, or its mean rank, from 0 to 1. Each comparison is asked in both orders and
averaged, so that a judge that likes what it reads first gains nobody anything; by how much it does
is logged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier, VerifierLogs
from groupwise.verifiers.core.scores import graded, shorten
from groupwise.verifiers.judge.judging import (
    RUBRIC,
    Question,
    Verdict,
    nonce_of,
    question_of,
    reference_answer,
)

MOST_LISTED = 26
"""Completions that are listed in one question: they are named by letters."""


class JudgeVerifier(SettingsVerifier):
    """A model that reads completions; a subclass says how it is asked (`ask`)."""

    concurrent: ClassVar[bool] = True

    rubric: str = Field(default=RUBRIC, min_length=1, description="What the judge grades by.")
    readout: Literal["score", "pair", "list"] = Field(
        default="score",
        description="score: each completion by itself. pair: against others of its prompt, two at "
        "a time; list: all of its prompt at once. Both are asked in both orders, and the value is "
        "the mean share of won comparisons, or the mean rank, from 0 to 1.",
    )
    opponents: int | None = Field(
        default=None,
        ge=2,
        multiple_of=2,
        description='With readout = "pair": so many others of its prompt that a completion is '
        "compared with; all if unset, which takes G (G - 1) questions for a group of G.",
    )
    show_answer: bool = Field(
        default=True, description="Whether the judge sees the gold answer, if there is one."
    )
    _logs: VerifierLogs = PrivateAttr(default_factory=VerifierLogs)

    @model_validator(mode="after")
    def _pairs_alone(self) -> JudgeVerifier:
        if self.opponents is not None and self.readout != "pair":
            raise ValueError(
                f'opponents = {self.opponents} with readout = "{self.readout}", which compares no '
                'pairs; set readout = "pair"'
            )
        return self

    @property
    def gives_verdicts(self) -> bool:
        return self.readout == "score"

    @abstractmethod
    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        """A verdict for each question, in order: a value for each of its completions."""

    @property
    @abstractmethod
    def passes_from(self) -> float:
        """The value from which a mark is `correct`."""

    def question(self, prompt: Prompt, texts: Sequence[str], rubric: str | None = None) -> Question:
        """The question about one completion, or about several of one prompt."""
        answer = reference_answer(prompt) if self.show_answer else None
        return question_of(prompt, texts, rubric or self.rubric, answer)

    def score(self, cases: Sequence[Case]) -> list[Any]:
        if self.readout != "score":
            return self._compared(cases)
        found = self.ask([self.question(case.prompt, [case.text]) for case in cases])
        return [self._mark(verdict) for verdict in found]

    def _mark(self, verdict: Verdict) -> Score:
        if verdict.values is None:
            return Score(None, verdict.outcome, verdict.reason)
        (value,) = verdict.values
        said = f": {shorten(verdict.reason, 200)}" if verdict.reason else ""
        return graded(value, f"the judge gave {value:.3g}{said}", self.passes_from)

    def both_orders(
        self, asked: Sequence[tuple[Prompt, Sequence[str]]], rubrics: Sequence[str | None] = ()
    ) -> list[Verdict]:
        """A verdict on each prompt's texts, the mean of both orders; `rubrics`: one for each, in
        place of the judge's own. Without both of them there is none."""
        questions = [
            self.question(prompt, texts, rubrics[place] if rubrics else None)
            for place, (prompt, shown) in enumerate(asked)
            for texts in (shown, shown[::-1])
        ]
        verdicts = self.ask(questions)
        found, agree = list[Verdict](), list[float]()
        for one, other in zip(verdicts[::2], verdicts[1::2], strict=True):
            if one.values is None or other.values is None:
                found.append(one if one.values is None else other)
                continue
            forward, back = one.values, other.values[::-1]
            agree.append(float(forward.index(max(forward)) == back.index(max(back))))
            first = (forward[0] - forward[-1] + back[-1] - back[0]) / 2
            values = tuple(fmean(pair) for pair in zip(forward, back, strict=True))
            found.append(Verdict(values, one.reason or other.reason, first=first))
        logged = {"unread": float(len(found) - len(agree))}
        if agree:
            logged["position_bias"] = fmean(each.first for each in found if each.values)
            logged["orders_agree"] = fmean(agree)
        self._logs.metrics.update({f"{self.name}/{key}": each for key, each in logged.items()})
        return found

    def _compared(self, cases: Sequence[Case]) -> list[Score]:
        groups: dict[str, list[int]] = {}
        for place, case in enumerate(cases):
            groups.setdefault(case.prompt.id, []).append(place)
        rounds = [
            tuple(places[at] for at in each)
            for places in groups.values()
            for each in self.rounds([cases[place].text for place in places])
        ]
        verdicts = self.both_orders(
            [(cases[each[0]].prompt, [cases[place].text for place in each]) for each in rounds]
        )
        values = [list[float]() for _ in cases]
        failed: dict[int, Verdict] = {}
        for places, verdict in zip(rounds, verdicts, strict=True):
            for at, place in enumerate(places):
                if verdict.values is None:
                    failed[place] = verdict
                else:
                    values[place].append(verdict.values[at])
        return [self._placed(own, failed.get(place)) for place, own in enumerate(values)]

    def _placed(self, values: Sequence[float], failed: Verdict | None) -> Score:
        if values:
            rounds = f"{len(values)} comparison{'s' if len(values) > 1 else ''}"
            return Score(fmean(values), "no_verdict", f"{rounds}, in both orders")
        if failed is not None:
            return Score(None, failed.outcome, failed.reason)
        return Score(None, "not_applicable", "no other completion of its prompt to compare with")

    def rounds(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Who is compared with whom, as places among the texts of one prompt, in an order that only
        the texts decide."""
        mixed = sorted(range(len(texts)), key=lambda place: (nonce_of(texts[place]), place))
        if len(mixed) < 2:
            return []
        if self.readout == "list":
            return [
                tuple(mixed[start : start + MOST_LISTED])
                for start in range(0, len(mixed), MOST_LISTED)
                if start + 1 < len(mixed)
            ]
        if self.opponents is None or self.opponents >= len(mixed) - 1:
            return list(combinations(mixed, 2))
        return [
            (place, mixed[(at + away) % len(mixed)])
            for away in range(1, self.opponents // 2 + 1)
            for at, place in enumerate(mixed)
        ]

    def take_logs(self) -> VerifierLogs:
        found = VerifierLogs()
        found.add(self._logs)
        self._logs.metrics.clear()
        return found
