"""The `rl` stage: an ordinary run in the stage's folder, whose reference is the stage's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from groupwise.recipe import SMALL, Recipe, check_record, plain_table, validated
from groupwise.recipe_checks import check
from groupwise.stages.output import write_model
from groupwise.stages.stage import CheckContext, Rows, Stage, StageContext, StageResult
from groupwise.training.output import holds_run
from groupwise.training.preparing import Prepared, prepare
from groupwise.training.start import refuse_cluster, train
from groupwise.training.trained import trained_policy


class Reinforcement(Recipe, Stage):
    """Everything that a recipe of one run has: environment, algorithm, sampling, training, ..."""

    kind: ClassVar[str] = "rl"
    makes: ClassVar[frozenset[Rows]] = frozenset({"rollouts"})
    small: ClassVar[Mapping[str, Any]] = SMALL

    def recipe(self, model: str, models: Mapping[str, str]) -> dict[str, Any]:
        """The tables of the run that starts from a model; `models` are other stages' by name."""
        table = plain_table(self)
        table["model"]["name"] = model
        return table

    def check(self, context: CheckContext) -> Prepared:
        refuse_cluster(self)
        check(self)
        check_record(self)
        prepared = prepare(
            validated(self.recipe(context.model, context.origins), Recipe), context.pending
        )
        prepared.environment.close()  # the run opens its own
        return prepared

    def sources(self, prepared: Prepared) -> dict[str, str]:
        return {"environment's data": prepared.environment.describe()["data_hash"]}

    def run(self, context: StageContext) -> StageResult:
        about = context.prepared.environment.describe()
        run = train(
            self.recipe(context.model, context.models),
            output=context.folder,
            resume=holds_run(context.folder),
            callbacks=context.callbacks,
        )
        trains = self.training.steps > 0
        policy = trained_policy(context.folder) if trains else self.policy(context.model)
        output = write_model(policy, context.folder)
        summary = run.summary
        lines = run.metrics().to_pylist()
        first, last = dict(summary["eval/first"]), dict(summary["eval/last"])
        for values, line in ((first, lines[:1]), (last, lines[-1:])):
            for name in ("reward", "kl", "completions/tokens_mean"):
                values[name] = line[0][name] if line else None
        return StageResult(first, last, output, about["data_hash"])
