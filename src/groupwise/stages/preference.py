"""The `preference` stage: the DPO family on pairs, against the stage's own input as reference."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from groupwise.algorithms.preference import METHODS, Shape, answer_score, preference_loss
from groupwise.errors import RecipeError
from groupwise.policies import Policy, runs_packed, sequence_logprobs
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.stages.objective import micro_batches
from groupwise.stages.pair_stage import PairStage
from groupwise.stages.pairs import Pair, TokenPair, token_pair
from groupwise.stages.stage import StageContext
from groupwise.stages.supervised import mask_of
from groupwise.templates import Template

REFERENCE = "reference.jsonl"


class LossSettings(BaseModel):
    """The `[loss]` table: a method of the family, with any of its parts replaced."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: Literal["dpo", "dpo_normalised", "ipo", "simpo", "cpo", "orpo"] = Field(
        "dpo", description="The method whose values the other fields have where they are left out."
    )
    reference: bool = Field(True, description="Log-probabilities minus those of the stage's input.")
    length_normalised: bool = Field(
        False, description="Each answer's sum divided by its number of tokens."
    )
    odds: bool = Field(False, description="Compare log-odds of the mean, as ORPO does.")
    shape: Shape = Field("logistic", description="The loss of h: logistic, squared or hinge.")
    beta: float = Field(0.1, gt=0, description="The factor of the gap between the two answers.")
    margin: float = Field(0.0, ge=0, description="What is subtracted from the scaled gap.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="The share of pairs taken to be in the wrong order."
    )
    coef: float = Field(1.0, gt=0, description="The factor of the pairs' term.")
    nll: float = Field(
        0.0, ge=0, description="The factor of -log p a token of the chosen answer, added."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_method(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {**METHODS.get(str(value.get("method", "dpo")), {}), **value}

    @model_validator(mode="after")
    def _legal(self) -> LossSettings:
        if self.odds and (self.reference or not self.length_normalised):
            raise ValueError(
                "odds = true: odds are of a mean probability; set reference = false and "
                "length_normalised = true"
            )
        return self


class PairLoss:
    """The loss of `algorithms/preference.py`, a sum over pairs; the reference is in the pairs."""

    def __init__(self, settings: LossSettings) -> None:
        self.settings = settings

    def count(self, example: TokenPair) -> float:
        return 1.0

    def trained(self, example: TokenPair) -> int:
        return sum(sum(side.mask) for side in example.sides)

    def size(self, example: TokenPair) -> int:
        return sum(side.size for side in example.sides)

    def digest(self, example: TokenPair) -> bytes:
        numbers = struct.pack("<4d", example.margin, example.target, *example.reference)
        return pair_ids(example) + numbers

    def sum_loss(
        self, policy: Policy, examples: Sequence[TokenPair]
    ) -> tuple[Tensor, Mapping[str, float]]:
        own, device = self.settings, policy.device
        sums, tokens = answer_logprobs(policy, examples)
        mean = sums[0] / tokens[0]
        refs = torch.tensor([each.reference for each in examples], device=device).to(sums).T
        chosen, rejected = (
            answer_score(
                sums[side],
                tokens[side],
                refs[side] if own.reference else None,
                length_normalised=own.length_normalised,
                odds=own.odds,
            )
            for side in (0, 1)
        )
        losses = preference_loss(
            chosen,
            rejected,
            shape=own.shape,
            beta=own.beta,
            margin=own.margin,
            label_smoothing=wrong_order(examples, own.label_smoothing).to(chosen),
        )
        gaps = (chosen - rejected).detach()
        return (own.coef * losses - own.nll * mean).sum(), {
            "accuracy": float((gaps > 0).sum() + 0.5 * (gaps == 0).sum()),
            "margin": own.beta * float(gaps.sum()),
            "chosen_logprob": float(sums[0].detach().sum()),
            "rejected_logprob": float(sums[1].detach().sum()),
        }


def wrong_order(pairs: Sequence[TokenPair], smoothing: float) -> Tensor:
    """[B] the probability that each pair is in the wrong order: 1 - target, and of `smoothing` of
    the rest the reverse."""
    wrong = torch.tensor([1 - each.target for each in pairs], dtype=torch.float64)
    return wrong * (1 - smoothing) + (1 - wrong) * smoothing


def pair_ids(pair: TokenPair) -> bytes:
    """What identifies a pair's two answers."""
    rows = [part for side in pair.sides for part in (side.completion_ids, side.mask)]
    return b"".join(
        struct.pack(f"<q{len(row)}q", len(row), *row) for row in (pair.prompt_ids, *rows)
    )


def answer_logprobs(policy: Policy, pairs: Sequence[TokenPair]) -> tuple[Tensor, Tensor]:
    """Summed log-probabilities of the chosen and the rejected answers, [2, B], and the numbers of
    their trained tokens, [2, B]. The two answers share the pass over their prompt."""
    rows = [side for place in (0, 1) for side in (pair.sides[place] for pair in pairs)]
    found = sequence_logprobs(
        policy, [each.prompt_ids for each in rows], [each.completion_ids for each in rows]
    ).logprobs
    mask = mask_of(rows, found)
    sums = torch.where(mask, found, 0.0).sum(1).reshape(2, -1)
    return sums, mask.sum(1).reshape(2, -1).to(sums.dtype)


class Preference(PairStage):
    """Makes chosen answers likelier than rejected ones, measured from the stage's input."""

    kind: ClassVar[str] = "preference"

    loss: LossSettings = Field(
        default_factory=LossSettings, description="The loss: a method, with its parts."
    )

    def objective(self) -> PairLoss:
        return PairLoss(self.loss)

    def pair(self, pair: Pair, template: Template) -> TokenPair:
        return token_pair(pair, template)

    def ready(
        self, context: StageContext, policy: Policy, examples: list[TokenPair]
    ) -> list[TokenPair]:
        return self.with_reference(context, policy, examples) if self.loss.reference else examples

    @torch.no_grad()
    def with_reference(
        self, context: StageContext, policy: Policy, pairs: Sequence[TokenPair]
    ) -> list[TokenPair]:
        """The pairs with their log-probabilities under the policy as it is now.

        Computed once, before the first step, and kept in the stage's folder: a resumed stage reads
        them. Raises RecipeError where the file is of other pairs.
        """
        path = context.folder / REFERENCE
        keys = [hashlib.sha256(pair_ids(each)).hexdigest()[:16] for each in pairs]
        if not path.is_file():
            sizes = [sum(side.size for side in each.sides) for each in pairs]
            budget = self.training.micro_batch_tokens
            found: dict[int, list[float]] = {}
            for part in micro_batches(sizes, budget, padded=not runs_packed(policy)):
                sums, _ = answer_logprobs(policy, [pairs[place] for place in part])
                found |= dict(zip(part, sums.T.double().cpu().tolist(), strict=True))
            lines = [{"pair": key, "logprobs": found[place]} for place, key in enumerate(keys)]
            context.folder.mkdir(parents=True, exist_ok=True)
            write_text(path, "".join(map(json_line, lines)))
        stored = list(read_json_lines(path))
        if [each["pair"] for each in stored] != keys:
            raise RecipeError(
                f"{str(path)!r} has the reference's log-probabilities of other pairs: restore the "
                "data, or start again with --overwrite"
            )
        return [
            replace(pair, reference=tuple(line["logprobs"]))
            for pair, line in zip(pairs, stored, strict=True)
        ]
