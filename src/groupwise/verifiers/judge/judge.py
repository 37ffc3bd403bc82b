"""The `judge` verifier: a language model behind an OpenAI-compatible endpoint reads completions.

A reply without a verdict, an endpoint that fails and a deadline that passes are not scored, and
counted, never a 0. A request that the endpoint refuses (wrong model, wrong key) stops the run. A
judge can be talked into things: run `groupwise audit` on it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.errors import VerifierError
from groupwise.types import Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import graded
from groupwise.verifiers.judge.endpoint import EndpointError, chat_reply, key_headers
from groupwise.verifiers.judge.judging import (
    RUBRIC,
    Question,
    final_field,
    reference_answer,
    score_value,
    single_question,
)
from groupwise.waiting.deadlines import gather


class Unjudged(Exception):  # noqa: N818 (inside this room: why a case has no verdict)
    """The judge's reply has no verdict."""


class Judge(SettingsVerifier):
    """A judge's number for one completion, from 0 at `lowest` to 1 at `highest`."""

    verifier_name: ClassVar[str] = "judge"
    concurrent: ClassVar[bool] = True

    url: str = Field(description="The endpoint's base, as http://127.0.0.1:8000/v1.")
    model: str = Field(min_length=1, description="The model's name at the endpoint.")
    rubric: str = Field(default=RUBRIC, min_length=1, description="What the judge grades by.")
    lowest: int = Field(default=0, description="The number for not at all.")
    highest: int = Field(default=10, description="The number for fully.")
    correct_from: float = Field(
        default=1.0, gt=0, le=1, description="Value (0 to 1) from which the outcome is `correct`."
    )
    show_answer: bool = Field(
        default=True, description="Whether the judge sees the gold answer, if there is one."
    )
    key_variable: str | None = Field(
        default=None,
        description="The environment variable with the endpoint's key; the key is never recorded.",
    )
    structured: Literal["none", "json_object", "json_schema"] = Field(
        default="none", description="Which response format is asked of the endpoint, if any."
    )
    temperature: float = Field(default=0.0, ge=0, description="The judge's sampling temperature.")
    max_tokens: int = Field(default=512, ge=1, description="The most tokens of a reply.")
    time_limit: float = Field(
        default=60.0, gt=0, description="Seconds for one question, tries included."
    )
    tries: int = Field(default=3, ge=1, description="Requests for one question at most.")
    concurrency: int = Field(default=16, ge=1, description="Questions asked at a time.")

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("give an address that starts with http:// or https://")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _scale(self) -> Judge:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest = {self.lowest} is not below highest = {self.highest}")
        return self

    @property
    def waits(self) -> bool:
        return True

    def score(self, cases: Sequence[Case]) -> list[Any]:
        """All cases at once, `concurrency` questions at a time, each with its own deadline."""
        turn = asyncio.Semaphore(self.concurrency)
        scores = gather([self._score(case, turn) for case in cases])
        for score in scores:
            if isinstance(score, BaseException):
                raise score
        return scores

    async def _score(self, case: Case, turn: asyncio.Semaphore) -> Score:
        try:
            answer = reference_answer(case.prompt) if self.show_answer else None
            question = single_question(
                case.prompt, case.text, self.rubric, self.lowest, self.highest, answer
            )
            value = score_value(await self._ask(question, turn), self.lowest, self.highest)
            if value is None:
                raise Unjudged("the judge's verdict is a number outside the scale")
            return graded(value, f"the judge gave {value:.3g}", self.correct_from)
        except TimeoutError:
            return Score(None, "verifier_timeout", f"no verdict after {self.time_limit:g} s")
        except Unjudged as error:
            return Score(None, "infrastructure_error", str(error))

    async def _ask(self, question: Question, turn: asyncio.Semaphore) -> Any:
        """The verdict field's value; TimeoutError, or Unjudged if there is none."""
        payload = {
            "model": self.model,
            "messages": [dict(message) for message in question.messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **self._format(question.field),
        }
        headers = key_headers(self.key_variable, "verifier 'judge'")
        try:
            async with turn, asyncio.timeout(self.time_limit):
                reply = await chat_reply(self.url, payload, headers, self.time_limit, self.tries)
        except EndpointError as error:
            if not error.retry:
                raise VerifierError(f"verifier 'judge': {error}") from error
            raise Unjudged(str(error)) from error
        found = final_field(reply, question.field)
        if found is None:
            raise Unjudged(f"the reply does not end with {question.field}: {reply[-80:]!r}")
        return found

    def _format(self, field: str) -> Mapping[str, Any]:
        if self.structured == "none":
            return {}
        if self.structured == "json_object":
            return {"response_format": {"type": "json_object"}}
        verdict = {"type": "integer", "minimum": self.lowest, "maximum": self.highest}
        schema = {
            "type": "object",
            "properties": {"reason": {"type": "string"}, field: verdict},
            "required": ["reason", field],
            "additionalProperties": False,
        }
        named = {"name": "verdict", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
