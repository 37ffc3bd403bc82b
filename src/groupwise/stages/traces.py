"""A teacher's completions of an environment's prompts, kept or dropped, each with its reason.

The teacher is a model sampled here, or an OpenAI-compatible endpoint. What it wrote is stored a
prompt at a time, so a stage that was stopped asks only for the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.environments import Environment
from groupwise.errors import GroupwiseError
from groupwise.policies import Policy
from groupwise.randomness import stream_key
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, make_sampler
from groupwise.templates import Template
from groupwise.types import Prompt, Rollout, Score
from groupwise.verifiers.judge.endpoint import EndpointError, chat_reply, key_headers

CHUNK = 32
"""Prompts that a local teacher answers between two writes."""


class TraceTeacher(BaseModel):
    """Who writes the traces: a stage of the pipeline, a model by name, or an endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    stage: str | None = Field(None, description="A stage of the pipeline whose model it is.")
    name: str | None = Field(None, description="A built-in model, a model folder or a hub id.")
    url: str | None = Field(
        None,
        pattern=r"^https?://",
        description="An OpenAI-compatible endpoint, up to its version: https://host/v1.",
    )
    served: str = Field("", description="The model's name at the endpoint.")
    key: str | None = Field(
        None, description="The environment variable that holds the endpoint's key."
    )
    system: str | None = Field(
        None, description="A system message for the teacher alone; the student does not see it."
    )
    seconds: float = Field(
        120.0, gt=0, description="Deadline of one request to the endpoint, each try for itself."
    )
    tries: int = Field(3, ge=1, description="Requests for a trace before it counts as failed.")
    parallel: int = Field(8, ge=1, description="Requests at once.")
    on_failure: Literal["stop", "skip"] = Field(
        "stop",
        description="A trace that the endpoint does not give: stop (what was written stays, and "
        "--resume asks for the rest), or skip and count it.",
    )

    @model_validator(mode="after")
    def _one(self) -> TraceTeacher:
        if sum(each is not None for each in (self.stage, self.name, self.url)) != 1:
            raise ValueError("teacher: give one of stage, name and url")
        if self.url is not None and not self.served:
            raise ValueError("teacher.served is missing: the model's name at the endpoint")
        return self


@dataclass(frozen=True, slots=True)
class Trace:
    """One completion of the teacher: the chat that it ends (or a raw prompt and what followed),
    its score, and why it is not kept, "" where it is not dropped so far."""

    prompt_id: str
    row: Mapping[str, Any]
    text: str
    accuracy: float | None
    outcome: str
    fault: str = ""

    def to_plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Source:
    """What traces are made from: prompts, who judges, how they are sampled."""

    environment: Environment
    prompts: Sequence[Prompt]
    sampling: SamplingSettings
    seed: int
    template: Template


def stored(
    path: Path, source: Source, teacher: Policy | TraceTeacher
) -> Iterator[tuple[Trace, ...]]:
    """The traces of every prompt, in order: those of `path`, then new ones, which it gets.

    Raises GroupwiseError where the endpoint fails and failures are not skipped.
    """
    lines = list(read_json_lines(path, torn="ignore"))
    write_text(path, "".join(map(json_line, lines)))  # without a torn end
    yield from (tuple(Trace(**each) for each in line) for line in lines)
    left = source.prompts[len(lines) :]
    with path.open("a", encoding="utf-8") as file:
        for start in range(0, len(left), CHUNK):
            chunk = left[start : start + CHUNK]
            made = sampled if isinstance(teacher, Policy) else asked
            for traces in made(source, chunk, teacher):  # type: ignore[arg-type]
                file.write(json_line([each.to_plain() for each in traces]))
                file.flush()
                os.fsync(file.fileno())
                yield traces


def sampled(source: Source, prompts: Sequence[Prompt], teacher: Policy) -> list[tuple[Trace, ...]]:
    """The traces of a local teacher, which reads the prompts in its own chat format."""
    settings = source.sampling
    sampler = make_sampler(
        settings.sampler,
        teacher,
        batch_rows=settings.batch_rows,
        cache_gigabytes=settings.cache_gigabytes,
    )
    try:
        groups = collect(
            source.environment,
            sampler,
            teacher.template,
            [(prompt, 0) for prompt in prompts],
            group_size=settings.group_size,
            sampling=settings,
            seed=source.seed,
        )
    finally:
        sampler.close()
    return [
        tuple(_of_rollout(rollout, said(source, group.prompt)) for rollout in group.rollouts)
        for group in groups
    ]


def said(source: Source, prompt: Prompt) -> Prompt:
    """The prompt as a policy reads it, with what the recipe adds to it."""
    for wrapper in source.environment.wrappers:
        prompt = wrapper.prompt(prompt, source.template)
    return prompt


def _of_rollout(rollout: Rollout, prompt: Prompt) -> Trace:
    later = rollout.extras.messages or ({"role": "assistant", "content": rollout.text},)
    fault = ""
    if rollout.truncated:
        fault = f"not finished ({rollout.finish_reason})"
    return _trace(prompt, later, rollout.text, rollout.score, fault)


def _trace(
    prompt: Prompt, later: Sequence[Mapping[str, Any]], text: str, score: Score | None, fault: str
) -> Trace:
    row: dict[str, Any] = {"prompt": prompt.text, "completion": text}
    if prompt.text is None:
        row = {"messages": [*map(dict, prompt.messages), *map(dict, later)]}
        row |= {"tools": list(prompt.tools)} if prompt.tools else {}
    outcome = "not judged" if score is None else score.outcome
    accuracy = None if score is None else score.accuracy
    return Trace(prompt.id, row, text, accuracy, outcome, fault)


def asked(
    source: Source, prompts: Sequence[Prompt], teacher: TraceTeacher
) -> Iterator[tuple[Trace, ...]]:
    """The traces of an endpoint, a prompt after the other in order, many requests at once."""
    headers = key_headers(teacher.key, "teacher.key")
    shown = [said(source, prompt) for prompt in prompts]
    replies = asyncio.run(_replies(source, shown, teacher, headers))
    for prompt, original, row in zip(shown, prompts, replies, strict=True):
        traces = []
        for text, fault in row:
            score = None if fault else source.environment.verify(original, text)
            later = ({"role": "assistant", "content": text},)
            traces.append(_trace(prompt, later, text, score, fault))
        failed = next((each.fault for each in traces if each.fault), "")
        if failed and teacher.on_failure == "stop":
            raise GroupwiseError(
                f"the teacher at {teacher.url} gave no trace of prompt {prompt.id!r}: {failed}. "
                "What it wrote so far is kept: --resume asks for the rest. Raise teacher.seconds "
                'or teacher.tries, or set teacher.on_failure = "skip" to count such traces'
            )
        yield tuple(traces)


async def _replies(
    source: Source, prompts: Sequence[Prompt], teacher: TraceTeacher, headers: Mapping[str, str]
) -> list[list[tuple[str, str]]]:
    """(text, what went wrong) of every trace of every prompt."""
    gate = asyncio.Semaphore(teacher.parallel)
    sampling = source.sampling
    system = [] if teacher.system is None else [{"role": "system", "content": teacher.system}]

    async def one(prompt: Prompt, index: int) -> tuple[str, str]:
        payload = {
            "model": teacher.served,
            "messages": [*system, *map(dict, prompt.messages)],
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": stream_key(source.seed, "training", prompt.id, index) % 2**31,
        }
        async with gate:
            try:
                text = await chat_reply(
                    str(teacher.url), payload, headers, teacher.seconds, teacher.tries
                )
            except TimeoutError:
                return "", f"no reply within {teacher.seconds:g} s, {teacher.tries} tries"
            except EndpointError as error:
                return "", str(error)
        return text, "" if text.strip() else "an empty reply"

    async def of(prompt: Prompt) -> list[tuple[str, str]]:
        return list(await asyncio.gather(*(one(prompt, i) for i in range(sampling.group_size))))

    return list(await asyncio.gather(*map(of, prompts)))


@dataclass(slots=True)
class Kept:
    """Traces that are learned from and those that are not, as rows with their reasons."""

    rows: list[dict[str, Any]]
    dropped: list[dict[str, Any]]

    @property
    def reasons(self) -> dict[str, int]:
        """How many traces each reason dropped."""
        return dict(Counter(row["reason"].partition(":")[0] for row in self.dropped))


def keep(traces: Sequence[Trace], *, right: bool, per_prompt: int | None, duplicates: bool) -> Kept:
    """Which traces are learned from. `right`: only those that the verifier finds correct;
    `per_prompt`: the first so many of a prompt; `duplicates`: the same text of a prompt again."""
    found = Kept([], [])
    seen: dict[str, list[str]] = {}
    for trace in traces:
        texts = seen.setdefault(trace.prompt_id, [])
        reason = trace.fault and f"failed: {trace.fault}"
        if trace.fault.startswith("not finished"):
            reason = trace.fault
        elif not reason and right and trace.accuracy != 1:
            reason = f"not correct: {trace.outcome}"
        elif not reason and not duplicates and trace.text in texts:
            reason = "a duplicate"
        elif not reason and per_prompt is not None and len(texts) >= per_prompt:
            reason = f"more than {per_prompt} of its prompt"
        about = {"prompt_id": trace.prompt_id, "outcome": trace.outcome}
        if reason:
            found.dropped.append({**trace.row, **about, "reason": reason})
            continue
        texts.append(trace.text)
        found.rows.append({**trace.row, **about, "reason": "correct" if right else "finished"})
    return found
