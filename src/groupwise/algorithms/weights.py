"""Weights: how tokens share the loss, made once from an optimiser update's whole mask (slot 8).

Each part maps the update's mask [B, T] to [B, T] weights, 0 off the mask. B counts rows with at
least one trainable token, n_i a row's trainable tokens, N all of them. A row that a filter removed
is not in the mask; a token that a clip or a correction silences still is.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs, TokenMask, Tokens
from groupwise.algorithms.parts import Part, part


class Weight(Part):
    """The mask [B, T] over a part's divisor. Called with the mask, the rows' groups [B] (or None)
    and `max_tokens`."""

    slot = "weight"
    by_length = True

    def __call__(
        self,
        mask: TokenMask,
        groups: Int[Tensor, " B"] | None = None,
        max_tokens: int | None = None,
    ) -> Tokens:
        working = torch.float32 if mask.device.type == "mps" else torch.float64
        return mask.to(working) / self.divisor(mask, groups, max_tokens)

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        raise TypeError(f"{type(self).__name__} is only a base")


def _num_rows(mask: TokenMask) -> Int[Tensor, ""]:
    return mask.any(1).sum().clamp(min=1)


@part
class PerToken(Weight):
    """1/N: every token of the update counts the same; DAPO. A long completion has more weight."""

    kind = "per_token"
    text = "w_i,t = 1/N, N = trainable tokens of the update"
    aliases: ClassVar[tuple[str, ...]] = ("token-mean", "token_mean", "bnpo")

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        return mask.sum().clamp(min=1)

    def equal_prompts(self, weight: Tensor, mask: Tensor, group_rows: Tensor) -> Tensor:
        """Rows count 1/B_p and the whole is divided by Σ N_p/B_p, which keeps it a mean."""
        scaled = super().equal_prompts(weight, mask, group_rows)
        total = scaled.sum()
        return scaled * (weight.sum() / total) if float(total) > 0 else scaled


@part
class LengthWeighted(PerToken):
    """1/N under a ratio that the whole row shares: its term counts n_i times; LUSPO, 2602.05261.

    The same numbers as `per_token`, under the name that says what it does to GSPO.
    """

    kind = "length_weighted"
    text = "w_i,t = 1/N (the row's shared term counts n_i times)"
    aliases: ClassVar[tuple[str, ...]] = ("luspo",)
    by_length = False


@part
class PerSequence(Weight):
    """1/(B n_i): every row counts the same, its tokens share; GRPO, GSPO. A token of a long wrong
    completion costs less than one of a short one."""

    kind = "per_sequence"
    text = "w_i,t = 1/(B·n_i), B = rows of the update"
    aliases = ("seq-mean-token-mean", "seq_mean_token_mean")
    by_length = False

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        return mask.sum(1, keepdim=True).clamp(min=1) * _num_rows(mask)


@part
class PerSequenceTotal(Weight):
    """1/n_i: the sum over rows of their token means; the other reading of DCPO's OTM."""

    kind = "per_sequence_total"
    text = "w_i,t = 1/n_i (not divided by the number of rows)"
    by_length = False

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        return mask.sum(1, keepdim=True).clamp(min=1)


@part
class PerSequenceSum(Weight):
    """1/B: the token sum of each row, averaged over rows; REINFORCE, RLOO."""

    kind = "per_sequence_sum"
    text = "w_i,t = 1/B, B = rows of the update"
    aliases = ("seq-mean-token-sum", "seq_mean_token_sum")

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        return _num_rows(mask)


@part
class PerPromptToken(Weight):
    """1/(P N_p): a token mean in each prompt, averaged over prompts with a trainable token.

    DAPO's equation 8 read literally, and ScaleRL's prompt-level averaging (2510.13786 [P]).
    """

    kind = "per_prompt_token"
    text = "w_i,t = 1/(P·N_p), P = prompts, N_p = the prompt's trainable tokens"
    aliases = ("prompt-mean-token-mean", "prompt_mean")

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        if groups is None:
            raise ValueError("weight per_prompt_token needs group_ids, which were not given")
        size = int(groups.max()) + 1 if len(groups) else 0
        tokens = torch.zeros(size, dtype=torch.long, device=mask.device)
        tokens = tokens.index_add(0, groups, mask.sum(1))
        prompts = (tokens > 0).sum().clamp(min=1)
        return (tokens.clamp(min=1) * prompts)[groups].unsqueeze(1)

    def equal_prompts(self, weight: Tensor, mask: Tensor, group_rows: Tensor) -> Tensor:
        """Every prompt counts the same already."""
        return weight


@part
class Constant(Weight):
    """1/(B L), L = the generation budget `max_tokens`, never the padded width; Dr. GRPO 2503.20783.

    `max_tokens` of the part, where set, overrides the update's.
    """

    kind = "constant"
    aliases = ("dr_grpo_weight", "seq-mean-token-sum-norm")
    max_tokens: Annotated[int | None, Field(ge=1, examples=[3000])] = None

    @property
    def needs(self) -> Needs:
        return Needs(max_tokens=self.max_tokens is None)

    def divisor(self, mask: TokenMask, groups: Tensor | None, max_tokens: int | None) -> Tensor:
        budget = self.max_tokens if self.max_tokens is not None else max_tokens
        if budget is None:
            raise ValueError(
                "weight constant needs max_tokens, the generation budget (never the padded width)"
            )
        return _num_rows(mask) * budget

    def formula(self) -> str:
        budget = "L" if self.max_tokens is None else str(self.max_tokens)
        return f"w_i,t = 1/(B·{budget}), B = rows of the update, L = max_tokens"
