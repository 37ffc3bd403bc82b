"""Learning from a teacher's probabilities: divergences of two distributions, and the part for them.

Sources: generalised JSD and on-policy distillation, Agarwal et al. 2023, GKD, arXiv 2306.13649 [I];
the sampled form with its discount, Thinking Machines' tinker-cookbook and ports of it [I]. All
distributions are after temperature, one a side; no factor of temperature squared is applied.
Legend: V vocabulary, K ids of the teacher, t tokens of a completion.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs, Tokens
from groupwise.algorithms.extras import Extra
from groupwise.algorithms.parts import Count, NonNegative, number, part
from groupwise.algorithms.signals import AdvantageInputs, Signal
from groupwise.algorithms.transforms import Transform

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

Form = Literal["sampled", "reverse_kl", "forward_kl", "jsd"]


def reverse_kl(
    student: Float[Tensor, "... V"], teacher: Float[Tensor, "... V"]
) -> Float[Tensor, ...]:
    """KL(p_S || p_T) = sum_v p_S (log p_S - log p_T) of log-probabilities: seeks the teacher's
    modes. Gradient through p_S; `d/dz_v = p_S(v) (log p_S(v) - log p_T(v) - KL)`."""
    return (student.exp() * (student - teacher)).sum(-1)


def forward_kl(
    student: Float[Tensor, "... V"], teacher: Float[Tensor, "... V"]
) -> Float[Tensor, ...]:
    """KL(p_T || p_S) = sum_v p_T (log p_T - log p_S): covers the teacher; `d/dz = p_S - p_T`."""
    return (teacher.exp() * (teacher - student)).sum(-1)


def generalised_jsd(
    student: Float[Tensor, "... V"], teacher: Float[Tensor, "... V"], beta: float
) -> Float[Tensor, ...]:
    """beta KL(p_T || m) + (1 - beta) KL(p_S || m), m = beta p_T + (1 - beta) p_S; GKD, equation 1.

    0 at both ends: D/beta tends to KL(p_T || p_S) as beta tends to 0, and D/(1 - beta) to
    KL(p_S || p_T) as beta tends to 1. TRL puts those two in the place of the ends' zeros.
    Raises ValueError for a beta that is not between 0 and 1.
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta = {beta}: at 0 and 1 the divergence is 0; give 0.5, for example")
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * forward_kl(mixture, teacher) + (1 - beta) * forward_kl(mixture, student)


def with_rest(
    student: Float[Tensor, "... V"], teacher: Float[Tensor, "... V"], top_k: int
) -> tuple[Float[Tensor, "... K1"], Float[Tensor, "... K1"]]:
    """Both over the teacher's `top_k` likeliest ids and one bucket for all the others.

    A divergence of the two is at most that of the whole distributions. Nothing changes where no
    two ids would share the bucket.
    """
    if top_k + 1 >= teacher.shape[-1]:
        return student, teacher
    ids = teacher.topk(top_k, -1).indices

    def buckets(logprobs: Tensor) -> Tensor:
        others = logprobs.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
        return torch.cat([logprobs.gather(-1, ids), others], -1)

    return buckets(student), buckets(teacher)


def discounted_suffix_sum(values: Float[Tensor, "B T"], discount: float) -> Float[Tensor, "B T"]:
    """out_t = sum_{s >= t} discount^(s - t) values_s; discount 0 is `values` itself."""
    out = values.clone()
    for t in range(values.shape[1] - 2, -1, -1):
        out[:, t] += discount * out[:, t + 1]
    return out


@part
class Distillation(Extra):
    """What a teacher's probabilities add, at the tokens of the student's own completions.

    `form` "sampled": coef * sg[log p_T - log p_S] of each sampled token is added to its advantage,
    log p_S being the student's at the start of the step. `discount` 0 counts no later token: the
    gradient is then that of the KL of each next-token distribution alone; 1 counts all of them, and
    is the unbiased gradient of the reverse KL of whole completions.
    "reverse_kl", "forward_kl", "jsd": coef * weight * divergence of the two whole next-token
    distributions is added to the loss, with its gradient through the student's; `beta` is of "jsd";
    `top_k` > 0 compares the teacher's K likeliest ids and one bucket for the rest.
    A row without a teacher gets nothing from this part.
    """

    kind = "distillation"
    aliases = ("gkd", "on_policy_distillation", "opd", "teacher_kl", "kl_discount_factor")
    unique = True
    form: Form = "sampled"
    coef: NonNegative = 1.0
    discount: Annotated[float, Field(ge=0, le=1)] = 0.0
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    top_k: Count = 0

    @property
    def needs(self) -> Needs:
        return Needs(teacher="logprobs" if self.form == "sampled" else "distribution")

    def refusal(self, algorithm: Algorithm) -> str | None:
        if self.form == "sampled" and self.top_k:
            return (
                f"extras: distillation.top_k = {self.top_k}: the sampled form reads one token; "
                'give 0, or form = "reverse_kl"'
            )
        if self.form != "sampled" and self.discount:
            return (
                f"extras: distillation.discount = {self.discount}: whole distributions are "
                'compared token by token; give 0, or form = "sampled"'
            )
        return None

    def token_advantages(self, inputs: AdvantageInputs) -> Tokens | None:
        if self.form != "sampled":
            return None
        teacher = inputs.need("teacher_logprobs", "extra distillation")
        old = inputs.need("old_logprobs", "extra distillation")
        mask = inputs.need("mask", "extra distillation")
        gap = torch.where(mask & ~teacher.isnan(), teacher - old, 0)
        return self.coef * discounted_suffix_sum(gap, self.discount)

    def divergence_coefficient(self) -> float | None:
        return None if self.form == "sampled" else self.coef

    def divergence(
        self, student: Float[Tensor, "... V"], teacher: Float[Tensor, "... V"]
    ) -> Float[Tensor, ...]:
        """The form's divergence of two tables of log-probabilities, live in the student's."""
        if self.top_k:
            student, teacher = with_rest(student, teacher, self.top_k)
        if self.form == "jsd":
            return generalised_jsd(student, teacher, self.beta)
        return (reverse_kl if self.form == "reverse_kl" else forward_kl)(student, teacher)

    def formula(self) -> str:
        coef = number(self.coef)
        if self.form == "sampled":
            if not self.discount:
                return f"A_i,t ← A_i,t + {coef}·sg[log p_T - log p_S]_i,t"
            power = "" if self.discount == 1 else f"{number(self.discount)}^(s-t)·"
            return f"A_i,t ← A_i,t + {coef}·Σ_s≥t {power}sg[log p_T - log p_S]_i,s"
        b, rest = number(self.beta), number(1 - self.beta)
        written = {
            "reverse_kl": "KL(p_S‖p_T)",
            "forward_kl": "KL(p_T‖p_S)",
            "jsd": f"({b}·KL(p_T‖m) + {rest}·KL(p_S‖m)), m = {b}·p_T + {rest}·p_S",
        }[self.form]
        over = f" over the top {self.top_k} of p_T ∪ rest" if self.top_k else ""
        return f"loss + {coef}·Σ w·{written}{over}"


@part
class NoReward(Transform):
    """x_i = 0: rewards are recorded and nothing is learned from them; the teacher alone speaks."""

    kind = "no_reward"
    text = "x_i = 0"
    ignores_reward = True

    def refusal(self, algorithm: Algorithm) -> str | None:
        if any(each.needs.teacher != "none" for each in algorithm.extras):
            return None
        return 'transform no_reward leaves nothing to learn from; add extras = ["distillation"]'

    def __call__(self, inputs: AdvantageInputs) -> Signal:
        return Signal(torch.zeros_like(inputs.rewards), inputs.scored)
