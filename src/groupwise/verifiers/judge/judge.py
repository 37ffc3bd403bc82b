"""The `judge` verifier: a language model behind an OpenAI-compatible endpoint reads completions.

It writes its reasons and then a verdict (a generative reward model). A reply without a verdict, an
endpoint that fails and a deadline that passes are not scored, and counted, never a 0. A request
that the endpoint refuses (wrong model, wrong key) stops the run. A judge can be talked into things:
run `groupwise audit` on it first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.errors import VerifierError
from groupwise.imports import import_object
from groupwise.verifiers.judge.endpoint import EndpointError, chat_reply, key_headers
from groupwise.verifiers.judge.judging import (
    Question,
    Verdict,
    final_object,
    rank_values,
    score_value,
)
from groupwise.verifiers.judge.readouts import JudgeVerifier
from groupwise.waiting.deadlines import gather


class Judge(JudgeVerifier):
    """A judge's number for one completion, from 0 at `lowest` to 1 at `highest`, or its order of
    several."""

    verifier_name: ClassVar[str] = "judge"

    url: str = Field(
        description="The endpoint's base, as http://127.0.0.1:8000/v1; or `module:function`, which "
        "starts a server in this process and returns its base."
    )
    model: str = Field(min_length=1, description="The model's name at the endpoint.")
    lowest: int = Field(default=0, description="The number for not at all.")
    highest: int = Field(default=10, description="The number for fully.")
    correct_from: float = Field(
        default=1.0, gt=0, le=1, description="Value (0 to 1) from which the outcome is `correct`."
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
        if re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", url):
            import_object(url, "verifier 'judge', url =")
            return url
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                "give an address that starts with http:// or https://, or `module:function`"
            )
        return url.rstrip("/")

    @model_validator(mode="after")
    def _scale(self) -> Judge:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest = {self.lowest} is not below highest = {self.highest}")
        return self

    @cached_property
    def address(self) -> str:
        """The endpoint's base; a server of this process is started when it is first asked."""
        if "://" in self.url:
            return self.url
        return str(import_object(self.url, "verifier 'judge', url =")())

    @property
    def waits(self) -> bool:
        return True

    @property
    def passes_from(self) -> float:
        return self.correct_from

    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        """All at once, `concurrency` of them at a time, each with its own deadline."""
        turn = asyncio.Semaphore(self.concurrency)
        verdicts = gather([self._ask(question, turn) for question in questions])
        for verdict in verdicts:
            if isinstance(verdict, BaseException):
                raise verdict
        return verdicts

    async def _ask(self, question: Question, turn: asyncio.Semaphore) -> Verdict:
        field, closing, schema = self._form(question)
        system = f"You grade completions of a task. Rubric: {question.rubric}"
        user = "\n\n".join([question.rule, *question.parts, closing])
        payload = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **self._format(field, schema),
        }
        headers = key_headers(self.key_variable, "verifier 'judge'")
        try:
            async with turn, asyncio.timeout(self.time_limit):
                reply = await chat_reply(
                    self.address, payload, headers, self.time_limit, self.tries
                )
        except TimeoutError:
            return Verdict(None, f"no verdict after {self.time_limit:g} s", "verifier_timeout")
        except EndpointError as error:
            if not error.retry:
                raise VerifierError(f"verifier 'judge': {error}") from error
            return Verdict(None, str(error))
        return self._read(question, field, reply)

    def _read(self, question: Question, field: str, reply: str) -> Verdict:
        found = final_object(reply, field)
        if found is None:
            return Verdict(None, f"the reply does not end with {field}: {reply[-80:]!r}")
        given, before = found
        reason = " ".join(str(given.get("reason") or before).split())
        if question.labels:
            values = rank_values(given[field], question.labels)
            return Verdict(values, reason if values else "the judge's verdict is not an order")
        value = score_value(given[field], self.lowest, self.highest)
        if value is None:
            return Verdict(None, "the judge's verdict is a number outside the scale")
        return Verdict((value,), reason)

    def _form(self, question: Question) -> tuple[str, str, Mapping[str, Any]]:
        """The verdict's field, what is asked for, and its JSON schema."""
        labels = question.labels
        schema: Mapping[str, Any]
        if not labels:
            kind, asked, shown = "score", "How far does the completion meet the rubric?", "N"
            what = f"N a whole number from {self.lowest} (not at all) to {self.highest} (fully)"
            schema = {"type": "integer", "minimum": self.lowest, "maximum": self.highest}
        elif len(labels) == 2:
            kind, asked, shown = "better", "Which completion meets the rubric better?", '"X"'
            what, schema = "X one of A, B and tie", {"enum": ["A", "B", "tie"]}
        else:
            kind, asked = "order", "In which order do the completions meet the rubric?"
            shown, what = '["X", ...]', f"the letters {', '.join(labels)}, the best first"
            letters = {"type": "string", "enum": list(labels)}
            schema = {"type": "array", "items": letters, "minItems": len(labels)}
        field = f"{kind}_{question.nonce}"
        closing = (
            f"{asked} Say why in a sentence or two. Then end your reply with one line of JSON and "
            f'nothing after it: {{"{field}": {shown}}} with {what}.'
        )
        return field, closing, schema

    def _format(self, field: str, verdict: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.structured == "none":
            return {}
        if self.structured == "json_object":
            return {"response_format": {"type": "json_object"}}
        schema = {
            "type": "object",
            "properties": {"reason": {"type": "string"}, field: verdict},
            "required": ["reason", field],
            "additionalProperties": False,
        }
        named = {"name": "verdict", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
