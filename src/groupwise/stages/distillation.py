"""The `distillation` stage: a student learns from a teacher's completions or probabilities.

`mode = "traces"`: cross-entropy on completions of the teacher that the verifier accepts.
`mode = "on_policy"`: the student samples and the teacher's probabilities of that are learned from.
`mode = "self"`: the same with the policy as its own teacher, which reads more (teacher.context).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.algorithms import Algorithm, preset
from groupwise.environments import EnvironmentSettings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy, describe_model, load_policy
from groupwise.recipe import Recipe, check_record, plain_table
from groupwise.records import CheckpointSettings
from groupwise.records.files import json_line, write_text
from groupwise.samplers import SamplingSettings
from groupwise.scorers import SELF, TeacherSettings
from groupwise.stages.chats import TokenExample, chat_examples, raw_example
from groupwise.stages.fitting import fit
from groupwise.stages.objective import FittingSettings
from groupwise.stages.output import write_model
from groupwise.stages.reinforcement import Reinforcement
from groupwise.stages.stage import ROWS, CheckContext, Stage, StageContext, StageResult
from groupwise.stages.supervised import TokenLoss
from groupwise.stages.traces import Source, TraceTeacher, keep, stored
from groupwise.templates import Template
from groupwise.training.preparing import Prepared, prepare
from groupwise.verifiers.judge.endpoint import key_headers

TRACES, DROPPED = "traces.jsonl", "dropped.jsonl"
MODES = ("traces", "on_policy", "self")


class Distillation(Stage):
    """`mode = "traces"`; `variant` gives the class of the other modes."""

    kind: ClassVar[str] = "distillation"
    makes_rows: ClassVar[bool] = True
    small: ClassVar[Mapping[str, Any]] = {
        "prompts": 8,
        "sampling.group_size": 2,
        "sampling.max_tokens": 16,
        "training.steps": 2,
        "training.examples_per_step": 4,
        "keep": "all",
    }

    mode: Literal["traces"] = Field(
        "traces", description='"traces", "on_policy" or "self": what is learned from.'
    )
    environment: EnvironmentSettings = Field(description="Prompts, turns and verifier.")
    teacher: TraceTeacher = Field(description="Who writes the traces.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings,
        description="How the teacher samples; group_size is the number of traces of a prompt.",
    )
    prompts: int | None = Field(None, ge=1, description="The first so many training prompts.")
    keep: Literal["correct", "all"] = Field(
        "correct", description="Learn from traces that the verifier finds correct, or from all."
    )
    per_prompt: int | None = Field(None, ge=1, description="The most traces of one prompt.")
    duplicates: bool = Field(
        False,
        description="Keep a text that the teacher wrote again for the same prompt: its share is "
        "then the teacher's, and not one of a kind.",
    )
    training: FittingSettings = Field(
        default_factory=FittingSettings, description="How traces become updates."
    )
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="What is kept on disk."
    )

    @classmethod
    def variant(cls, table: Mapping[str, Any]) -> type[Stage]:
        mode = table.get("mode", "traces")
        if mode not in MODES:
            raise RecipeError(f"mode = {mode!r}: give one of {', '.join(MODES)}")
        return cls if mode == "traces" else OnPolicy

    @classmethod
    def variants(cls) -> tuple[type[Stage], ...]:
        return (cls, OnPolicy)

    def reads(self) -> Iterable[str]:
        return () if self.teacher.stage is None else (self.teacher.stage,)

    def check(self, context: CheckContext) -> Prepared:
        check_record(self)
        self.training.check(0)
        prepared = prepare(
            Recipe(
                seed=self.seed,
                model=self.model.model_copy(update={"name": context.model}),
                template=self.template,
                environment=self.environment,
                algorithm=preset("reinforce"),
                sampling=self.sampling,
            )
        )
        teacher, environment = self.teacher, prepared.environment
        if teacher.url is not None:
            key_headers(teacher.key, "teacher.key")
            raw = next((each for each in environment.prompts() if each.text is not None), None)
            if raw is not None:
                raise RecipeError(
                    f"teacher.url = {teacher.url!r}: an endpoint reads chats, and prompt "
                    f"{raw.id!r} is raw text; set environment.chat = true, or name a local teacher"
                )
            if environment.answer_role is not None:
                raise RecipeError(
                    f"teacher.url = {teacher.url!r}: environment {environment.name!r} plays "
                    "several turns, which need a local teacher (teacher.name)"
                )
            return prepared
        name = context.origins[teacher.stage] if teacher.stage else str(teacher.name)
        info = describe_model(name, trust_remote_code=self.model.trust_remote_code)
        longest = prepared.longest_prompt + self.sampling.max_tokens
        if info.max_length < longest:
            raise RecipeError(
                f"teacher {name!r} has positions for {info.max_length} tokens; prompts and "
                f"completions have up to {longest}; lower sampling.max_tokens"
            )
        return prepared

    def plan(self, prepared: Prepared) -> list[tuple[str, str]]:
        count = len(prepared.environment.prompts(self.prompts))
        traces = count * self.sampling.group_size
        return [("prompts, traces", f"{count:,}, {traces:,}")]

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        policy = self.policy(context.model)
        examples, counts = self.examples(context, prepared, policy)
        self.training.check(0, len(examples))
        fitted = fit(
            policy,
            TokenLoss(),
            examples,
            settings=self.training,
            checkpoints=self.checkpoints,
            seed=self.seed,
            context=context,
            identity={
                "model": context.model,
                "template_hash": policy.template.hash,
                "environment": prepared.environment.describe(),
                "traces": counts,
            },
        )
        prepared.environment.close()
        output = write_model(policy, context.folder)
        kept = {"traces/kept": counts["kept"], "traces/dropped": counts["dropped"]}
        return StageResult({**fitted.first}, {**fitted.last, **kept}, output, fitted.data_hash)

    def examples(
        self, context: StageContext, prepared: Prepared, policy: Policy
    ) -> tuple[list[TokenExample], dict[str, Any]]:
        """The traces that are learned from, as the student's ids, and what became of all of them;
        both kinds of rows are written. Raises GroupwiseError where none is left."""
        context.folder.mkdir(parents=True, exist_ok=True)
        source = Source(
            prepared.environment,
            prepared.environment.prompts(self.prompts),
            self.sampling,
            self.seed,
            policy.template,
        )
        path = context.folder / TRACES
        asked = list(stored(path, source, self._teacher(context)))
        found = keep(
            [trace for traces in asked for trace in traces],
            right=self.keep == "correct",
            per_prompt=self.per_prompt,
            duplicates=self.duplicates,
        )
        examples, kept = list[TokenExample](), list[dict[str, Any]]()
        for row in found.rows:
            try:
                made = _examples(row, policy.template, policy.max_length)
            except (ValueError, RecipeError) as error:
                found.dropped.append({**row, "reason": f"not learnable: {error}"})
                continue
            examples += made
            kept.append(row)
        write_text(context.folder / ROWS, "".join(map(json_line, kept)))
        write_text(context.folder / DROPPED, "".join(map(json_line, found.dropped)))
        reasons = found.reasons
        for reason, number in reasons.items():
            context.warn(f"{number} of {len(kept) + len(found.dropped)} traces dropped: {reason}")
        if not examples:
            raise GroupwiseError(
                f"all {len(found.dropped)} traces were dropped ({reasons}; {DROPPED} has each with "
                'its reason): nothing is learned from. Set keep = "all", more traces a prompt '
                "(sampling.group_size), or another teacher"
            )
        counts = {"kept": len(kept), "dropped": len(found.dropped), "reasons": reasons}
        return examples, counts

    def _teacher(self, context: StageContext) -> Policy | TraceTeacher:
        teacher = self.teacher
        if teacher.url is not None:
            return teacher
        name = context.models[teacher.stage] if teacher.stage else str(teacher.name)
        model = self.model
        return load_policy(
            name,
            dtype=model.dtype,
            device=model.device,
            trust_remote_code=model.trust_remote_code,
        )


def _examples(row: Mapping[str, Any], template: Template, longest: int) -> list[TokenExample]:
    """A trace as the student's ids. Raises ValueError where it cannot be learned from."""
    if "messages" in row:
        found = chat_examples(template, row["messages"], values=row)
    else:
        found = [raw_example(template, row["prompt"], row["completion"])]
    most = max(len(each.prompt_ids) + len(each.completion_ids) for each in found)
    if most > longest:
        raise ValueError(f"{most} tokens, and the model has {longest} positions")
    return found


class StageTeacher(TeacherSettings):
    """The teacher of an on-policy stage; it may be the model of another stage."""

    name: str = Field(
        "", description="A built-in model, a model folder or a hub id, with the student's tokens."
    )
    stage: str | None = Field(None, description="A stage of the pipeline whose model it is.")

    def resolved(self, models: Mapping[str, str]) -> TeacherSettings:
        """With the stage's model for its name."""
        fields = self.model_dump(exclude={"stage"})
        return TeacherSettings(
            **fields | ({} if self.stage is None else {"name": models[self.stage]})
        )


class OnPolicy(Reinforcement):
    """`mode = "on_policy"` and `"self"`: an ordinary run with a teacher."""

    kind: ClassVar[str] = "distillation"

    mode: Literal["on_policy", "self"] = Field("on_policy", description="Who the teacher is.")
    algorithm: Algorithm = Field(
        default_factory=lambda: preset("on_policy_distillation"),
        description="A preset that learns from a teacher, with any part replaced.",
    )
    teacher: StageTeacher = Field(default_factory=StageTeacher, description="Who is learned from.")

    @model_validator(mode="after")
    def _one_teacher(self) -> OnPolicy:
        named = [each for each in (self.teacher.name, self.teacher.stage) if each]
        if self.mode == "self" and named not in ([], [SELF]):
            raise ValueError(f'mode = "self": the policy teaches itself; remove {named[0]!r}')
        if self.mode == "on_policy" and len(named) != 1:
            raise ValueError("teacher: give name (a model) or stage (its model), one of the two")
        return self

    def reads(self) -> Iterable[str]:
        return () if self.teacher.stage is None else (self.teacher.stage,)

    def recipe(self, model: str, models: Mapping[str, str]) -> dict[str, Any]:
        table = super().recipe(model, models)
        del table["mode"]
        teacher = self.teacher
        if self.mode == "self":
            teacher = teacher.model_copy(update={"name": SELF})
        return {**table, "teacher": plain_table(teacher.resolved(models))}
