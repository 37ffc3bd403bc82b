"""Losses on pairs of a chosen and a rejected answer: the DPO family, and Bradley-Terry's.

One family. Of an answer's n trained tokens with the summed log-probability lp:
    s = lp - ref        (s = lp without a reference)
    s = s / n           where length-normalised
    s = s - log(1 - e^s)  where the log of the odds is compared
    h = beta (s_w - s_l) - margin
    loss = coef [(1 - eps) f(h) + eps f(-h)] - nll lp_w / n_w
    f: logistic log(1 + e^-h); squared (h/beta - 1/(2 beta))^2; hinge max(0, 1 - h)
w is the chosen answer and l the rejected one. At h = 0 every f pushes lp_w up and lp_l down, the
logistic with d loss / d s_w = -beta sigmoid(-h); equal answers give ln 2.

Sources: DPO, Rafailov et al. 2023, arXiv 2305.18290 [I: TRL, OpenRLHF]. Length-normalised DPO as in
Tulu 3, arXiv 2411.15124 [I: TRL `sigmoid_norm`; beta 5: OLMo 2's model cards, same code]. Label
smoothing: conservative DPO [I]. IPO, Azar et al. 2023, arXiv 2310.12036, equation 17, beta its tau;
sums of tokens as the paper writes it, TRL divides by the lengths. Hinge: SLiC-HF, arXiv 2305.10425,
in TRL's form [I]. SimPO, arXiv 2405.14734 [I: TRL, Liger; margin its gamma]. CPO, arXiv 2401.08417
[I: TRL]. ORPO, arXiv 2403.07691, equations 4 to 7 [I: TRL; coef its lambda]. The two NLL terms are
means over an answer's tokens here, and TRL's over a batch's.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

Shape = Literal["logistic", "squared", "hinge"]

METHODS: dict[str, dict[str, Any]] = {
    "dpo": {},
    "dpo_normalised": {"length_normalised": True, "beta": 5.0},
    "ipo": {"shape": "squared"},
    "simpo": {"reference": False, "length_normalised": True, "beta": 2.0, "margin": 0.5},
    "cpo": {"reference": False, "nll": 1.0},
    "orpo": {
        "reference": False,
        "length_normalised": True,
        "odds": True,
        "beta": 1.0,
        "coef": 0.1,
        "nll": 1.0,
    },
}
"""What each method of the family sets; the rest is `preference_loss`'s defaults, beta 0.1."""


def answer_score(
    logprobs: Float[Tensor, " B"],
    tokens: Float[Tensor, " B"],
    ref_logprobs: Float[Tensor, " B"] | None = None,
    *,
    length_normalised: bool = False,
    odds: bool = False,
) -> Float[Tensor, " B"]:
    """s of each answer, from its summed log-probabilities and its number of trained tokens."""
    score = logprobs if ref_logprobs is None else logprobs - ref_logprobs
    score = score / tokens if length_normalised else score
    return score - torch.log(-torch.expm1(score)) if odds else score


def preference_loss(
    chosen: Float[Tensor, " B"],
    rejected: Float[Tensor, " B"],
    *,
    shape: Shape = "logistic",
    beta: float = 0.1,
    margin: float = 0.0,
    label_smoothing: float | Float[Tensor, " B"] = 0.0,
) -> Float[Tensor, " B"]:
    """(1 - eps) f(h) + eps f(-h) of each pair, from the two answers' `answer_score`.

    >>> preference_loss(torch.tensor([1.0]), torch.tensor([-3.0]))
    tensor([0.5130])
    """
    h = beta * (chosen - rejected) - margin
    right, wrong = _shaped(h, shape, beta), _shaped(-h, shape, beta)
    return (1 - label_smoothing) * right + label_smoothing * wrong


def _shaped(h: Tensor, shape: Shape, beta: float) -> Tensor:
    if shape == "logistic":
        return -logsigmoid(h)
    return (h / beta - 1 / (2 * beta)) ** 2 if shape == "squared" else torch.relu(1 - h)


def bradley_terry(
    chosen: Float[Tensor, " B"],
    rejected: Float[Tensor, " B"],
    margin: float | Float[Tensor, " B"] = 0.0,
    *,
    centring: float = 0.0,
    label_smoothing: float | Float[Tensor, " B"] = 0.0,
) -> Float[Tensor, " B"]:
    """-log sigmoid(r_w - r_l - margin) + centring (r_w + r_l)^2 of each pair of rewards.

    The margin is Llama 2's (arXiv 2307.09288), the second term keeps rewards around 0 (Eisenstein
    et al. 2023, arXiv 2312.09244) [I: TRL]. `label_smoothing` eps mixes in the other order.

    >>> bradley_terry(torch.tensor([1.3]), torch.tensor([0.4]))
    tensor([0.3412])
    """
    loss = preference_loss(chosen - margin, rejected, beta=1.0, label_smoothing=label_smoothing)
    return loss + centring * (chosen + rejected) ** 2


def length_effect(score_gaps: Float[Tensor, " B"], length_gaps: Float[Tensor, " B"]) -> float:
    """What a pair's gap of scores owes to length: the least-squares line gap = a + slope * tokens.

    Gaps are chosen minus rejected; the prompt cancels, and `a` takes what being chosen is worth at
    equal length. Returns the slope, in score a token; 0 where lengths never differ.
    """
    centred = length_gaps.double() - length_gaps.double().mean()
    spread = float((centred**2).sum())
    return float((centred * score_gaps.double()).sum()) / spread if spread else 0.0


def correlation(one: Float[Tensor, " N"], other: Float[Tensor, " N"]) -> float | None:
    """Pearson's r; None where either does not vary."""
    a, b = (each.double() - each.double().mean() for each in (one, other))
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size else None
