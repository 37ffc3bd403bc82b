"""The `constitution` stage: rows that written principles make, in place of people's labels.

`mode = "revise"`: the policy answers, criticises its answer by a drawn principle and revises it;
the revisions are rows for a supervised stage. `mode = "label"`: the policy answers twice, and a
feedback model says how likely each answer keeps better to a drawn principle; the pairs are rows for
`reward_model` or `preference`, with that probability as their soft label. Bai et al. 2022, arXiv
2212.08073.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from groupwise.errors import RecipeError
from groupwise.policies import Policy
from groupwise.stages.feedback import Asked, judge_of, judge_uses, labels
from groupwise.stages.keeping import Kept, SamplingStage, write_kept
from groupwise.stages.principles import Principle, Refusals, drawn, read_principles
from groupwise.stages.rejection import all_traces, sized, stage_record, stage_summary
from groupwise.stages.stage import CheckContext, Rows, Stage, StageContext, StageResult
from groupwise.stages.stage_models import ModelUse
from groupwise.stages.traces import Source, Trace
from groupwise.training.preparing import Prepared
from groupwise.training.process import Interruption
from groupwise.types import Message, Prompt
from groupwise.verifiers.judge.readouts import JudgeVerifier

LABELS = "labels.jsonl"
MODES = ("revise", "label")
AFTER_REASONS = (0.4, 0.6)
"""Bounds of a label that a model gives behind its reasons, which make it too sure (section 4.1)."""


@dataclass(slots=True)
class Chat:
    """An answer, what was said of it since (`turns` behind the prompt), and its last revision."""

    prompt: Prompt
    principle: Principle
    trace: Trace
    text: str
    turns: list[Message] = field(default_factory=list[Message])

    def row(self, reason: str) -> dict[str, Any]:
        """What a row says of itself, kept or dropped."""
        trace, found = self.trace, {"principle": self.principle.text, "reason": reason}
        found |= {"prompt_id": trace.prompt_id, "answer": trace.text, "outcome": trace.outcome}
        return found


@dataclass(frozen=True, slots=True)
class Work:
    """What a run samples with."""

    context: StageContext
    source: Source
    policy: Policy
    interruption: Interruption

    def traces(self, source: Source) -> list[Trace]:
        return all_traces(self.context, source, self.policy, self.interruption)

    def placed(self, traces: Sequence[Trace]) -> Iterator[tuple[Trace, Prompt, int]]:
        """Each trace with its prompt and its place among the prompt's."""
        by_id = {prompt.id: prompt for prompt in self.source.prompts}
        seen = Counter[str]()
        for trace in traces:
            yield trace, by_id[trace.prompt_id], seen[trace.prompt_id]
            seen[trace.prompt_id] += 1

    def said(self, chats: Mapping[str, Chat], visit: int, how: str) -> dict[str, Trace]:
        """What the policy says next in each chat, where that fits."""
        source = self.source
        room = self.policy.max_length - source.sampling.max_tokens
        asked = [
            replace(chat.prompt, id=name, messages=(*chat.prompt.messages, *chat.turns))
            for name, chat in chats.items()
        ]
        fits = [e for e in asked if len(source.environment.prompt_ids(e, source.template)) <= room]
        own = replace(source, prompts=fits, sampling=sized(source, 1), visit=visit, how=how)
        return {each.prompt_id: each for each in self.traces(own)}


class Constitution(SamplingStage):
    """`mode = "revise"`; `variant` gives the class of the other mode."""

    kind: ClassVar[str] = "constitution"
    changes_weights: ClassVar[bool] = False
    makes: ClassVar[frozenset[Rows]] = frozenset({"chats"})
    small: ClassVar[Mapping[str, Any]] = {"prompts": 8, "sampling.max_tokens": 16}

    mode: Literal["revise", "label"] = Field(
        "revise", description='"revise" (rows for `supervised`) or "label" (pairs).'
    )
    principles: tuple[Principle, ...] = Field(
        description="A file: a principle a line, or a .toml of [[principles]] (text, critique, "
        "revision); `package:file` for one of an installed package. Or the tables themselves."
    )
    refusals: Refusals = Field(
        default_factory=Refusals, description="What counts as a refusal, evasive or explained."
    )
    revisions: int = Field(1, ge=1, description="How often an answer is criticised and revised.")

    @classmethod
    def variant(cls, table: Mapping[str, Any]) -> type[Stage]:
        mode = table.get("mode", "revise")
        if mode not in MODES:
            raise RecipeError(f"mode = {mode!r}: give one of {', '.join(MODES)}")
        return Constitution if mode == "revise" else Labelling

    @classmethod
    def variants(cls) -> tuple[type[Stage], ...]:
        return (Constitution, Labelling)

    @field_validator("principles", mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        if not value:
            raise ValueError(f"principles = {value!r} is empty; give a file, or tables")
        return read_principles(value) if isinstance(value, str) else value

    def check(self, context: CheckContext) -> Prepared:
        found = self.prepared(context)
        if found.environment.answer_role is not None:
            raise RecipeError(
                f"environment {found.environment.name!r} plays several turns, and critique and "
                "revision are turns of their own; use an environment of one turn"
            )
        raw = next((each for each in self.chosen(found) if each.text is not None), None)
        if raw is not None:
            raise RecipeError(f"prompt {raw.id!r} is raw text, which has no turns; give chats")
        return found

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        environment = prepared.environment
        policy = self.policy(context.model)
        about = environment.describe()
        identity = {"environment": about, "model": context.model, **self.facts()}
        identity["template_hash"] = policy.template.hash
        started = time.perf_counter()
        with stage_record(context, identity) as (writer, interruption):
            chosen = self.chosen(prepared)
            source = Source(environment, chosen, self.sampling, self.seed, policy.template)
            work = Work(context, source, policy, interruption)
            traces = work.traces(source)
            counts = self.refusals.counts((each.text for each in traces), "sampled")
            found, more = self.rows(work, traces)
            write_kept(context, found, self.advice(found))
            counts |= {"rows/kept": len(found.rows), "rows/dropped": len(found.dropped), **more}
            counts |= {f"rows/dropped/{reason}": count for reason, count in found.reasons.items()}
            writer.event("kept", counts=counts)
            tokens = sum(each.tokens or 0 for each in traces)
            seconds = round(time.perf_counter() - started, 3)
            writer.summary(stage_summary("finished", seconds, tokens))
            writer.event("finished")
        environment.close()
        return StageResult({}, counts, None, about["data_hash"])

    def advice(self, found: Kept) -> str:
        """What helps where nothing is kept."""
        return (
            "Take more prompts, give answers more sampling.max_tokens, or start from a better model"
        )

    def facts(self) -> dict[str, Any]:
        """What is recorded beside the recipe."""
        return {"principles": [each.text for each in self.principles]}

    def rows(self, work: Work, traces: Sequence[Trace]) -> tuple[Kept, dict[str, Any]]:
        """Every row with its reason, and counts."""
        found, chats = Kept(), dict[str, Chat]()
        for trace, prompt, place in work.placed(traces):
            principle = drawn(self.principles, self.seed, prompt.id, place)
            chat = Chat(prompt, principle, trace, trace.text)
            chat.turns.append({"role": "assistant", "content": trace.text})
            if fault := _fault(trace):
                found.dropped.append(chat.row(f"no answer: {fault}"))
            else:
                chats[f"{prompt.id}#{place}"] = chat
        for visit in range(1, 1 + 2 * self.revisions):
            how = "critique" if visit % 2 else "revision"
            for chat in chats.values():
                words = getattr(chat.principle, how).replace("{principle}", chat.principle.text)
                chat.turns.append({"role": "user", "content": words})
            said = work.said(chats, visit, f"{how}_{(visit - 1) // 2}")
            for name, chat in list(chats.items()):
                reply = said.get(name)
                fault = "too long for the model" if reply is None else _fault(reply)
                if reply is None or fault:
                    found.dropped.append(chats.pop(name).row(f"no {how}: {fault}"))
                    continue
                chat.turns.append({"role": "assistant", "content": reply.text})
                chat.text = reply.text if how == "revision" else chat.text
        for chat in chats.values():
            answer = {"role": "assistant", "content": chat.text}
            row = {"messages": [*map(dict, chat.prompt.messages), answer]}
            same = "the answer stood" if chat.text == chat.trace.text else "revised"
            found.rows.append({**row, **chat.row(same), "critique": chat.turns[-3]["content"]})
        changed = sum(row["reason"] == "revised" for row in found.rows)
        revised = (chat.text for chat in chats.values())
        return found, {"rows/revised": changed, **self.refusals.counts(revised, "kept")}


class Labelling(Constitution):
    """Pairs of the policy's answers, labelled by a feedback model."""

    makes: ClassVar[frozenset[Rows]] = frozenset({"pairs"})

    mode: Literal["label"] = Field(
        "label", description='"revise" (rows for `supervised`) or "label" (pairs).'
    )
    feedback: dict[str, Any] = Field(
        description="The feedback model: `name` (judge, the default, or local_judge) and its "
        "arguments. It is asked in both orders, with the principle as its rubric."
    )
    clamp: tuple[float, float] | None = Field(
        None,
        description="Bounds of a label; by default 0.4 and 0.6 where the feedback model writes "
        "reasons first (judge; local_judge with think), else 0 and 1.",
    )

    @field_validator("clamp")
    @classmethod
    def _bounds(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not 0 <= value[0] < 0.5 < value[1] <= 1:
            raise ValueError(f"clamp = {list(value)}: give bounds on either side of 0.5")
        return value

    def check(self, context: CheckContext) -> Prepared:
        if self.sampling.group_size < 2:
            raise RecipeError(
                f"sampling.group_size = {self.sampling.group_size}: a pair has two answers"
            )
        judge_of(self.feedback, "feedback", context.origins)
        return super().check(context)

    def model_uses(self) -> list[ModelUse]:
        return [*super().model_uses(), *judge_uses(self.feedback)]

    def advice(self, found: Kept) -> str:
        if any(str(row["reason"]).startswith("unread") for row in found.dropped):
            return "Check that the feedback model answers and that its replies can be read"
        return super().advice(found)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "feedback": self.feedback}

    def bounds(self, judge: JudgeVerifier) -> tuple[float, float]:
        if self.clamp is not None:
            return self.clamp
        return (0.0, 1.0) if getattr(judge, "think", None) == 0 else AFTER_REASONS

    def rows(self, work: Work, traces: Sequence[Trace]) -> tuple[Kept, dict[str, Any]]:
        found, pairs = Kept(), list[tuple[Chat, str]]()
        placed = list(work.placed(traces))
        for (one, prompt, place), (two, again, _) in pairwise(placed):
            if place % 2 or again is not prompt:
                continue
            chat = Chat(prompt, drawn(self.principles, self.seed, prompt.id, place), one, one.text)
            fault = _fault(one) or _fault(two)
            reason = f"no answer: {fault}" if fault else ""
            reason = reason or ("two equal answers" if one.text == two.text else "")
            if reason:
                found.dropped.append({**chat.row(reason), "other": two.text})
            else:
                pairs.append((chat, two.text))
        judge = judge_of(self.feedback, "feedback", work.context.models)
        low, high = self.bounds(judge)
        asked = [Asked(e.prompt, (e.text, other), e.principle.text) for e, other in pairs]
        found_labels = list(labels(work.context.folder / LABELS, judge, asked, work.interruption))
        for (chat, other), (value, why, _) in zip(pairs, found_labels, strict=True):
            if value is None or value == 0.5:
                reason = f"unread: {why}" if value is None else f"undecided: {why}"
                found.dropped.append({**chat.row(reason), "other": other})
                continue
            better, worse = (chat.text, other) if value > 0.5 else (other, chat.text)
            target = min(high, max(low, value))
            row = {**chat.row(why or "labelled"), "prompt": [*map(dict, chat.prompt.messages)]}
            row |= {"chosen": better, "rejected": worse, "target": max(target, 1 - target)}
            found.rows.append(row)
        judge.close()
        read = [first for value, _, first in found_labels if value is not None]
        return found, {
            "labels/mean": sum(row["target"] for row in found.rows) / max(len(found.rows), 1),
            "labels/position_bias": sum(read) / max(len(read), 1),
            **self.refusals.counts((row["chosen"] for row in found.rows), "chosen"),
        }


def _fault(trace: Trace) -> str:
    """Why an answer cannot be used; "" where it can."""
    return trace.fault or ("" if trace.text.strip() else "empty")
