"""What the stages that fit examples share: settings, and data that is checked, read and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field, field_validator

from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.policies import Policy, check_base, describe_model
from groupwise.records import CheckpointSettings
from groupwise.stages.chats import check_length
from groupwise.stages.fitting import fit
from groupwise.stages.objective import FittingSettings, Objective
from groupwise.stages.output import write_model
from groupwise.stages.progress import Fitted
from groupwise.stages.sources import (
    Found,
    RowData,
    check_sources,
    count_guarded,
    examples_of,
    source_list,
    split_off,
)
from groupwise.stages.stage import CheckContext, Stage, StageContext, StageResult
from groupwise.templates import Template


class Example(Protocol):
    """What is known of every kind of example."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def tokens(self) -> int:
        """Positions that its longest row takes."""
        ...


class FitStage(Stage):
    """A stage that fits fixed examples, wherever they are from."""

    training: FittingSettings = Field(
        default_factory=FittingSettings, description="How examples become updates."
    )
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="What is kept on disk."
    )

    def check(self, context: CheckContext) -> Any:
        adapter = self.model.adapter
        check_base(context.model, adapter, self.model.device)
        if adapter is not None and adapter.dropout > 0:
            raise RecipeError(
                f"model.adapter.dropout = {adapter.dropout}: log-probabilities are computed "
                "without dropout; give 0"
            )

    def fit(
        self,
        context: StageContext,
        policy: Policy,
        objective: Objective[Any],
        train: Sequence[Any],
        heldout: Sequence[Any] = (),
        *,
        about: Mapping[str, Any],
        padded: bool | None = None,
    ) -> Fitted:
        """The policy fitted to examples in the stage's folder; `about` is recorded."""
        identity = {"model": context.model, "template_hash": policy.template.hash, **about}
        return fit(
            policy, objective, train, heldout,
            settings=self.training, checkpoints=self.checkpoints, seed=self.seed,
            context=context, identity=identity, padded=padded,
        )  # fmt: skip


class DataStage(FitStage):
    """A stage that fits examples made from the rows of its `data`; a subclass says how a row
    becomes examples, and the loss."""

    small: ClassVar[Mapping[str, Any]] = {"training.steps": 2, "training.examples_per_step": 4}

    data: tuple[RowData, ...] = Field(
        min_length=1, description="The sources of rows, mixed; one table or a list of them."
    )
    heldout_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the examples held out for the evaluation loss, chosen by the seed: "
        "equal chats, and all pairs of a prompt, stay together.",
    )

    _list = field_validator("data", mode="before")(source_list)

    # --- what a subclass gives --------------------------------------------------------------------

    def objective(self) -> Objective[Any]:
        """The loss."""
        raise NotImplementedError

    def maker(self, source: Any, template: Template) -> Callable[[Row], Sequence[Example]]:
        """What makes examples of a source's rows, one after the other. It raises ValueError saying
        what is wrong with a row."""
        raise NotImplementedError

    def key(self, example: Any) -> bytes:
        """Examples with one key are held out together."""
        return self.objective().digest(example)

    def ready(self, context: StageContext, policy: Policy, examples: list[Any]) -> list[Any]:
        """The examples with what the policy, as it starts, adds to them."""
        return examples

    def rows(
        self, source: Any, folder: Path | None, context: StageContext | None
    ) -> tuple[list[Row], str, str | None]:
        """A source's rows, the source in words, and a remark on what made none."""
        found: tuple[list[Row], str, str | None] = source.rows(folder, self.seed)
        return found

    # --- the data ---------------------------------------------------------------------------------

    def reads(self) -> Iterable[str]:
        return [each.stage for each in self.data if each.stage is not None]

    def check(self, context: CheckContext) -> dict[int, Found[Any]]:
        """The sources that can be read before the run, by their place in `data`."""
        super().check(context)
        check_sources(self.data, context)
        info = describe_model(
            context.model,
            trust_remote_code=self.model.trust_remote_code,
            adapter=self.model.adapter,
            classifier=self.leaves_scorer is not None,
        )
        template = self.template.applied(info.template)
        known = {
            place: self.found(source, None, template, info.max_length)[0]
            for place, source in enumerate(self.data)
            if source.path is not None
        }
        if len(known) < len(self.data):
            self.training.check(None if self.heldout_share else 0)
        else:
            train, heldout = self.split(known)
            self.training.check(len(heldout), len(train))
        return known

    def sources(self, prepared: Any) -> dict[str, str]:
        return {
            f"rows of data.{place}.path = {self.data[place].path!r}": found.hash
            for place, found in prepared.items()
        }

    def found(
        self,
        source: RowData,
        folder: Path | None,
        template: Template,
        longest: int,
        context: StageContext | None = None,
    ) -> tuple[Found[Any], str | None]:
        """The examples of a source (`folder`: of its stage; `context`: of the run of this one), and
        a remark on what made none.

        Raises RecipeError naming rows that cannot be used.
        """
        rows, named, remark = self.rows(source, folder, context)
        examples_in = self.maker(source, template)

        def make(row: Row) -> Sequence[Example]:
            examples = examples_in(row)
            check_length(max(each.tokens for each in examples), longest)
            return examples

        return examples_of(source, rows, named, make), remark

    def split(self, found: Mapping[int, Found[Any]]) -> tuple[list[Any], list[Any]]:
        """Training and held-out examples. Raises RecipeError where one side is empty."""
        sources = (each for _, each in sorted(found.items()))
        return split_off(sources, self.heldout_share, self.seed, self.key)

    def plan(self, prepared: dict[int, Found[Any]]) -> list[tuple[str, str]]:
        if len(prepared) < len(self.data):
            return [("examples", f"known after the stage {', '.join(self.reads())}")]
        train, heldout = self.split(prepared)
        steps, loss = self.training.total_steps(len(train)), self.objective()
        return [
            ("examples, held out", f"{len(train):,}, {len(heldout):,}"),
            ("tokens that train, in one epoch", f"{sum(map(loss.trained, train)):,}"),
            ("longest example, tokens", f"{max(each.tokens for each in train):,}"),
            ("steps", f"{steps:,}"),
            ("epochs", f"{steps * self.training.examples_per_step / len(train):.3g}"),
        ]

    def examples(
        self, context: StageContext, template: Template, longest: int
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """Training and held-out examples of a run, and what is recorded of them."""
        found = dict(context.prepared)
        for place, source in enumerate(self.data):
            if source.stage is not None:
                folder = context.folders[source.stage]
                found[place], remark = self.found(source, folder, template, longest, context)
                if remark:
                    context.warn(f"data.stage = {source.stage!r}: {remark}")
        for each in found.values():
            each.warn(context)
        train, heldout = self.split(found)
        self.training.check(len(heldout), len(train))
        about = {
            "examples": len(train),
            "heldout_examples": len(heldout),
            "examples_with_guard_prompts": count_guarded(context, [e.prompt_ids for e in train]),
            "dropped_rows": [each.dropped for _, each in sorted(found.items())],
        }
        return train, heldout, about

    def run(self, context: StageContext) -> StageResult:
        policy = self.policy(context.model)
        train, heldout, about = self.examples(context, policy.template, policy.max_length)
        both = self.ready(context, policy, [*train, *heldout])
        train, heldout = both[: len(train)], both[len(train) :]
        fitted = self.fit(context, policy, self.objective(), train, heldout, about=about)
        output = write_model(policy, context.folder)
        return StageResult(fitted.first, fitted.last, output, fitted.data_hash)
