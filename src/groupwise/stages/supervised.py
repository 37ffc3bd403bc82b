"""The `supervised` stage: cross-entropy on the assistant's tokens of chats."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from groupwise.environments.readers import Source, read_rows
from groupwise.errors import RecipeError
from groupwise.policies import Policy, describe_model, sequence_logprobs
from groupwise.randomness import stream_key
from groupwise.records import CheckpointSettings
from groupwise.stages.chats import ChatData, TokenExample, Turns
from groupwise.stages.fitting import fit
from groupwise.stages.objective import FittingSettings
from groupwise.stages.output import write_model
from groupwise.stages.stage import ROWS, CheckContext, Stage, StageContext, StageResult
from groupwise.templates import Template
from groupwise.training.process import kept_directory

SHOWN = 3
"""Bad rows that a message names."""


class TokenLoss:
    """-log p of every trained token, summed; divided by their number over the update."""

    def count(self, example: TokenExample) -> float:
        return float(sum(example.mask))

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


@dataclass(slots=True)
class Tokens:
    """Examples of some sources, and what was dropped, by reason."""

    examples: list[TokenExample] = field(default_factory=list[TokenExample])
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    rows: int = 0


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

    @field_validator("data", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return [value] if isinstance(value, Mapping) else value

    def reads(self) -> Iterable[str]:
        return [each.stage for each in self.data if each.stage is not None]

    def check(self, context: CheckContext) -> dict[int, Tokens]:
        """The sources that can be read before the run, by their place in `data`."""
        adapter = self.model.adapter
        if adapter is not None and adapter.dropout > 0:
            raise RecipeError(
                f"model.adapter.dropout = {adapter.dropout}: log-probabilities are computed "
                "without dropout; give 0"
            )
        for source in self.data:
            if source.stage is not None and not context.kinds[source.stage].makes_rows:
                raise RecipeError(
                    f"data.stage = {source.stage!r}: a stage of the kind "
                    f"{context.kinds[source.stage].kind!r} makes no rows; name one that does"
                )
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

    def tokens(self, source: ChatData, rows: Source, template: Template, longest: int) -> Tokens:
        """The examples of one source. Raises RecipeError naming rows that cannot be used."""
        found, bad = Tokens(), list[str]()
        with kept_directory():
            read = read_rows(rows, source.limit)
        for row in read:
            try:
                examples = source.examples(row, template, self.turns)
                _check_length(examples, longest)
            except (ValueError, RecipeError) as error:
                bad.append(f"{row.where}: {error}")
                reason = str(error).partition(";")[0]
                found.dropped[reason] = found.dropped.get(reason, 0) + 1
                continue
            found.examples += examples * source.repeat
        found.rows = len(read)
        if bad and source.on_bad_row == "refuse":
            more = f" (and {len(bad) - SHOWN} more)" if len(bad) > SHOWN else ""
            raise RecipeError(
                f"{rows.named}: {'; '.join(bad[:SHOWN])}{more}. Correct the rows, or set "
                'on_bad_row = "drop"'
            )
        if not found.examples:
            raise RecipeError(f"{rows.named}: all {len(read)} rows were dropped: {found.dropped}")
        return found

    def split(self, found: Iterable[Tokens]) -> tuple[list[TokenExample], list[TokenExample]]:
        """Training and held-out examples. Raises RecipeError where one side is empty."""
        train, heldout = list[TokenExample](), list[TokenExample]()
        loss = TokenLoss()
        for example in (each for tokens in found for each in tokens.examples):
            key = stream_key(self.seed, "data", "heldout", loss.digest(example).hex())
            (heldout if key < self.heldout_share * 2.0**64 else train).append(example)
        if not train or (self.heldout_share and not heldout):
            raise RecipeError(
                f"heldout_share = {self.heldout_share} of {len(train) + len(heldout)} examples "
                f"holds out {len(heldout)}; give a share that leaves at least one on each side"
            )
        return train, heldout

    def plan(self, prepared: dict[int, Tokens]) -> list[tuple[str, str]]:
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
        found: dict[int, Tokens] = dict(context.prepared)
        for place, source in enumerate(self.data):
            if source.stage is not None:
                rows = Source(str(context.folders[source.stage] / ROWS), field="data.stage")
                found[place] = self.tokens(source, rows, policy.template, policy.max_length)
        for tokens in found.values():
            for reason, number in tokens.dropped.items():
                context.warn(f"{number} of {tokens.rows} rows dropped: a row {reason}")
        train, heldout = self.split(found[place] for place in sorted(found))
        self.training.check(len(heldout), len(train))
        if seen := sum(each.prompt_ids in context.guard_prompts for each in train):
            context.warn(
                f"{seen} of {len(train)} examples have a prompt of the guard set, whose figures "
                "may then be memory; leave these rows out, or give [guard] other prompts"
            )
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
