"""The `rejection` stage: the policy samples, the verifier judges, and what passes becomes rows.

RAFT and best-of-K (`keep`), STaR (`rationalise`: what failed is sampled again with the answer
hinted), repair (`repair`: with what failed and the verifier's reason). The next supervised stage
learns from the rows.
"""

from __future__ import annotations

import string
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from groupwise.errors import RecipeError
from groupwise.policies import Policy
from groupwise.records import SUMMARY_KEYS, RunWriter
from groupwise.stages.keeping import TraceStage, trace_counts
from groupwise.stages.stage import CheckContext, Rows, StageContext, StageResult
from groupwise.stages.traces import SAMPLED, Source, Trace, stored
from groupwise.training.output import holds_run, open_record, same_data
from groupwise.training.preparing import Prepared
from groupwise.training.process import Interrupted, Interruption
from groupwise.types import Prompt
from groupwise.verifiers import check_verdicts

HINTED, REPAIRED = "hinted", "repaired"


def checked_fields(value: str, *names: str, takes: str = "none") -> str:
    """A wording with each of these fields once; `takes`: what it may have. Raises ValueError."""
    found = sorted(name for _, name, _, _ in string.Formatter().parse(value) if name is not None)
    if found != sorted(names):
        wanted = " and ".join(f"{{{name}}}" for name in names)
        needs = f"needs {wanted}, each once" if names else f"takes {takes} (write {{{{ and }}}})"
        raise ValueError(f"{value!r} has the fields {found}; it {needs}")
    return value


class Rationalise(BaseModel):
    """STaR: prompts without a right completion are sampled again with the answer hinted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hint: str = Field(
        "{prompt}\n\nThe correct answer is {answer}.",
        description="What is asked then: {prompt} is the chat's last message or the raw prompt. "
        "Only the prompt as it was is learned from.",
    )
    samples: int | None = Field(
        None, ge=1, description="Completions of such a prompt; sampling.group_size if unset."
    )

    @field_validator("hint")
    @classmethod
    def _hint(cls, value: str) -> str:
        return checked_fields(value, "prompt", "answer")

    def asked(self, prompt: Prompt) -> Prompt:
        """The prompt with its answer hinted."""
        text = self.hint.format(prompt=prompt.last_text, answer=prompt.answer)
        if prompt.text is not None:
            return replace(prompt, text=text)
        return replace(
            prompt, messages=(*prompt.messages[:-1], {**prompt.messages[-1], "content": text})
        )


class Repair(BaseModel):
    """What failed goes back to the policy with the verifier's reason, as a further turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wording: str = Field(
        "That is not right: {reason}\nWrite it again, corrected and whole.",
        description="The user's turn that follows what failed.",
    )
    samples: int | None = Field(
        None, ge=1, description="Repairs of a prompt; sampling.group_size if unset."
    )
    learn: Literal["answer", "conversation"] = Field(
        "answer",
        description="Learn the repaired completion as the answer to the prompt, or the whole "
        'conversation (set turns = "last" in the supervised stage, or the failure trains too).',
    )

    @field_validator("wording")
    @classmethod
    def _wording(cls, value: str) -> str:
        return checked_fields(value, "reason")

    def asked(self, prompt: Prompt, failed: Trace) -> Prompt:
        """The chat up to the user's turn with the verifier's reason."""
        turns = (
            {"role": "assistant", "content": failed.text},
            {"role": "user", "content": self.wording.format(reason=failed.verdict)},
        )
        return replace(prompt, messages=(*prompt.messages, *turns))


class Rejection(TraceStage):
    """Completions of its input that pass, as rows for a supervised stage."""

    kind: ClassVar[str] = "rejection"
    changes_weights: ClassVar[bool] = False
    makes: ClassVar[frozenset[Rows]] = frozenset({"chats", "scored"})
    small: ClassVar[Mapping[str, Any]] = {
        "prompts": 8,
        "sampling.group_size": 2,
        "sampling.max_tokens": 16,
        "keep": "all",
        "unfinished": True,
    }

    rationalise: Rationalise | None = Field(
        None, description="Sample prompts without a right completion again, the answer hinted."
    )
    repair: Repair | None = Field(
        None,
        description="Sample those that are still without one again, with their first failure and "
        "the verifier's reason.",
    )

    def check(self, context: CheckContext) -> Prepared:
        prepared = self.prepared(context)
        environment, template = prepared.environment, prepared.model.template
        for again in ("rationalise", "repair"):
            if getattr(self, again) is not None:
                check_verdicts(environment.verifier, again)
        if self.repair is not None and environment.answer_role is not None:
            raise RecipeError(
                f"repair: environment {environment.name!r} plays several turns, and a repair is a "
                "turn of its own; remove repair, or use an environment of one turn"
            )
        for prompt in self.chosen(prepared):
            if self.repair is not None and prompt.text is not None:
                raise RecipeError(
                    f"repair: prompt {prompt.id!r} is raw text, which has no turns; give chats"
                )
            if self.rationalise is None:
                continue
            if prompt.answer is None:
                raise RecipeError(f"rationalise: prompt {prompt.id!r} has no answer to hint")
            hinted = self.rationalise.asked(prompt)
            tokens = len(environment.prompt_ids(hinted, template)) + self.sampling.max_tokens
            if tokens > prepared.model.max_length:
                raise RecipeError(
                    f"rationalise.hint: with it, prompt {prompt.id!r} and its completion have up "
                    f"to {tokens} tokens; the model has {prepared.model.max_length} positions. "
                    "Shorten it, or lower sampling.max_tokens"
                )
        return prepared

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        environment = prepared.environment
        policy = self.policy(context.model)
        about = environment.describe()
        identity = {
            "model": context.model,
            "template_hash": policy.template.hash,
            "environment": about,
        }
        started = time.perf_counter()
        with stage_record(context, identity) as (writer, interruption):
            source = Source(
                environment, self.chosen(prepared), self.sampling, self.seed, policy.template
            )
            traces = all_traces(context, source, policy, interruption)
            if self.rationalise is not None:
                again = self._hinted(source, traces)
                traces += all_traces(context, again, policy, interruption)
            if self.repair is not None:
                again = self._repaired(context, source, traces, policy)
                traces += all_traces(context, again, policy, interruption)
            found, _ = self.kept(context, traces, policy.template, policy.max_length)
            counts = trace_counts(traces, found, self)
            writer.event("kept", counts=counts)
            seconds = round(time.perf_counter() - started, 3)
            writer.summary(stage_summary("finished", seconds, int(counts["traces/tokens"])))
            writer.event("finished")
        environment.close()
        return StageResult({}, counts, None, about["data_hash"])

    def _failing(self, source: Source, traces: Sequence[Trace]) -> list[Prompt]:
        """The prompts that were judged and have no right completion."""
        right = {each.prompt_id for each in traces if self.is_right(each)}
        judged = {each.prompt_id for each in traces if each.accuracy is not None}
        return [each for each in source.prompts if each.id in judged - right]

    def _hinted(self, source: Source, traces: Sequence[Trace]) -> Source:
        assert self.rationalise is not None
        failing = self._failing(source, traces)
        asked = [self.rationalise.asked(prompt) for prompt in failing]
        sampling = sized(source, self.rationalise.samples)
        learned = {prompt.id: prompt for prompt in failing}
        return replace(
            source, prompts=asked, sampling=sampling, learned=learned, visit=1, how=HINTED
        )

    def _repaired(
        self, context: StageContext, source: Source, traces: Sequence[Trace], policy: Policy
    ) -> Source:
        """The first finished failure of each prompt goes back, where it fits."""
        assert self.repair is not None
        failed: dict[str, Trace] = {}
        for trace in traces:
            if trace.how == SAMPLED and not trace.fault and trace.accuracy is not None:
                failed.setdefault(trace.prompt_id, trace)
        failing = [each for each in self._failing(source, traces) if each.id in failed]
        room = policy.max_length - self.sampling.max_tokens
        asked, learned = list[Prompt](), dict[str, Prompt]()
        for prompt in failing:
            made = self.repair.asked(prompt, failed[prompt.id])
            if len(source.environment.prompt_ids(made, source.template)) <= room:
                asked.append(made)
                learned[prompt.id] = prompt if self.repair.learn == "answer" else made
        if len(asked) < len(failing):
            context.warn(
                f"{len(failing) - len(asked)} of {len(failing)} failures are not repaired: with "
                f"the verifier's reason they have more than {room} tokens"
            )
        sampling = sized(source, self.repair.samples)
        return replace(
            source, prompts=asked, sampling=sampling, learned=learned, visit=2, how=REPAIRED
        )


def sized(source: Source, samples: int | None) -> Any:
    sampling = source.sampling
    return sampling if samples is None else sampling.model_copy(update={"group_size": samples})


def all_traces(
    context: StageContext, source: Source, policy: Policy, interruption: Interruption
) -> list[Trace]:
    """Every trace of a source, stored in the stage's folder as `<how>.jsonl`."""
    traces = list[Trace]()
    groups = stored(context.folder / f"{source.how}.jsonl", source, policy)
    for done, group in enumerate(groups, start=1):
        traces += group
        if interruption.number is not None:
            raise Interrupted(
                interruption.number,
                f"interrupted after {done} of {len(source.prompts)} prompts ({source.how})",
            )
    return traces


@contextmanager
def stage_record(
    context: StageContext, identity: Mapping[str, Any]
) -> Iterator[tuple[RunWriter, Interruption]]:
    """The stage's record, begun or resumed; however the stage ends, it says how."""
    folder = context.folder
    resuming = holds_run(folder)
    if resuming:
        now = {"template_reads_clock": False, **identity}
        for note in same_data(folder, now):
            context.warn(note)
    record = open_record(folder, context.recipe_text, identity, resuming=resuming)
    with record as writer, Interruption() as interruption:
        if resuming:
            writer.truncate_after(0)
        writer.event("resumed" if resuming else "started")
        try:
            yield writer, interruption
        except BaseException as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            status = "interrupted" if stopped else "failed"
            writer.ended_early(status, error, stage_summary(status, None, None))
            raise


def stage_summary(status: str, seconds: float | None, tokens: int | None) -> dict[str, Any]:
    found = {"status": status, "steps": 0, "seconds": seconds, "tokens": tokens}
    return {**dict.fromkeys(SUMMARY_KEYS), **found}
