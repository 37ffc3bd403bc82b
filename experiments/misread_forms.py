"""Forms that texts and code often take for a published method, and that no paper proposes.

They are not presets. Each is a composition with a part of its own, as a user would write it, and is
held against the same golden values, reference and invariances as the presets.

    python experiments/misread_forms.py        # their formulas
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from groupwise.algorithms import Algorithm, describe, override, part, preset
from groupwise.algorithms.contracts import Needs, Tokens
from groupwise.algorithms.divergences import binary_tv
from groupwise.algorithms.extras import Extra
from groupwise.algorithms.parts import Bound, Number, number
from groupwise.algorithms.surrogates import Surrogate, SurrogateOutput, TokenTerms


@part
class OnlinePairLogistic(Surrogate):
    """f = log sigmoid(beta (margin+ - margin-)), margin = sum_t (lp - old): a pair of a group of 2.

    Often taken for 2-GRPO (2510.00977), whose loss is plain GRPO with two completions. This one has
    no length normalisation and no clip, and a factor beta sigmoid(-margin) in its gradient. The row
    with the positive advantage wins; a tie gives 0. Needs both rows in the same micro-batch.
    """

    kind = "online_pair_logistic"
    shares_term = True
    beta: Number = 0.1

    needs = Needs(group_size=2, min_group_size=2, whole_groups=True)

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        index, rows = terms.plan.group_index, terms.plan.group_rows
        if index is None or rows is None:
            raise ValueError("surrogate online_pair_logistic needs group_ids")
        _, local, sizes = torch.unique(index, return_inverse=True, return_counts=True)
        trained = terms.mask.any(1)
        present = torch.zeros_like(sizes).index_add(0, local, trained.long())
        if bool((trained & (present[local] != rows)).any()):
            raise ValueError(
                "surrogate online_pair_logistic needs whole groups in a micro-batch; one is split"
            )
        sign = torch.sign(torch.where(terms.mask, terms.advantages, 0).sum(1))
        signed = sign * terms.log_ratio.sum(1)
        margin = torch.zeros_like(signed[: len(sizes)]).index_add(0, local, signed)
        wins = torch.zeros_like(sizes).index_add(0, local, (trained & (sign > 0)).long())
        losses = torch.zeros_like(sizes).index_add(0, local, (trained & (sign < 0)).long())
        pair = (wins == 1) & (losses == 1)
        value = torch.where(pair, torch.nn.functional.logsigmoid(self.beta * margin), 0)
        return SurrogateOutput(value[local].unsqueeze(1).expand(terms.ratio.shape))

    def formula(self) -> str:
        return f"f = log sigmoid({number(self.beta)}·(Σ_t (lp - old) of winner - of loser))"


@part
class SymmetricTvMask(Surrogate):
    """f = M r A with M = 1[|pi - mu| <= threshold], r live: ignores direction and sign of A.

    Not DPPO, which silences only a step away in the advantage's direction. phi = M r.
    """

    kind = "symmetric_tv_mask"
    against_sampler = True
    wide = True
    threshold: Bound = 0.15

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        out = binary_tv(terms.logprobs.detach(), terms.anchor_logprobs) > self.threshold
        ratio = terms.ratio.detach()
        silenced = out & terms.mask
        return SurrogateOutput(
            torch.where(out, 0, terms.ratio * terms.advantages),
            low=silenced & (terms.advantages < 0) & (ratio < 1),
            high=silenced & (terms.advantages > 0) & (ratio > 1),
        )

    def formula(self) -> str:
        return f"f = 1[|π - μ| ≤ {number(self.threshold)}]·r·A"


@part
class RefSurpriseWeight(Extra):
    """f times 1 - exp(ref): silences tokens that the reference is sure of.

    Often taken for Dr. GRPO, whose paper has no such term: it does not touch its two biases.
    """

    kind = "ref_surprise_weight"

    needs = Needs(ref_logprobs=True)

    def factor(self, terms: TokenTerms) -> Tokens | None:
        if terms.ref_logprobs is None:
            raise ValueError("extra ref_surprise_weight needs ref_logprobs, which were not given")
        return 1 - terms.ref_logprobs.exp()

    def formula(self) -> str:
        return "f ← sg[1 - exp(ref)]·f"


def form(name: str, base: str, **parts: Any) -> Algorithm:
    """A preset's composition with parts replaced, as an algorithm of its own."""
    return replace(override(preset(base), **parts), name=name, preset="")


FORMS = {
    made.name: made
    for made in (
        form(
            "online_pair_logistic",  # taken for two_grpo
            "two_grpo",
            surrogate=OnlinePairLogistic(),
        ),
        form(
            "symmetric_tv_mask",  # taken for dppo_binary_tv; the ipo shape of prime-rl
            "dppo_binary_tv",
            surrogate=SymmetricTvMask(),
        ),
        form(
            "batch_norm_clip_higher",  # taken for cispo
            "cispo",
            baseline="batch_mean",
            scale={"kind": "batch_std", "of": "rewards"},
            surrogate={"kind": "clip", "low": 0.2, "high": 0.28},
        ),
        form(
            "ref_surprise_weight",  # taken for dr_grpo
            "grpo",
            kl="none",
            extras=[RefSurpriseWeight()],
        ),
    )
}

if __name__ == "__main__":
    for each in FORMS.values():
        print(describe(each).text(), end="\n\n")
