"""The `merge` and `export` stages: averages of models, and a plain folder for other tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.errors import RecipeError
from groupwise.policies import Policy, describe_model, has_adapter, merged_copy
from groupwise.stages.output import record_at_once, write_model
from groupwise.stages.stage import (
    CheckContext,
    Stage,
    StageContext,
    StageResult,
)
from groupwise.templates import differing_tokenizers


class Part(BaseModel):
    """One model of an average: another stage's, or a model by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    stage: str | None = Field(None, description="A stage whose model it is.")
    name: str | None = Field(None, description="A model folder, a built-in model or a hub id.")
    weight: float = Field(1.0, gt=0, description="Its share; shares are divided by their sum.")

    @model_validator(mode="after")
    def _one(self) -> Part:
        if (self.stage is None) == (self.name is None):
            raise ValueError("models: give stage or name, one of the two")
        return self


class Merge(Stage):
    """The weighted average of models of one architecture; an adapter is merged into its base."""

    kind: ClassVar[str] = "merge"

    weight: float = Field(1.0, gt=0, description="The share of the stage's own input.")
    models: tuple[Part, ...] = Field(
        (), description="The other models; none = the input alone, an adapter merged into it."
    )

    def reads(self) -> Iterable[str]:
        return [each.stage for each in self.models if each.stage is not None]

    def check(self, context: CheckContext) -> None:
        own = describe_model(context.model, trust_remote_code=self.model.trust_remote_code)
        for part in self.models:
            context.check_policy(part.stage or "", "models.stage")
            name = part.name if part.stage is None else context.origins[part.stage]
            assert name is not None
            other = describe_model(name, trust_remote_code=self.model.trust_remote_code)
            called = f"models: {part.name or part.stage!r}"
            different = differing_tokenizers(own.template, other.template)
            if different is not None:
                raise RecipeError(f"{called} has another tokenizer than the input: {different}")
            fields = _differing_fields(own.config, other.config)
            if fields:
                raise RecipeError(f"{called} has another architecture than the input: {fields}")

    def plan(self, prepared: Any) -> list[tuple[str, str]]:
        shares = ", ".join(f"{each.stage or each.name} {each.weight:g}" for each in self.models)
        return [("models", f"the input {self.weight:g}{', ' if shares else ''}{shares}")]

    def run(self, context: StageContext) -> StageResult:
        names = [context.models[p.stage] if p.stage else str(p.name) for p in self.models]
        weights = [self.weight, *(each.weight for each in self.models)]
        policies = (_whole(self.policy(name)) for name in (context.model, *names))
        merged = average(policies, [each / sum(weights) for each in weights])
        record_at_once(context, {"model": context.model})
        return StageResult({}, {}, write_model(merged, context.folder))


class Export(Stage):
    """Writes its input as a plain model folder for other tools, an adapter merged into its base."""

    kind: ClassVar[str] = "export"
    changes_weights: ClassVar[bool] = False

    def check(self, context: CheckContext) -> None:
        describe_model(context.model, trust_remote_code=self.model.trust_remote_code)

    def run(self, context: StageContext) -> StageResult:
        policy = self.policy(context.model)
        record_at_once(context, {"model": context.model})
        return StageResult({}, {}, write_model(policy, context.folder))


@torch.no_grad()
def average(policies: Iterable[Policy], shares: Iterable[float]) -> Policy:
    """The policy whose every parameter is the weighted mean, summed in float64; the first policy,
    changed in place. Shares add up to 1. One model at a time is in memory besides the sum."""
    total: dict[str, torch.Tensor] = {}
    result: Policy | None = None
    for policy, share in zip(policies, shares, strict=True):
        result = result or policy
        for name, parameter in policy.model.named_parameters():
            term = parameter.double() * share
            total[name] = term if name not in total else total[name] + term
    if result is None:
        raise ValueError("no policy to average")
    for name, parameter in result.model.named_parameters():
        parameter.copy_(total[name])
    return result


def _whole(policy: Policy) -> Policy:
    if has_adapter(policy.model):
        policy.model = merged_copy(policy.model)
    return policy


def _differing_fields(one: Any, other: Any) -> str:
    """Fields of two configurations that shape the weights or what is computed from them."""
    skipped = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
    a, b = ({k: v for k, v in each.to_dict().items() if k not in skipped} for each in (one, other))
    fields = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
    return ", ".join(f"{key} {a.get(key)!r:.40} and {b.get(key)!r:.40}" for key in fields[:3])
