"""The `supervised` stage: cross-entropy on the assistant's tokens of chats."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from groupwise.environments.readers import Row
from groupwise.policies import Policy, sequence_logprobs
from groupwise.stages.chats import ChatData, TokenExample, Turns
from groupwise.stages.data_stage import DataStage
from groupwise.templates import Template


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


class Supervised(DataStage):
    """Learns what the assistant says in chats; nothing else has loss."""

    kind: ClassVar[str] = "supervised"

    data: tuple[ChatData, ...] = Field(
        min_length=1, description="The sources of chats, mixed; one table or a list of them."
    )
    turns: Turns = Field(
        "every", description="Which of the assistant's turns of a chat train: every one or the last"
    )

    def objective(self) -> TokenLoss:
        return TokenLoss()

    def maker(self, source: ChatData, template: Template) -> Callable[[Row], list[TokenExample]]:
        return lambda row: source.examples(row, template, self.turns)
