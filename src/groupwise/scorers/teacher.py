"""Teachers: policies that score a student's completions, with more context than the student had.

A teacher reads the student's prompt ids and, where it has a context, that too; the completion ids
are the same. Everything that can be refused is refused by `check_teachers`, before weights load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from groupwise.environments import Environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import ModelInfo, Policy, Teaching, describe_model, weights_hash
from groupwise.scorers.teacher_settings import SELF, WORDINGS, TeacherSettings
from groupwise.templates import Template, differing_tokenizers
from groupwise.types import Group, Prompt, Rollout


def check_teachers(
    settings: TeacherSettings,
    student: ModelInfo,
    environment: Environment,
    longest: int,
    trust_remote_code: bool = False,
) -> None:
    """Refuse teachers that cannot score the student's ids; `longest` tokens may have to fit.

    Raises RecipeError naming the field: no such model, another tokenizer, too few positions, an
    unknown source, `self` without a context.
    """
    parts = getattr(environment, "parts", {})
    for source in settings.by_source:
        if source not in parts:
            known = ", ".join(parts) or f"none: environment {environment.name!r} is no mixture"
            raise RecipeError(f"teacher.by_source.{source} is not a source; sources: {known}")
    if settings.is_self and settings.context == "none":
        raise RecipeError(
            'teacher.name = "self" without a context: the policy would teach itself what it says '
            'already; set teacher.context = "answer", "feedback" or "sibling"'
        )
    for name in settings.names:
        if name == SELF:
            continue
        info = describe_model(name, trust_remote_code=trust_remote_code)
        difference = differing_tokenizers(student.template, info.template)
        if difference is not None:
            raise RecipeError(
                f"teacher {name!r} and model.name = {student.name!r} have different vocabularies: "
                f"{difference}; a teacher scores the student's token ids, so give one with the "
                'same tokenizer (or take its texts: a stage of kind "distillation" with '
                'mode = "traces")'
            )
        if info.max_length < longest:
            raise RecipeError(
                f"teacher {name!r} has positions for {info.max_length} tokens; the student's "
                f"prompts and completions have up to {longest}; lower sampling.max_tokens"
            )


@dataclass(frozen=True)
class Teachers:
    """Loaded teachers, and the rule which of them reads what for a row."""

    settings: TeacherSettings
    policies: Mapping[str, Policy]
    environment: Environment
    template: Template
    temperature: float

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Of each teacher's weights, but for a policy that teaches itself."""
        named = {n: dict(p.model.named_parameters()) for n, p in self.policies.items() if n != SELF}
        return {name: weights_hash(tensors) for name, tensors in named.items()}

    def same(self, before: Mapping[str, str]) -> None:
        """Refuse teachers whose weights are not those of the checkpoint. Raises GroupwiseError."""
        for name, found in self.hashes.items():
            if before.get(name) != found:
                raise GroupwiseError(
                    f"the weights of teacher {name!r} are not those that the checkpoint was "
                    "trained with; put the old ones back"
                )

    def refresh(self, student: Policy) -> None:
        """A self-teacher that follows its student takes its weights, at a step's start."""
        if not (self.settings.is_self and self.settings.weights == "step"):
            return
        own = self.policies[SELF].model.parameters()
        with torch.no_grad():
            for mine, theirs in zip(own, student.model.parameters(), strict=True):
                if mine is not theirs:  # an adapter's base is shared
                    mine.copy_(theirs)

    def teach(self, groups: Sequence[Group]) -> Teaching:
        """Who teaches each rollout of a step's groups, and what it reads. A row whose teacher has
        no context to read, or no room for it, has none."""
        names = list(self.policies)
        which: list[int | None] = []
        prompt_ids: list[tuple[int, ...]] = []
        for group in groups:
            source = group.prompt.id.partition("/")[0]
            name = self.settings.by_source.get(source, self.settings.name)
            room = self.policies[name].max_length
            for rollout in group.sequences:
                ids = self._reads(rollout, group)
                fits = ids is not None and len(ids) + len(rollout.completion_ids) <= room
                which.append(names.index(name) if fits else None)
                prompt_ids.append(ids or rollout.prompt_ids)
        return Teaching(tuple(self.policies.values()), which, prompt_ids, self.temperature)

    def _reads(self, rollout: Rollout, group: Group) -> tuple[int, ...] | None:
        if self.settings.context == "none":
            return rollout.prompt_ids
        text = context_of(rollout, group, self.settings)
        if text is None:
            return None
        wording = self.settings.wording or WORDINGS[self.settings.context]
        prompt = with_context(rollout.prompt, wording.format(text=text))
        return self.environment.prompt_ids(prompt, self.template)


def context_of(rollout: Rollout, group: Group, settings: TeacherSettings) -> str | None:
    """The answer, the verifier's reason, or the group's first other right completion; None where
    there is none."""
    if settings.context == "answer":
        answer: Any = rollout.prompt.answer
        return None if answer is None else str(answer)
    if settings.context == "feedback":
        return rollout.score.reason or None
    right = (each for each in group.rollouts if each is not rollout and each.score.accuracy == 1)
    return next((each.text for each in right), None)


def with_context(prompt: Prompt, said: str) -> Prompt:
    """The prompt with a text behind its last message, or above it where it is raw."""
    if prompt.text is not None:
        return replace(prompt, text=f"{said}\n{prompt.text}")
    last = dict(prompt.messages[-1])
    last["content"] = f"{last.get('content', '')}\n\n{said}"
    return replace(prompt, messages=(*prompt.messages[:-1], last))
