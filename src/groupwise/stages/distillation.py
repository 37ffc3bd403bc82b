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
from groupwise.errors import RecipeError
from groupwise.policies import Policy, describe_model, load_policy
from groupwise.recipe import plain_table
from groupwise.scorers import SELF, TeacherSettings
from groupwise.stages.chats import TokenExample
from groupwise.stages.data_stage import FitStage
from groupwise.stages.keeping import TraceStage, trace_counts
from groupwise.stages.output import write_model
from groupwise.stages.reinforcement import Reinforcement
from groupwise.stages.stage import CheckContext, Rows, Stage, StageContext, StageResult
from groupwise.stages.supervised import TokenLoss
from groupwise.stages.traces import Source, TraceTeacher, stored
from groupwise.training.preparing import Prepared
from groupwise.verifiers.judge.endpoint import key_headers

TRACES = "traces.jsonl"
MODES = ("traces", "on_policy", "self")


class Distillation(TraceStage, FitStage):
    """`mode = "traces"`; `variant` gives the class of the other modes."""

    kind: ClassVar[str] = "distillation"
    makes: ClassVar[frozenset[Rows]] = frozenset({"chats", "scored"})
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
    teacher: TraceTeacher = Field(description="Who writes the traces.")

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
        FitStage.check(self, context)
        context.check_policy(self.teacher.stage or "", "teacher.stage")
        self.training.check(0)
        prepared = self.prepared(context)
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

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        policy = self.policy(context.model)
        examples, counts = self.examples(context, prepared, policy)
        self.training.check(0, len(examples))
        about = {"environment": prepared.environment.describe(), "traces": counts}
        fitted = self.fit(context, policy, TokenLoss(), examples, about=about)
        prepared.environment.close()
        output = write_model(policy, context.folder)
        return StageResult(fitted.first, {**fitted.last, **counts}, output, fitted.data_hash)

    def examples(
        self, context: StageContext, prepared: Prepared, policy: Policy
    ) -> tuple[list[TokenExample], dict[str, float | int]]:
        """The traces that are learned from, as the student's ids, and what became of all of them;
        both kinds of rows are written. Raises GroupwiseError where none is left."""
        context.folder.mkdir(parents=True, exist_ok=True)
        source = Source(
            prepared.environment,
            self.chosen(prepared),
            self.sampling,
            self.seed,
            policy.template,
        )
        path = context.folder / TRACES
        asked = list(stored(path, source, self._teacher(context)))
        traces = [trace for traces in asked for trace in traces]
        found, examples = self.kept(context, traces, policy.template, policy.max_length)
        return examples, trace_counts(traces, found, self)

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

    def check(self, context: CheckContext) -> Prepared:
        context.check_policy(self.teacher.stage or "", "teacher.stage")
        return super().check(context)

    def recipe(self, model: str, models: Mapping[str, str]) -> dict[str, Any]:
        table = super().recipe(model, models)
        del table["mode"]
        teacher = self.teacher
        if self.mode == "self":
            teacher = teacher.model_copy(update={"name": SELF})
        return {**table, "teacher": plain_table(teacher.resolved(models))}
