"""What the stages that learn from pairs share: their data, how it is checked, read and split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from groupwise.environments.readers import Row
from groupwise.policies import describe_model
from groupwise.records import CheckpointSettings
from groupwise.stages.objective import FittingSettings
from groupwise.stages.pairs import Pair, PairData, TokenPair, no_contradiction
from groupwise.stages.sources import (
    Found,
    check_sources,
    count_guarded,
    examples_of,
    source_list,
    split_off,
)
from groupwise.stages.stage import CheckContext, Stage, StageContext
from groupwise.templates import Template


class PairStage(Stage):
    """A stage that fits pairs of a chosen and a rejected answer."""

    small: ClassVar[Mapping[str, Any]] = {"training.steps": 2, "training.examples_per_step": 4}

    data: tuple[PairData, ...] = Field(
        min_length=1, description="The sources of pairs, mixed; one table or a list of them."
    )
    heldout_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the pairs held out for the evaluation, chosen by the seed and the "
        "prompt, so that a prompt's pairs stay together.",
    )
    training: FittingSettings = Field(
        default_factory=FittingSettings, description="How pairs become updates."
    )
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="What is kept on disk."
    )

    _list = field_validator("data", mode="before")(source_list)

    def reads(self) -> Iterable[str]:
        return [each.stage for each in self.data if each.stage is not None]

    def example(self, pair: Pair, template: Template) -> TokenPair:
        """A pair as ids. Raises ValueError saying what is wrong with it."""
        raise NotImplementedError

    def check(self, context: CheckContext) -> dict[int, Found[TokenPair]]:
        """The sources that can be read before the run, by their place in `data`."""
        check_sources(self.data, context)
        info = describe_model(
            context.model,
            trust_remote_code=self.model.trust_remote_code,
            adapter=self.model.adapter,
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
            train, heldout = self.split(known.values())
            self.training.check(len(heldout), len(train))
        return known

    def found(
        self, source: PairData, folder: Path | None, template: Template, longest: int
    ) -> tuple[Found[TokenPair], str | None]:
        """The pairs of a source (`folder`: of its stage), and a remark on what made none.

        Raises RecipeError naming rows that cannot be used.
        """
        rows, named, remark = source.rows(folder, self.seed)
        check = no_contradiction()

        def make(row: Row) -> list[TokenPair]:
            pair = self.example(source.pair(row), template)
            most = max(len(s.prompt_ids) + len(s.completion_ids) for s in pair.sides)
            if most > longest:
                raise ValueError(
                    f"is longer than the model's {longest} positions; it has {most} tokens"
                )
            check(pair, row.where)
            return [pair]

        return examples_of(source, rows, named, make), remark

    def split(self, found: Iterable[Found[TokenPair]]) -> tuple[list[TokenPair], list[TokenPair]]:
        """Training and held-out pairs. Raises RecipeError where one side is empty."""
        return split_off(
            found, self.heldout_share, self.seed, lambda pair: repr(pair.prompt_ids).encode()
        )

    def plan(self, prepared: dict[int, Found[TokenPair]]) -> list[tuple[str, str]]:
        if len(prepared) < len(self.data):
            return [("pairs", f"known after the stage {', '.join(self.reads())}")]
        train, heldout = self.split(prepared.values())
        return [
            ("pairs, held out", f"{len(train):,}, {len(heldout):,}"),
            ("steps", f"{self.training.total_steps(len(train)):,}"),
        ]

    def pairs(
        self, context: StageContext, template: Template, longest: int
    ) -> tuple[list[TokenPair], list[TokenPair], dict[str, Any]]:
        """Training and held-out pairs of a run, and what is recorded of them."""
        found = dict(context.prepared)
        for place, source in enumerate(self.data):
            if source.stage is not None:
                folder = context.folders[source.stage]
                found[place], remark = self.found(source, folder, template, longest)
                if remark:
                    context.warn(f"data.stage = {source.stage!r}: {remark}")
        for each in found.values():
            each.warn(context)
        train, heldout = self.split(found[place] for place in sorted(found))
        self.training.check(len(heldout), len(train))
        return (
            train,
            heldout,
            {
                "model": context.model,
                "template_hash": template.hash,
                "pairs": len(train),
                "heldout_pairs": len(heldout),
                "pairs_with_guard_prompts": count_guarded(
                    context, [pair.prompt_ids for pair in train]
                ),
                "dropped_rows": [each.dropped for _, each in sorted(found.items())],
            },
        )
