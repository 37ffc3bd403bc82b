"""What a stage of a pipeline is: its settings, its checks before any weights load, and its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from groupwise.environments import EnvironmentSettings
from groupwise.errors import RecipeError
from groupwise.policies import ModelSettings, Policy, load_policy
from groupwise.records import Value
from groupwise.stages.stage_models import ModelUse, model_uses, with_models
from groupwise.templates import TemplateSettings
from groupwise.training.callbacks import Callback
from groupwise.verifiers import Verifier

Rows = Literal["chats", "scored", "pairs", "steps", "rollouts"]
"""What rows hold: chats to learn from, completions with their scores, pairs, labelled steps; or,
in place of rows, the rollouts of a run with their scores."""
ROWS = "data.jsonl"
"""The file of a stage's folder with the rows that it made, for a later stage to learn from."""
DROPPED = "dropped.jsonl"
"""The file with what it did not keep, each row with its `reason`."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage leaves: its headline metrics before and after, its model's folder (None where it
    leaves the weights as they were), and the hash of the data that it read."""

    first: Mapping[str, Value]
    last: Mapping[str, Value]
    output: Path | None = None
    data_hash: str | None = None


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is known of a stage before any weights load.

    `model` is a model with the architecture and the tokenizer that the stage's input will have;
    `origins` has the same of each stage that runs before it, by name, and `kinds` their kinds.
    `pending` are the model folders that stages before it will leave, `verifiers` what judges in
    them.
    """

    name: str
    model: str
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    kinds: Mapping[str, type[Stage]] = field(default_factory=dict[str, "type[Stage]"])
    pending: frozenset[str] = frozenset()
    verifiers: Mapping[str, Verifier] = field(default_factory=dict[str, Verifier])

    def check_policy(self, stage: str, where: str) -> None:
        """Refuse a stage that leaves no policy. Raises RecipeError naming the field `where`."""
        kind = self.kinds.get(stage)
        if kind is not None and not kind.leaves_policy:
            raise RecipeError(
                f"{where} = {stage!r}: the kind {kind.kind!r} leaves a model for the verifier "
                f"{kind.leaves_scorer!r}, and a policy is read here; name a stage that trains one, "
                'or "base"'
            )


@dataclass(frozen=True, slots=True)
class StageContext:
    """What a stage runs with.

    `folder` is the stage's run folder, `model` the folder or name of the model that it starts from,
    `models` those of the stages before it by name, `folders` their run folders. `prepared` is what
    the stage's own check returned, `recipe_text` what its `recipe.toml` says. `guard_prompts` are
    the ids of the guard set's prompts.
    """

    name: str
    folder: Path
    model: str
    models: Mapping[str, str]
    folders: Mapping[str, Path]
    prepared: Any
    recipe_text: str
    callbacks: Sequence[Callback] = ()
    guard_prompts: frozenset[tuple[int, ...]] = frozenset()

    def warn(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_warning(f"stage {self.name!r}: {message}")


class Stage(BaseModel):
    """One kind of stage; a subclass is the kind's settings.

    A kind is added by a subclass with its own `kind` and fields, and one entry in `kinds.py`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    kind: ClassVar[str]
    changes_weights: ClassVar[bool] = True
    """Whether it leaves a model of its own; else the next stage starts where this one did."""
    leaves_policy: ClassVar[bool] = True
    """Whether a policy can start from the model that it leaves; else the next stage starts from the
    last one before that does."""
    leaves_scorer: ClassVar[str | None] = None
    """The verifier that reads the model which it leaves, where that is not a policy."""
    makes: ClassVar[frozenset[Rows]] = frozenset()
    """What another stage's `data.stage` may read of it."""
    small: ClassVar[Mapping[str, Any]] = {}
    """What `--small` sets in a recipe without a [small] table, by dotted field of the stage."""

    seed: int = Field(0, ge=0, description="The run's seed: every stream of noise is keyed by it.")
    model: ModelSettings = Field(
        default_factory=ModelSettings,
        description="How the stage's input is loaded. A `name` of its own is a model to start from "
        "in place of another stage's.",
    )
    template: TemplateSettings = Field(
        default_factory=TemplateSettings, description="How chats become token ids."
    )

    @classmethod
    def variant(cls, table: Mapping[str, Any]) -> type[Stage]:
        """The class of a stage with these tables, where a kind has modes. Raises RecipeError."""
        return cls

    @classmethod
    def variants(cls) -> tuple[type[Stage], ...]:
        """Every class of the kind."""
        return (cls,)

    def reads(self) -> Iterable[str]:
        """Names of the other stages whose output it reads, besides the one it starts from."""
        return ()

    @property
    def _environment(self) -> EnvironmentSettings | None:
        return getattr(self, "environment", None)

    def model_uses(self) -> list[ModelUse]:
        """The stages whose models its verifiers read."""
        return model_uses(self._environment)

    def with_models(self, models: Mapping[str, str]) -> Self:
        """The same stage, whose verifiers read the model folders of the stages that they name."""
        if self._environment is None or not self.model_uses():
            return self
        return self.model_copy(update={"environment": with_models(self._environment, models)})

    def check(self, context: CheckContext) -> Any:
        """Everything that can be checked before weights load. Its value is the run's `prepared`.

        Raises RecipeError naming the field, without the stage's name.
        """
        return None

    def sources(self, prepared: Any) -> Mapping[str, str]:
        """Hashes of the data that it reads from outside the pipeline, by what they are of; a
        finished stage is compared with them on resume."""
        return {}

    def plan(self, prepared: Any) -> list[tuple[str, str]]:
        """What the stage will do, as rows of quantity and value."""
        return []

    def run(self, context: StageContext) -> StageResult:
        """Run or resume the stage in its folder. Raises GroupwiseError where it fails."""
        raise NotImplementedError

    def policy(self, model: str) -> Policy:
        """A model as the stage's settings load it."""
        settings = self.model
        policy = load_policy(
            model,
            dtype=settings.dtype,
            device=settings.device,
            trust_remote_code=settings.trust_remote_code,
            gradient_checkpointing=settings.gradient_checkpointing,
            adapter=settings.adapter,
            seed=self.seed,
        )
        policy.template = self.template.applied(policy.template)
        return policy
