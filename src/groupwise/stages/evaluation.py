"""The `evaluate` stage: its input on an environment's prompts; also the guard after each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from groupwise.algorithms import preset
from groupwise.environments import EnvironmentSettings
from groupwise.evaluation import EvaluationResult, evaluation_sets
from groupwise.recipe import Recipe, check_record
from groupwise.records import EvaluationSettings, Value
from groupwise.samplers import SamplingSettings
from groupwise.stages.output import record_at_once
from groupwise.stages.stage import CheckContext, Stage, StageContext, StageResult
from groupwise.training.preparing import Prepared, prepare
from groupwise.training.trained import evaluate_prepared


class Evaluate(Stage):
    """Measures its input and leaves it as it is."""

    kind: ClassVar[str] = "evaluate"
    changes_weights: ClassVar[bool] = False
    small: ClassVar[Mapping[str, Any]] = {
        "sampling.max_tokens": 16,
        "evaluation.max_prompts": 8,
        "evaluation.samples": 1,
    }

    environment: EnvironmentSettings = Field(description="Prompts, turns and verifier.")
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings, description="How completions are sampled."
    )
    evaluation: EvaluationSettings = Field(
        default_factory=EvaluationSettings, description="What is measured."
    )

    def check(self, context: CheckContext) -> Prepared:
        check_record(self)
        return prepare(
            Recipe(
                seed=self.seed,
                model=self.model.model_copy(update={"name": context.model}),
                template=self.template,
                environment=self.environment,
                algorithm=preset("grpo"),
                sampling=self.sampling,
                evaluation=self.evaluation,
            ),
            context.pending,
        )

    def sources(self, prepared: Prepared) -> dict[str, str]:
        return {"environment's data": prepared.environment.describe()["data_hash"]}

    def measure(self, prepared: Prepared, model: str) -> EvaluationResult:
        """The evaluation of a model, the same prompts and noise for every one."""
        return evaluate_prepared(prepared, self.policy(model))

    def run(self, context: StageContext) -> StageResult:
        prepared: Prepared = context.prepared
        about = prepared.environment.describe()
        result = self.measure(prepared, context.model)
        record_at_once(context, {"model": context.model, "environment": about}, result)
        prepared.environment.close()
        return StageResult({}, dict(result.metrics), None, about["data_hash"])


def heldout_only(prepared: Prepared) -> Prepared:
    """The same, evaluated on held-out prompts alone where there are some and no split is named."""
    settings, sets = prepared.recipe.evaluation, prepared.evaluation_sets
    if settings.splits is not None or not sets.heldout:
        return prepared
    settings = settings.model_copy(update={"splits": tuple(sets.heldout)})
    chosen = evaluation_sets(prepared.environment, settings, seed=prepared.recipe.seed)
    recipe = prepared.recipe.model_copy(update={"evaluation": settings})
    return replace(prepared, recipe=recipe, evaluation_sets=chosen)


def guard_values(result: EvaluationResult) -> dict[str, Value]:
    """An evaluation's metrics as `guard/<name>`, with the mean length of a sampled completion."""
    groups = result.groups[: result.overall.num_prompts]  # the guards' follow, and count apart
    lengths = [each.num_tokens for group in groups for each in group.rollouts]
    values = {f"guard/{name.removeprefix('eval/')}": v for name, v in result.metrics.items()}
    return {**values, "guard/tokens_mean": sum(lengths) / len(lengths)}
