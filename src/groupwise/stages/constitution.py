"""The `constitution` stage: rows that written principles make, in place of people's labels.

`mode = "revise"`: the policy answers, criticises its answer by a drawn principle and revises it;
the revisions are rows for a supervised stage. `mode = "label"`: the policy answers twice, and a
feedback model says how likely each answer keeps better to a drawn principle; the pairs are rows for
`reward_model` or `preference`, with that probability as their soft label. Bai et al. 2022, arXiv
2212.08073.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from groupwise.algorithms import preset
from groupwise.environments import EnvironmentSettings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy
from groupwise.recipe import Recipe, check_record
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.samplers import SamplingSettings
from groupwise.stages.principles import Principle, Refusals, drawn, read_principles
from groupwise.stages.rejection import all_traces, sized, stage_record, stage_summary
from groupwise.stages.stage import DROPPED, ROWS, CheckContext, Stage, StageContext, StageResult
from groupwise.stages.traces import CHUNK, Source, Trace
from groupwise.training.preparing import Prepared, prepare
from groupwise.training.process import Interrupted, Interruption
from groupwise.types import Message, Prompt
from groupwise.verifiers.judge.judging import Verdict
from groupwise.verifiers.judge.readouts import JudgeVerifier
from groupwise.verifiers.judge.rubric import load_judge

LABELS = "labels.jsonl"
MODES = ("revise", "label")
AFTER_REASONS = (0.4, 0.6)
"""Bounds of a label that a model gives behind its reasons, which make it too sure (section 4.1)."""

Rows = list[dict[str, Any]]


class Constitution(Stage):
    """`mode = "revise"`; `variant` gives the class of the other mode."""

    kind: ClassVar[str] = "constitution"
    changes_weights: ClassVar[bool] = False
    makes_rows: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {"prompts": 8, "sampling.max_tokens": 16}

    mode: Literal["revise", "label"] = Field(
        "revise", description='"revise" (rows for `supervised`) or "label" (pairs).'
    )
    principles: tuple[Principle, ...] = Field(
        description="A file: a principle a line, or a .toml of [[principles]] (text, critique, "
        "revision); `package:file` for one of an installed package. Or the tables themselves."
    )
    environment: EnvironmentSettings = Field(description="The prompts, and who measures.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings,
        description="How answers are sampled; group_size is their number for a prompt.",
    )
    prompts: int | None = Field(None, ge=1, description="So many training prompts; all if unset.")
    skip: int = Field(0, ge=0, description="Training prompts that are passed over first.")
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
        check_record(self)
        found = prepare(
            Recipe(
                seed=self.seed,
                model=self.model.model_copy(update={"name": context.model}),
                template=self.template,
                environment=self.environment,
                algorithm=preset("reinforce"),
                sampling=self.sampling,
            )
        )
        environment = found.environment
        if environment.answer_role is not None:
            raise RecipeError(
                f"environment {environment.name!r} plays several turns, and critique and revision "
                "are turns of their own; use an environment of one turn"
            )
        if not self.chosen(found):
            raise RecipeError(f"skip = {self.skip} leaves none of {len(environment)} prompts")
        raw = next((each for each in self.chosen(found) if each.text is not None), None)
        if raw is not None:
            raise RecipeError(f"prompt {raw.id!r} is raw text, which has no turns; give chats")
        return found

    def chosen(self, prepared: Prepared) -> list[Prompt]:
        prompts = prepared.environment.prompts()[self.skip :]
        return prompts if self.prompts is None else prompts[: self.prompts]

    def plan(self, prepared: Prepared) -> list[tuple[str, str]]:
        count = len(self.chosen(prepared))
        return [
            ("prompts, answers", f"{count:,}, {count * self.sampling.group_size:,}"),
            ("principles", f"{len(self.principles)}"),
        ]

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        environment = prepared.environment
        policy = self.policy(context.model)
        about = environment.describe()
        identity = {"model": context.model, "template_hash": policy.template.hash}
        identity |= {"environment": about, **self.facts()}
        started = time.perf_counter()
        with stage_record(context, identity) as (writer, interruption):
            chosen = self.chosen(prepared)
            source = Source(environment, chosen, self.sampling, self.seed, policy.template)
            traces = all_traces(context, source, policy, interruption)
            counts = self.refusals.counts((each.text for each in traces), "sampled")
            kept, dropped, more = self.rows(context, source, traces, policy, interruption)
            write_text(context.folder / ROWS, "".join(map(json_line, kept)))
            write_text(context.folder / DROPPED, "".join(map(json_line, dropped)))
            reasons = Counter(row["reason"].partition(":")[0] for row in dropped)
            if not kept:
                raise GroupwiseError(
                    f"all {len(dropped)} rows were dropped ({dict(reasons)}; {DROPPED} has each "
                    "with its reason): nothing is learned from. Read some, and give more prompts "
                    "or a larger sampling.group_size"
                )
            counts |= {"rows/kept": len(kept), "rows/dropped": len(dropped), **more}
            counts |= {f"rows/dropped/{reason}": count for reason, count in reasons.items()}
            writer.event("kept", counts=counts)
            tokens = sum(each.tokens or 0 for each in traces)
            seconds = round(time.perf_counter() - started, 3)
            writer.summary(stage_summary("finished", seconds, tokens))
            writer.event("finished")
        environment.close()
        return StageResult({}, counts, None, about["data_hash"])

    def facts(self) -> dict[str, Any]:
        """What is recorded beside the recipe."""
        return {"principles": [each.text for each in self.principles]}

    def rows(
        self,
        context: StageContext,
        source: Source,
        traces: Sequence[Trace],
        policy: Policy,
        interruption: Interruption,
    ) -> tuple[Rows, Rows, dict[str, Any]]:
        """Rows that are learned from, the others with their reasons, and counts."""
        by_id = {prompt.id: prompt for prompt in source.prompts}
        seen = Counter[str]()
        chats = dict[str, tuple[Prompt, list[Message], Principle, Trace]]()
        dropped: Rows = []
        for trace in traces:
            place = seen[trace.prompt_id]
            seen[trace.prompt_id] += 1
            if trace.fault or not trace.text.strip():
                dropped.append(_row(trace, None, f"no answer: {trace.fault or 'empty'}"))
                continue
            prompt = by_id[trace.prompt_id]
            principle = drawn(self.principles, self.seed, prompt.id, place)
            turns = [*prompt.messages, _says("assistant", trace.text)]
            chats[f"{prompt.id}#{place}"] = prompt, turns, principle, trace
        last = {name: trace for name, (*_, trace) in chats.items()}
        for number in range(self.revisions):
            for how in ("critique", "revision"):
                made = self._turn(context, source, chats, f"{how}_{number}", policy, interruption)
                for name in [each for each in chats if each not in made]:
                    dropped.append(_row(last[name], chats.pop(name)[2], f"too long for a {how}"))
                for name, trace in made.items():
                    prompt, turns, principle, _ = chats[name]
                    if trace.fault or not trace.text.strip():
                        fault = f"no {how}: {trace.fault or 'empty'}"
                        dropped.append(_row(last[name], principle, fault))
                        del chats[name]
                        continue
                    asked = getattr(principle, how).replace("{principle}", principle.text)
                    turns += [_says("user", asked), _says("assistant", trace.text)]
                    last[name] = trace if how == "revision" else last[name]
        kept: Rows = []
        for name, (prompt, turns, principle, trace) in chats.items():
            text = last[name].text
            same = "the answer stood" if text == trace.text else "revised"
            row = {"messages": [*map(dict, prompt.messages), _says("assistant", text)]}
            more = {"answer": trace.text, "critique": turns[-3]["content"]}
            kept.append({**row, **_row(trace, principle, same), **more})
        changed = sum(row["reason"] == "revised" for row in kept)
        revised = (row["messages"][-1]["content"] for row in kept)
        return kept, dropped, {"rows/revised": changed, **self.refusals.counts(revised, "kept")}

    def _turn(
        self,
        context: StageContext,
        source: Source,
        chats: Mapping[str, tuple[Prompt, list[Message], Principle, Trace]],
        how: str,
        policy: Policy,
        interruption: Interruption,
    ) -> dict[str, Trace]:
        """What the policy says to the next request about each answer, where it fits."""
        kind, number = how.split("_")
        room = policy.max_length - self.sampling.max_tokens
        asked = list[Prompt]()
        for name, (prompt, turns, principle, _) in chats.items():
            words = getattr(principle, kind).replace("{principle}", principle.text)
            made = replace(prompt, id=name, messages=(*turns, _says("user", words)))
            if len(source.environment.prompt_ids(made, source.template)) <= room:
                asked.append(made)
        visit = 1 + 2 * int(number) + (kind == "revision")
        own = replace(source, prompts=asked, sampling=sized(source, 1), visit=visit, how=how)
        return {each.prompt_id: each for each in all_traces(context, own, policy, interruption)}


class Labelling(Constitution):
    """Pairs of the policy's answers, labelled by a feedback model."""

    mode: Literal["label"] = Field(  # type: ignore[assignment]
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
        load_judge(self.feedback, "feedback", {})
        return super().check(context)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "feedback": self.feedback}

    def bounds(self, judge: JudgeVerifier) -> tuple[float, float]:
        if self.clamp is not None:
            return self.clamp
        return (0.0, 1.0) if getattr(judge, "think", None) == 0 else AFTER_REASONS

    def rows(
        self,
        context: StageContext,
        source: Source,
        traces: Sequence[Trace],
        policy: Policy,
        interruption: Interruption,
    ) -> tuple[Rows, Rows, dict[str, Any]]:
        by_id = {prompt.id: prompt for prompt in source.prompts}
        groups: dict[str, list[Trace]] = {}
        for trace in traces:
            groups.setdefault(trace.prompt_id, []).append(trace)
        pairs, dropped = list[tuple[Prompt, Trace, Trace, Principle]](), Rows()
        for name, group in groups.items():
            for place in range(0, len(group) - 1, 2):
                one, other = group[place : place + 2]
                principle = drawn(self.principles, self.seed, name, place)
                fault = next((f"no answer: {e.fault}" for e in (one, other) if e.fault), "")
                fault = fault or ("two equal answers" if one.text == other.text else "")
                if fault:
                    dropped.append({**_row(one, principle, fault), "other": other.text})
                else:
                    pairs.append((by_id[name], one, other, principle))
        judge = load_judge(self.feedback, "feedback", {})
        low, high = self.bounds(judge)
        kept: Rows = []
        labels = self._labels(context, judge, pairs, interruption)
        for (prompt, one, other, principle), (value, why) in zip(pairs, labels, strict=True):
            texts = (one.text, other.text)
            if value is None or value == 0.5:
                reason = f"unread: {why}" if value is None else f"undecided: {why}"
                dropped.append({**_row(one, principle, reason), "other": other.text})
                continue
            better, worse = texts if value > 0.5 else texts[::-1]
            target = min(high, max(low, value))
            target = max(target, 1 - target)
            pair = {"prompt": [*map(dict, prompt.messages)], "chosen": better, "rejected": worse}
            kept.append({**_row(one, principle, why or "labelled"), **pair, "target": target})
        judge.close()
        share = sum(row["target"] for row in kept) / max(len(kept), 1)
        chosen = self.refusals.counts((row["chosen"] for row in kept), "chosen")
        return kept, dropped, {"labels/mean": share, **judge.take_logs().metrics, **chosen}

    def _labels(
        self,
        context: StageContext,
        judge: JudgeVerifier,
        pairs: Sequence[tuple[Prompt, Trace, Trace, Principle]],
        interruption: Interruption,
    ) -> Iterator[tuple[float | None, str]]:
        """How likely the first of each pair is the better one, and the feedback model's words:
        those that `labels.jsonl` has, then new ones, which it gets."""
        path = context.folder / LABELS
        lines = [tuple(each) for each in read_json_lines(path, torn="ignore")]
        write_text(path, "".join(json_line(each) for each in lines))  # without a torn end
        yield from lines
        with path.open("a", encoding="utf-8") as file:
            for start in range(len(lines), len(pairs), CHUNK):
                chunk = pairs[start : start + CHUNK]
                verdicts: list[Verdict] = judge.both_orders(
                    [(prompt, (one.text, other.text)) for prompt, one, other, _ in chunk],
                    [principle.text for *_, principle in chunk],
                )
                found = [(v.values[0] if v.values else None, v.reason) for v in verdicts]
                file.write("".join(map(json_line, found)))
                file.flush()
                os.fsync(file.fileno())
                yield from found
                if interruption.number is not None:
                    done = start + len(chunk)
                    said = f"interrupted after {done} of {len(pairs)} labels"
                    raise Interrupted(interruption.number, said)


def _says(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def _row(trace: Trace, principle: Principle | None, reason: str) -> dict[str, Any]:
    """What every row says of itself, kept or dropped."""
    drawn_one = None if principle is None else principle.text
    found = {"prompt_id": trace.prompt_id, "principle": drawn_one, "answer": trace.text}
    return {**found, "outcome": trace.outcome, "reason": reason}
