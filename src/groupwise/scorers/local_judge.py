"""`local_judge`: a policy in this process as the judge.

The value is its probability of "yes" against "no" after the question, or of one completion's letter
against the others': nothing that it writes is read as a verdict, so there is no text to forge one
in. With `think` it first writes its reasons, and the probabilities are those behind them (a
generative reward model; Zhang et al. 2024, arXiv 2408.15240). It shares no weights with the policy
that is trained. A judge whose reply is read: `verifiers/judge/judge.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import torch
from pydantic import Field

from groupwise.policies import Policy, describe_model, load_policy, sequence_logprobs
from groupwise.policies.settings import DType
from groupwise.samplers import sample
from groupwise.types import Prompt
from groupwise.verifiers.judge.judging import Question, Verdict, rank_values
from groupwise.verifiers.judge.readouts import JudgeVerifier

VERDICT = "\nVerdict: "
"""What stands between the reasons and the verdict."""


class LocalJudge(JudgeVerifier):
    """A policy's judgement of completions, from 0 to 1."""

    verifier_name: ClassVar[str] = "local_judge"

    model: str = Field(min_length=1, description="A built-in model, a folder or a hub id.")
    correct_from: float = Field(
        default=0.5, gt=0, le=1, description="Value from which the outcome is `correct`."
    )
    yes: str = Field(default="yes", min_length=1, description="The word for right.")
    no: str = Field(default="no", min_length=1, description="The word for wrong.")
    think: int = Field(
        default=0, ge=0, description="Tokens of reasons that it writes first, at most; 0: none."
    )
    temperature: float = Field(
        default=0.0, ge=0, description="The temperature of the reasons; 0: the most likely tokens."
    )
    batch_rows: int = Field(default=16, ge=1, description="Questions in one forward pass.")
    device: str = Field(default="auto", description="auto (cuda, mps, cpu), or a device's name.")
    dtype: DType = Field(default="auto", description="The matrix products' type.")

    def check_model(self) -> None:
        """Refuse what is not a language model, before any weights load. Raises RecipeError."""
        describe_model(self.model)

    @cached_property
    def policy(self) -> Policy:
        return load_policy(self.model, device=self.device, dtype=self.dtype)

    @property
    def passes_from(self) -> float:
        return self.correct_from

    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        """Probabilities of the words for a verdict, among these words alone."""
        template = self.policy.template
        room = self.policy.max_length - 8 - (self.think + len(VERDICT) if self.think else 0)
        ids = [
            template.encode_prompt(Prompt("judge", messages=({"role": "user", "content": text},)))
            for text in map(self.text, questions)
        ]
        fitting = [place for place, each in enumerate(ids) if len(each) <= room]
        found = [
            Verdict(None, f"a question of {len(each)} tokens, above the {room} that are read")
            for each in ids
        ]
        reasons = self._reasons([ids[place] for place in fitting])
        for start in range(0, len(fitting), self.batch_rows):
            part = fitting[start : start + self.batch_rows]
            words = [questions[place].labels or (self.yes, self.no) for place in part]
            read = [(*ids[place], *reasons[start + at][0]) for at, place in enumerate(part)]
            for at, shares in enumerate(self._shares(read, words)):
                labels, text = questions[part[at]].labels, reasons[start + at][1]
                if len(labels) > 2:
                    order = sorted(labels, key=lambda each: -shares[labels.index(each)])
                    shares = rank_values(order, labels) or shares
                found[part[at]] = Verdict(shares if labels else shares[:1], text)
        return found

    def _reasons(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], str]]:
        """What is read behind each question before the verdict, as ids and text; nothing without
        `think`."""
        if not self.think or not prompts:
            return [((), "")] * len(prompts)
        template = self.policy.template
        verdict = tuple(template.encode(VERDICT))
        written = sample(
            self.policy,
            prompts,
            group_size=1,
            max_tokens=self.think,
            temperature=self.temperature,
        )
        stops = template.stop_ids
        return [
            ((*(each for each in one.token_ids if each not in stops), *verdict), one.text)
            for (one,) in written
        ]

    @torch.no_grad()
    def _shares(
        self, read: Sequence[tuple[int, ...]], words: Sequence[Sequence[str]]
    ) -> list[tuple[float, ...]]:
        """The words' probabilities behind each text, which add up to 1."""
        encode = self.policy.template.encode
        rows = [(ids, tuple(encode(word))) for ids, own in zip(read, words) for word in own]
        logprobs = sequence_logprobs(
            self.policy, [ids for ids, _ in rows], [word for _, word in rows]
        ).logprobs
        sums = [
            float(line[: len(word)].double().sum())
            for line, (_, word) in zip(logprobs, rows, strict=True)
        ]
        found, done = list[tuple[float, ...]](), 0
        for own in words:
            part = torch.tensor(sums[done : done + len(own)], dtype=torch.float64)
            found.append(tuple(part.softmax(0).tolist()))
            done += len(own)
        return found

    def text(self, question: Question) -> str:
        """The question as one message."""
        words, asked = f"{self.yes} or {self.no}", "Does the completion meet the rubric?"
        if question.labels:
            words = f"{', '.join(question.labels[:-1])} or {question.labels[-1]}"
            asked = "Which completion meets the rubric best?"
        asked += f" {'Say why, then answer' if self.think else 'Answer'} {words}."
        return "\n\n".join([f"Rubric: {question.rubric}", question.rule, *question.parts, asked])
