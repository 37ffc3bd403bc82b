"""Scored completions of an environment's prompts, of a model sampled here or of an endpoint.

What was written is stored a few prompts at a time, so a stage that was stopped asks only for the
rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.environments import Environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy
from groupwise.randomness import stream_key
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, sampler_of
from groupwise.templates import Template
from groupwise.types import Prompt, Rollout, Score
from groupwise.verifiers.judge.endpoint import EndpointError, chat_reply, key_headers

CHUNK = 32
"""Prompts that a local model answers between two writes."""
SAMPLED = "sampled"


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
    """One completion: the chat that is learned from with it (or a raw prompt and what followed),
    its score (`parts` are the verifiers' values by label), and what went wrong, "" for nothing.

    `how` is "sampled", or what the policy read beside the prompt; `tokens` are those of a local
    model.
    """

    prompt_id: str
    row: Mapping[str, Any]
    text: str
    accuracy: float | None
    outcome: str
    fault: str = ""
    reward: float | None = None
    verdict: str = ""
    parts: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    tokens: int | None = None
    how: str = SAMPLED

    def to_plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Source:
    """What traces are made from: prompts, who judges, how they are sampled.

    Traces are learned from as answers to the prompt of the same id in `learned`, where it has one.
    `visit` keeps the noise of several sources of the same prompts apart.
    """

    environment: Environment
    prompts: Sequence[Prompt]
    sampling: SamplingSettings
    seed: int
    template: Template
    learned: Mapping[str, Prompt] = field(default_factory=dict[str, Prompt])
    visit: int = 0
    how: str = SAMPLED


def stored(
    path: Path, source: Source, teacher: Policy | TraceTeacher
) -> Iterator[tuple[Trace, ...]]:
    """The traces of every prompt, in order: those of `path`, then new ones, which it gets.

    Raises GroupwiseError where the endpoint fails and failures are not skipped, RecipeError where
    `path` is of other prompts.
    """
    lines = list(read_json_lines(path, torn="ignore"))
    ids = [line[0]["prompt_id"] for line in lines]
    if ids != [prompt.id for prompt in source.prompts[: len(ids)]]:
        raise RecipeError(
            f"{path} has completions of other prompts: the data changed since the stage was "
            "stopped. Restore the data, or start again with --overwrite"
        )
    write_text(path, "".join(map(json_line, lines)))  # without a torn end
    yield from (tuple(Trace(**each) for each in line) for line in lines)
    with path.open("a", encoding="utf-8") as file:
        # Parts as in an unbroken run: a batch's composition may change the last bits of its logits.
        for start in range(len(lines) - len(lines) % CHUNK, len(source.prompts), CHUNK):
            there = max(len(lines) - start, 0)
            chunk = source.prompts[start : start + CHUNK]
            made: Iterable[Sequence[tuple[Trace, ...]]]
            if isinstance(teacher, Policy):
                made = [sampled(source, chunk, teacher)[there:]]
            else:
                made = ([traces] for traces in asked(source, chunk[there:], teacher))
            for groups in made:
                text = (json_line([each.to_plain() for each in traces]) for traces in groups)
                file.write("".join(text))
                file.flush()
                os.fsync(file.fileno())
                yield from groups


def sampled(source: Source, prompts: Sequence[Prompt], teacher: Policy) -> list[tuple[Trace, ...]]:
    """The traces of a local teacher, which reads the prompts in its own chat format."""
    settings = source.sampling
    sampler = sampler_of(settings, teacher)
    try:
        groups = collect(
            source.environment,
            sampler,
            teacher.template,
            [(prompt, source.visit) for prompt in prompts],
            group_size=settings.group_size,
            sampling=settings,
            seed=source.seed,
        )
    finally:
        sampler.close()
    return [
        tuple(
            _of_rollout(source, rollout, said(source, group.prompt)) for rollout in group.rollouts
        )
        for group in groups
    ]


def said(source: Source, prompt: Prompt) -> Prompt:
    """The prompt that is learned from, with what the recipe adds to it."""
    prompt = source.learned.get(prompt.id, prompt)
    for wrapper in source.environment.wrappers:
        prompt = wrapper.prompt(prompt, source.template)
    return prompt


def _of_rollout(source: Source, rollout: Rollout, prompt: Prompt) -> Trace:
    later = rollout.extras.messages or ({"role": "assistant", "content": rollout.text},)
    fault = ""
    if rollout.truncated:
        fault = f"not finished ({rollout.finish_reason})"
    tokens = rollout.num_tokens
    return _trace(prompt, later, rollout.text, rollout.score, fault, tokens, source.how)


def _trace(
    prompt: Prompt,
    later: Sequence[Mapping[str, Any]],
    text: str,
    score: Score | None,
    fault: str,
    tokens: int | None = None,
    how: str = SAMPLED,
) -> Trace:
    row: dict[str, Any] = {"prompt": prompt.text, "completion": text}
    if prompt.text is None:
        row = {"messages": [*map(dict, prompt.messages), *map(dict, later)]}
        row |= {"tools": list(prompt.tools)} if prompt.tools else {}
    found = Trace(prompt.id, row, text, None, "not judged", fault, tokens=tokens, how=how)
    if score is None:
        return found
    return replace(
        found,
        accuracy=score.accuracy,
        outcome=score.outcome,
        reward=score.value,
        verdict=score.reason,
        parts=dict(score.parts),
    )


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
