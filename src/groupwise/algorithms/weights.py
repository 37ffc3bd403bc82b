"""Weights: how tokens share the loss, made once from an optimiser update's whole mask (slot 8).

Each part maps the update's mask [B, T] to [B, T] weights, 0 off the mask. B counts rows with at
least one trainable token, n_i a row's trainable tokens, N all of them. A row that a filter removed
is not in the mask; a token that a clip or a correction silences still is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.parts import Part


@dataclass(frozen=True)
class WeightPart(Part):
    """A weight. `by_length`: a row's total weight grows with its length, so a ratio that the whole
    row shares would be weighted by length."""

    by_length: ClassVar[bool] = True

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        raise TypeError(f"{type(self).__name__} is only the base of the weights")


def equal_prompts(
    part: Any,
    weight: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    group_rows: Int[Tensor, " B"],
) -> Float[Tensor, "B T"]:
    """A part's weights where groups differ in size and every prompt is to count the same.

    A row of prompt p gets B/(P·B_p) times its weight, B_p = the prompt's trainable rows
    (`group_rows`), P = prompts with any: 1/(B·n_i) becomes 1/(P·B_p·n_i). Under a token mean the
    rows count 1/B_p and the whole is divided by Σ N_p/B_p, which keeps it a mean.
    `per_prompt_token` is what it was. Where all groups have one size nothing changes.
    """
    if isinstance(part, PerPromptToken):
        return weight
    trained = mask.any(1)
    share = torch.where(trained, 1.0 / group_rows.clamp(min=1).to(weight.dtype), 0.0)
    prompts = share.sum().clamp(min=1)
    scaled = weight * (share * trained.sum() / prompts).unsqueeze(1)
    if isinstance(part, PerToken):
        total = scaled.sum()
        return scaled * (weight.sum() / total) if float(total) > 0 else scaled
    return scaled


def _as_float(mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The mask in float64, or in float32 on a device that has no float64."""
    return mask.to(torch.float32 if mask.device.type == "mps" else torch.float64)


def _num_rows(mask: Bool[Tensor, "B T"]) -> Int[Tensor, ""]:
    return mask.any(1).sum().clamp(min=1)


@dataclass(frozen=True)
class PerToken(WeightPart):
    """1/N: every token of the update counts the same; DAPO."""

    kind: ClassVar[str] = "per_token"

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        return _as_float(mask) / mask.sum().clamp(min=1)

    def formula(self) -> str:
        return "w_i,t = 1/N, N = trainable tokens of the update"


@dataclass(frozen=True)
class LengthWeighted(PerToken):
    """1/N under a ratio that the whole row shares: its term counts n_i times; LUSPO, 2602.05261.

    The same numbers as `per_token`, under the name that says what it does to GSPO.
    """

    kind: ClassVar[str] = "length_weighted"
    by_length: ClassVar[bool] = False

    def formula(self) -> str:
        return "w_i,t = 1/N (the row's shared term counts n_i times)"


@dataclass(frozen=True)
class PerSequence(WeightPart):
    """1/(B n_i): every row counts the same, its tokens share; GRPO, GSPO."""

    kind: ClassVar[str] = "per_sequence"
    by_length: ClassVar[bool] = False

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        lengths = mask.sum(1, keepdim=True).clamp(min=1)
        return _as_float(mask) / (lengths * _num_rows(mask))

    def formula(self) -> str:
        return "w_i,t = 1/(B·n_i), B = rows of the update"


@dataclass(frozen=True)
class PerSequenceTotal(WeightPart):
    """1/n_i: the sum over rows of their token means; the other reading of DCPO's OTM."""

    kind: ClassVar[str] = "per_sequence_total"
    by_length: ClassVar[bool] = False

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        return _as_float(mask) / mask.sum(1, keepdim=True).clamp(min=1)

    def formula(self) -> str:
        return "w_i,t = 1/n_i (not divided by the number of rows)"


@dataclass(frozen=True)
class PerSequenceSum(WeightPart):
    """1/B: the token sum of each row, averaged over rows; REINFORCE, RLOO."""

    kind: ClassVar[str] = "per_sequence_sum"

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        return _as_float(mask) / _num_rows(mask)

    def formula(self) -> str:
        return "w_i,t = 1/B, B = rows of the update"


@dataclass(frozen=True)
class PerPromptToken(WeightPart):
    """1/(P N_p): a token mean in each prompt, averaged over prompts with a trainable token.

    DAPO's equation 8 read literally, and ScaleRL's prompt-level averaging (2510.13786 [P]).
    """

    kind: ClassVar[str] = "per_prompt_token"

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        if group_index is None:
            raise ValueError("weight per_prompt_token needs group_ids, which were not given")
        tokens = torch.zeros(
            int(group_index.max()) + 1 if len(group_index) else 0,
            dtype=torch.long,
            device=mask.device,
        ).index_add(0, group_index, mask.sum(1))
        prompts = (tokens > 0).sum().clamp(min=1)
        per_row = (tokens.clamp(min=1) * prompts)[group_index]
        return _as_float(mask) / per_row.unsqueeze(1)

    def formula(self) -> str:
        return "w_i,t = 1/(P·N_p), P = prompts, N_p = the prompt's trainable tokens"


@dataclass(frozen=True)
class Constant(WeightPart):
    """1/(B L), L = the generation budget `max_tokens`, never the padded width; Dr. GRPO 2503.20783.

    `max_tokens` of the part, where set, overrides the update's.
    """

    kind: ClassVar[str] = "constant"
    max_tokens: int | None = None

    @property
    def needs(self) -> Needs:
        return Needs(max_tokens=self.max_tokens is None)

    def __call__(
        self,
        mask: Bool[Tensor, "B T"],
        group_index: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Float[Tensor, "B T"]:
        budget = self.max_tokens if self.max_tokens is not None else max_tokens
        if budget is None:
            raise ValueError(
                "weight constant needs max_tokens, the generation budget (never the padded width)"
            )
        return _as_float(mask) / (_num_rows(mask) * budget)

    def formula(self) -> str:
        budget = "L" if self.max_tokens is None else str(self.max_tokens)
        return f"w_i,t = 1/(B·{budget}), B = rows of the update, L = max_tokens"


WEIGHTS = (
    PerToken,
    LengthWeighted,
    PerSequence,
    PerSequenceTotal,
    PerSequenceSum,
    PerPromptToken,
    Constant,
)
