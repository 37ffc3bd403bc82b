"""Trust regions by divergence: DPPO's masks, and the symmetric mask often taken for them (slot 7).

*Rethinking the Trust Region in LLM RL*, arXiv 2602.04879 [R]. pi = the policy, mu = the sampler
(the anchor); masks and weights carry no gradient.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.parts import Bound, number, part
from groupwise.algorithms.surrogates import Surrogate, SurrogateOutput, TokenTerms

Divergence = Literal["binary_tv", "binary_kl", "topk_tv", "topk_kl"]
SMALLEST = 1e-12
COMPLEMENT = 1e-7
SAME_TOKEN = 1e-4


def binary_tv(logprobs: Tensor, mu_logprobs: Tensor) -> Tensor:
    """|pi - mu| at the sampled token."""
    return (logprobs.exp() - mu_logprobs.exp()).abs()


def binary_kl(logprobs: Tensor, mu_logprobs: Tensor) -> Tensor:
    """KL of {token, any other}: mu log(mu/pi) + (1-mu) log((1-mu)/(1-pi))."""
    pi, mu = logprobs.exp(), mu_logprobs.exp()
    rest_pi, rest_mu = (1 - pi).clamp(min=COMPLEMENT), (1 - mu).clamp(min=COMPLEMENT)
    return mu * (mu_logprobs - logprobs) + rest_mu * (rest_mu.log() - rest_pi.log())


def union_probabilities(
    logprobs: Float[Tensor, ...],
    mu_logprobs: Float[Tensor, ...],
    top_logprobs: Float[Tensor, "... K"],
    mu_top_logprobs: Float[Tensor, "... K"],
) -> tuple[Float[Tensor, "... K2"], Float[Tensor, "... K2"]]:
    """(pi, mu) over the union of mu's top K, the sampled token, and one bucket for the rest.

    The sampled token is one of the top K where its pair of log-probabilities is there; then its own
    slot is empty (probability 0 in both), so nothing is counted twice.
    """
    same = ((mu_top_logprobs - mu_logprobs.unsqueeze(-1)).abs() <= SAME_TOKEN) & (
        (top_logprobs - logprobs.unsqueeze(-1)).abs() <= SAME_TOKEN
    )
    extra = ~same.any(-1, keepdim=True)
    pi = torch.cat([top_logprobs.exp(), extra * logprobs.exp().unsqueeze(-1)], -1)
    mu = torch.cat([mu_top_logprobs.exp(), extra * mu_logprobs.exp().unsqueeze(-1)], -1)
    rest_pi = (1 - pi.sum(-1, keepdim=True)).clamp(min=SMALLEST)
    rest_mu = (1 - mu.sum(-1, keepdim=True)).clamp(min=SMALLEST)
    return torch.cat([pi, rest_pi], -1), torch.cat([mu, rest_mu], -1)


def bucket_tv(pi: Float[Tensor, "... K"], mu: Float[Tensor, "... K"]) -> Float[Tensor, ...]:
    """Half the sum of |pi - mu| over buckets."""
    return 0.5 * (pi - mu).abs().sum(-1)


def bucket_kl(pi: Float[Tensor, "... K"], mu: Float[Tensor, "... K"]) -> Float[Tensor, ...]:
    """Sum of mu log(mu/pi) over buckets; an empty bucket of mu adds 0."""
    ratio = mu.clamp(min=SMALLEST).log() - pi.clamp(min=SMALLEST).log()
    return torch.where(mu > 0, mu * ratio, 0).sum(-1)


@part
class DivergenceMask(Surrogate):
    """f = sg[min(rho, cap) M] A lp, rho = pi/mu; phi = min(rho, cap) M.

    M = 0 iff (A > 0 and pi > mu and D > high) or (A <= 0 and pi < mu and D > low): only a step that
    moves further away in the direction that the advantage pushes is silenced. D is the divergence
    of the two-event distributions, or over mu's top K, the sampled token and a rest bucket.
    """

    kind = "divergence_mask"
    aliases = ("dppo_mask", "trust_region_mask")
    detached = True
    against_sampler = True
    divergence: Divergence = "binary_tv"
    low: Bound = 0.15
    high: Bound = 0.15
    cap: Bound = 20.0
    top_k: Annotated[int, Field(ge=1)] = 20

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.top_k if self.divergence.startswith("topk") else 0)

    def measure(self, terms: TokenTerms) -> Float[Tensor, "B T"]:
        """D at every token, without a gradient."""
        lp, mu = terms.logprobs.detach(), terms.anchor_logprobs
        if self.divergence == "binary_tv":
            return binary_tv(lp, mu)
        if self.divergence == "binary_kl":
            return binary_kl(lp, mu)
        if terms.top_logprobs is None or terms.sampler_top_logprobs is None:
            raise ValueError(
                f"surrogate divergence_mask ({self.divergence}) needs top_logprobs and "
                "sampler_top_logprobs, which were not given"
            )
        pi_k, mu_k = union_probabilities(lp, mu, terms.top_logprobs, terms.sampler_top_logprobs)
        return bucket_tv(pi_k, mu_k) if self.divergence == "topk_tv" else bucket_kl(pi_k, mu_k)

    def __call__(self, terms: TokenTerms) -> SurrogateOutput:
        ratio = terms.ratio.detach()
        measure = self.measure(terms)
        rising = (terms.advantages > 0) & (ratio > 1) & (measure > self.high)
        falling = (terms.advantages <= 0) & (ratio < 1) & (measure > self.low)
        weight = torch.where(rising | falling, 0, ratio.clamp(max=self.cap))
        return SurrogateOutput(
            weight * terms.advantages * terms.logprobs,
            low=falling & (terms.advantages < 0) & terms.mask,
            high=rising & terms.mask,
        )

    def formula(self) -> str:
        names = {
            "binary_tv": "|π - μ|",
            "binary_kl": "KL of {token, rest}, μ to π",
            "topk_tv": f"TV over top {self.top_k} of μ ∪ token ∪ rest",
            "topk_kl": f"KL over top {self.top_k} of μ ∪ token ∪ rest",
        }
        return (
            f"f = sg[min(r, {number(self.cap)})·M]·A·lp, M = 0 iff (A > 0, π > μ, "
            f"D > {number(self.high)}) or (A ≤ 0, π < μ, D > {number(self.low)}), "
            f"D = {names[self.divergence]}"
        )
