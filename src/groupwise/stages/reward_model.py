"""The `reward_model` stage: a number for an answer, learned from pairs by Bradley-Terry.

The model is the input's decoder with one linear head on the last token, as transformers' sequence
classifiers have it; the `reward_model` verifier loads the folder. It reads rows as that verifier
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from groupwise.algorithms.preference import bradley_terry, correlation, length_effect
from groupwise.errors import RecipeError
from groupwise.policies import Policy, describe_model
from groupwise.scorers.classifiers import answer_ids, prompt_ids
from groupwise.stages.chats import TokenExample
from groupwise.stages.classifier import (
    check_start,
    classifier_policy,
    tokenizer_at,
    write_classifier,
)
from groupwise.stages.objective import micro_batches
from groupwise.stages.pair_stage import PairStage
from groupwise.stages.pairs import Pair, TokenPair
from groupwise.stages.preference import pair_ids, wrong_order
from groupwise.stages.stage import CheckContext, StageContext, StageResult
from groupwise.templates import Template


class RewardLoss:
    """Bradley-Terry on the two scores of every pair, summed."""

    def __init__(self, centring: float, label_smoothing: float) -> None:
        self.centring, self.label_smoothing = centring, label_smoothing

    def count(self, example: TokenPair) -> float:
        return 1.0

    def trained(self, example: TokenPair) -> int:
        return sum(_width(side) for side in example.sides)

    def size(self, example: TokenPair) -> int:
        return 2 * max(_width(side) for side in example.sides)

    def digest(self, example: TokenPair) -> bytes:
        return pair_ids(example) + repr((example.margin, example.target)).encode()

    def sum_loss(
        self, policy: Policy, examples: Sequence[TokenPair]
    ) -> tuple[Tensor, Mapping[str, float]]:
        chosen, rejected = scores(policy, examples)
        margins = torch.tensor([each.margin for each in examples]).to(chosen)
        losses = bradley_terry(
            chosen,
            rejected,
            margins,
            centring=self.centring,
            label_smoothing=wrong_order(examples, self.label_smoothing).to(chosen),
        )
        gaps = (chosen - rejected).detach()
        return losses.sum(), {
            "accuracy": float((gaps > 0).sum() + 0.5 * (gaps == 0).sum()),
            "margin": float(gaps.sum()),
            "score": float((chosen + rejected).detach().sum()) / 2,
        }


def scores(policy: Policy, pairs: Sequence[TokenPair]) -> Tensor:
    """[2, B] rewards of the chosen and the rejected answers; `policy.model` is a classifier."""
    sides = [side for place in (0, 1) for side in (pair.sides[place] for pair in pairs)]
    rows = [torch.tensor([*side.prompt_ids, *side.completion_ids]) for side in sides]
    config: Any = policy.model.config
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=config.pad_token_id)
    ones = [torch.ones_like(row) for row in rows]
    mask = nn.utils.rnn.pad_sequence(ones, batch_first=True)
    with policy.compute():
        found: Tensor = policy.model(
            input_ids=ids.to(policy.device), attention_mask=mask.to(policy.device)
        ).logits
    return found.float().reshape(2, -1)


class RewardModelling(PairStage):
    """Learns a reward of answers from pairs; the policy stays as it is."""

    kind: ClassVar[str] = "reward_model"
    changes_weights: ClassVar[bool] = False
    leaves_policy: ClassVar[bool] = False
    leaves_scorer: ClassVar[str | None] = "reward_model"

    centring: float = Field(
        0.0,
        ge=0,
        description="The factor of (score of chosen + score of rejected)^2, which keeps scores "
        "around 0; 0.01 is usual.",
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="The share of pairs taken to be in the wrong order."
    )

    def check(self, context: CheckContext) -> Any:
        info = describe_model(
            context.model, trust_remote_code=self.model.trust_remote_code, classifier=True
        )
        check_start(info.config, context.model, "sequence", self.model.adapter is not None)
        if info.template.pad_id is None:
            raise RecipeError(
                f"the model {context.model!r} has no padding token, by which a classifier finds "
                "the last one; give it a pad_token"
            )
        return super().check(context)

    def objective(self) -> RewardLoss:
        return RewardLoss(self.centring, self.label_smoothing)

    def pair(self, pair: Pair, template: Template) -> TokenPair:
        tokenizer = tokenizer_at(template)
        sides = []
        for answer in (pair.chosen, pair.rejected):
            text = answer[-1].get("content")
            if answer[-1]["role"] != "assistant" or not isinstance(text, str) or not text:
                raise ValueError("has an answer that does not end with a text of the assistant")
            before = pair.prompt
            if before.text is None:
                before = type(before)(before.id, (*before.messages, *answer[:-1]))
            ids = tuple(answer_ids(tokenizer, text))
            given = tuple(prompt_ids(tokenizer, before))
            sides.append(TokenExample(given, ids, (True,) * len(ids)))
        return TokenPair(sides[0], sides[1], pair.margin, target=pair.target)

    def run(self, context: StageContext) -> StageResult:
        policy = classifier_policy(self, context.model, "sequence")
        train, heldout, about = self.examples(context, policy.template, policy.max_length)
        fitted = self.fit(
            context, policy, self.objective(), train, heldout, about=about, padded=True
        )
        length = length_values(policy, heldout or train, self.training.micro_batch_tokens)
        config: Any = policy.model.config
        config.length_slope, config.length_mean = length["length/slope"], length["length/mean"]
        adapted = self.model.adapter is not None
        output = write_classifier(policy, context.folder, adapted=adapted)
        return StageResult(fitted.first, {**fitted.last, **length}, output, fitted.data_hash)


@torch.no_grad()
def length_values(policy: Policy, pairs: Sequence[TokenPair], budget: int) -> dict[str, Any]:
    """What the scores owe to length on these pairs.

    `length/correlation` is Pearson's r of score and tokens over all answers, and
    `length/correlation_equal` at equal label, the chosen answers' and the rejected ones' means
    taken off; `length/slope` the
    worth of a token at equal label (`length_effect`), `length/mean` the answers' mean tokens;
    `length/accuracy` the share of pairs in the right order by the score less slope * tokens.
    """
    loss = RewardLoss(0.0, 0.0)
    table, lengths = torch.zeros(2, len(pairs)), torch.zeros(2, len(pairs))
    for part in micro_batches([loss.size(each) for each in pairs], budget, padded=True):
        table[:, part] = scores(policy, [pairs[place] for place in part]).cpu()
    for place, pair in enumerate(pairs):
        lengths[:, place] = torch.tensor([float(len(s.completion_ids)) for s in pair.sides])
    slope = length_effect(table[0] - table[1], lengths[0] - lengths[1])
    controlled = table.double() - slope * lengths.double()
    gaps = controlled[0] - controlled[1]
    right = float((gaps > 0).sum() + 0.5 * (gaps == 0).sum())
    return {
        "length/correlation": correlation(table.flatten(), lengths.flatten()),
        "length/correlation_equal": correlation(
            *((each - each.mean(1, keepdim=True)).flatten() for each in (table, lengths))
        ),
        "length/slope": slope,
        "length/mean": float(lengths.mean()),
        "length/accuracy": right / len(pairs),
    }


def _width(side: TokenExample) -> int:
    return len(side.prompt_ids) + len(side.completion_ids)
