"""The `supervised` stage: cross-entropy on the assistant's tokens of chats."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from groupwise.environments.readers import Row, Source, read_rows
from groupwise.errors import RecipeError
from groupwise.policies import Policy, describe_model, sequence_logprobs
from groupwise.records import CheckpointSettings
from groupwise.stages.chats import ChatData, TokenExample, Turns
from groupwise.stages.fitting import fit
from groupwise.stages.objective import FittingSettings
from groupwise.stages.output import write_model
from groupwise.stages.sources import (
    Found,
    check_sources,
    count_guarded,
    examples_of,
    source_list,
    split_off,
)
from groupwise.stages.stage import ROWS, CheckContext, Stage, StageContext, StageResult
from groupwise.templates import Template
from groupwise.training.process import kept_directory


class TokenLoss:
    """-log p of every trained token, summed; divided by their number over the update."""

    def count(self, example: TokenExample) -> float:
        return float(sum(example.mask))

    def trained(self, example: TokenExample) -> int:
        return sum(example.mask)

    def size(self, example: TokenExample) -> int:
        return example.size

    def digest(self, example: TokenExample) -> bytes:
        parts = (example.prompt_ids, example.completion_ids, example.mask)
        return b"".join(struct.pack(f"<q{len(part)}q", len(part), *part) for part in parts)

    def sum_loss(
        self, policy: Policy, examples: Sequence[TokenExample]
    ) -> tuple[Tensor, Mapping[str, float]]:
        output = sequence_logprobs(
            policy,
            [each.prompt_ids for each in examples],
            [each.completion_ids for each in examples],
        )
        return token_nll(output.logprobs, mask_of(examples, output.logprobs)), {}


def token_nll(logprobs: Tensor, mask: Tensor) -> Tensor:
    """- sum over the masked tokens of log p, a scalar; both [B, T]."""
    return -torch.where(mask, logprobs, 0.0).sum()


def mask_of(examples: Sequence[TokenExample], like: Tensor) -> Tensor:
    """[B, T] bool: the trained tokens of the examples' completions."""
    mask = torch.zeros(like.shape, dtype=torch.bool)
    for row, example in enumerate(examples):
        mask[row, : len(example.mask)] = torch.tensor(example.mask)
    return mask.to(like.device)


class Supervised(Stage):
    """Learns what the assistant says in chats; nothing else has loss."""

    kind: ClassVar[str] = "supervised"
    small: ClassVar[Mapping[str, Any]] = {"training.steps": 2, "training.examples_per_step": 4}

    data: tuple[ChatData, ...] = Field(
        min_length=1, description="The sources of chats, mixed; one table or a list of them."
    )
    turns: Turns = Field(
        "every", description="Which of the assistant's turns of a chat train: every one or the last"
    )
    heldout_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the examples held out for the evaluation loss, chosen by the seed "
        "and the content, so equal ones stay together.",
    )
    training: FittingSettings = Field(
        default_factory=FittingSettings, description="How examples become updates."
    )
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="What is kept on disk."
    )

    _list = field_validator("data", mode="before")(source_list)

    def reads(self) -> Iterable[str]:
        return [each.stage for each in self.data if each.stage is not None]

    def check(self, context: CheckContext) -> dict[int, Found[TokenExample]]:
        """The sources that can be read before the run, by their place in `data`."""
        adapter = self.model.adapter
        if adapter is not None and adapter.dropout > 0:
            raise RecipeError(
                f"model.adapter.dropout = {adapter.dropout}: log-probabilities are computed "
                "without dropout; give 0"
            )
        check_sources(self.data, context)
        info = describe_model(
            context.model, trust_remote_code=self.model.trust_remote_code, adapter=adapter
        )
        template = self.template.applied(info.template)
        known = {}
        for place, source in enumerate(self.data):
            if source.path is not None:
                rows = Source(source.path, source.config, source.split, self.seed, "data.path")
                known[place] = self.tokens(source, rows, template, info.max_length)
        if len(known) < len(self.data):
            self.training.check(None if self.heldout_share else 0)
        else:
            train, heldout = self.split(known.values())
            self.training.check(len(heldout), len(train))
        return known

    def tokens(
        self, source: ChatData, rows: Source, template: Template, longest: int
    ) -> Found[TokenExample]:
        """The examples of one source. Raises RecipeError naming rows that cannot be used."""

        def make(row: Row) -> list[TokenExample]:
            examples = source.examples(row, template, self.turns)
            _check_length(examples, longest)
            return examples

        with kept_directory():
            read = read_rows(rows, source.limit)
        return examples_of(source, read, rows.named, make)

    def split(
        self, found: Iterable[Found[TokenExample]]
    ) -> tuple[list[TokenExample], list[TokenExample]]:
        """Training and held-out examples. Raises RecipeError where one side is empty."""
        return split_off(found, self.heldout_share, self.seed, TokenLoss().digest)

    def plan(self, prepared: dict[int, Found[TokenExample]]) -> list[tuple[str, str]]:
        if len(prepared) < len(self.data):
            return [("examples", f"known after the stage {', '.join(self.reads())}")]
        train, heldout = self.split(prepared.values())
        steps, trained = self.training.total_steps(len(train)), sum(sum(e.mask) for e in train)
        return [
            ("examples, held out", f"{len(train):,}, {len(heldout):,}"),
            ("tokens that train, in one epoch", f"{trained:,}"),
            ("longest example, tokens", f"{max(each.size for each in train) + 1:,}"),
            ("steps", f"{steps:,}"),
            ("epochs", f"{steps * self.training.examples_per_step / len(train):.3g}"),
        ]

    def run(self, context: StageContext) -> StageResult:
        policy = self.policy(context.model)
        found: dict[int, Found[TokenExample]] = dict(context.prepared)
        for place, source in enumerate(self.data):
            if source.stage is not None:
                rows = Source(str(context.folders[source.stage] / ROWS), field="data.stage")
                found[place] = self.tokens(source, rows, policy.template, policy.max_length)
        for tokens in found.values():
            tokens.warn(context)
        train, heldout = self.split(found[place] for place in sorted(found))
        self.training.check(len(heldout), len(train))
        seen = count_guarded(context, [each.prompt_ids for each in train])
        fitted = fit(
            policy,
            TokenLoss(),
            train,
            heldout,
            settings=self.training,
            checkpoints=self.checkpoints,
            seed=self.seed,
            context=context,
            identity={
                "model": context.model,
                "template_hash": policy.template.hash,
                "examples": len(train),
                "heldout_examples": len(heldout),
                "examples_with_guard_prompts": seen,
                "dropped_rows": [tokens.dropped for _, tokens in sorted(found.items())],
            },
        )
        output = write_model(policy, context.folder)
        return StageResult(fitted.first, fitted.last, output, fitted.data_hash)


def _check_length(examples: Sequence[TokenExample], longest: int) -> None:
    most = max(len(each.prompt_ids) + len(each.completion_ids) for each in examples)
    if most > longest:
        raise ValueError(f"is longer than the model's {longest} positions; it has {most} tokens")
