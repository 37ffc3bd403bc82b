"""KL against the reference: estimators, their gradients, and where the term sits (slot 9).

With d = lp - ref at a sampled token (Schulman 2020, *Approximating KL Divergence*):
    k1 = d                 as a loss: zero gradient in expectation; in the reward: correct
    k2 = d^2 / 2           as a loss: gradient of KL(pi || ref), the reverse KL
    k3 = exp(-d) + d - 1   as a loss: gradient of KL(ref || pi), the forward KL
    k3+                    value k3, gradient k2 (straight through)
    k3_ratio = r k3        r live, DeepSeek-V3.2 2512.02556: gradient of KL(pi || ref)
The exponent is clamped to +-20, so an extreme token stays finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.parts import number

Placement = Literal["none", "loss", "token_reward", "sequence_reward"]
Estimator = Literal["k1", "k2", "k3", "k3+", "k3_ratio"]
MAX_LOG_RATIO = 20.0


def k1(d: Tensor) -> Tensor:
    """d: unbiased, any sign."""
    return d


def k2(d: Tensor) -> Tensor:
    """d^2/2: non-negative, biased by E[d^3]/6 - E[d^4]/24 on-policy."""
    return d.square() / 2


def k3(d: Tensor) -> Tensor:
    """exp(-d) + d - 1: non-negative, unbiased in value; d/dlp = 1 - exp(-d)."""
    return torch.expm1(-d.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) + d


def kl_value(estimator: Estimator, d: Tensor) -> Tensor:
    """An estimator's value without its gradient trick, for rewards and metrics."""
    if estimator == "k1":
        return k1(d)
    return k2(d) if estimator == "k2" else k3(d)


@dataclass(frozen=True)
class Kl:
    """The KL slot: where the term sits, which estimator, how strong, and the reference's schedule.

    "loss": weight * coef * estimator is added to the loss. "sequence_reward": R_i - coef sum_t k,
    before the baseline. "token_reward": -coef k at every token, before the spread (or GAE). In a
    reward the log-probabilities are the old ones and nothing has a gradient. coef 0 is no KL.
    `refresh_every` > 0: after that many steps the reference becomes
    refresh_mix * policy + (1 - refresh_mix) * reference (1 = replaced).
    """

    placement: Placement = "none"
    estimator: Estimator = "k3"
    coef: float = 0.0
    refresh_every: int = 0
    refresh_mix: float = 1.0

    @property
    def on(self) -> bool:
        return self.placement != "none" and self.coef != 0.0

    @property
    def in_reward(self) -> bool:
        return self.on and self.placement in ("token_reward", "sequence_reward")

    @property
    def needs(self) -> Needs:
        return Needs(ref_logprobs=self.on, old_logprobs=self.in_reward)

    def mix_at(self, version: int) -> float:
        """The share of the policy that enters the reference once `version` steps are finished."""
        if self.refresh_every <= 0 or version == 0 or version % self.refresh_every:
            return 0.0
        return self.refresh_mix

    def in_loss(
        self, d: Float[Tensor, "B T"], log_ratio: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """The estimator a token, live in d = lp - ref; `log_ratio` = lp - anchor, live."""
        if self.estimator == "k1":
            return k1(d)
        if self.estimator == "k2":
            return k2(d)
        if self.estimator == "k3":
            return k3(d)
        if self.estimator == "k3_ratio":
            return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * k3(d)
        squared = k2(d)
        return squared + (k3(d) - squared).detach()

    def token_penalty(
        self, old: Float[Tensor, "B T"], ref: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """coef * estimator of old - ref, for a reward."""
        return self.coef * kl_value(self.estimator, old - ref)

    def formula(self) -> str:
        """The term as it enters the loss or the reward, with the estimator's name."""
        if not self.on:
            return "no KL term"
        if self.placement == "loss":
            return self._term("lp")
        if self.placement == "sequence_reward":
            return f"x_i ← x_i - {self._term('old', sum_='Σ_t ')}"
        return self.token_rewards("A_i", "A_i,j")

    def token_rewards(self, row: str, entry: str) -> str:
        """How a row's number and the KL make one number a token, in the caller's letters."""
        term = f" - {self._term('old')}" if self.placement == "token_reward" and self.on else ""
        return f"{entry} = 1[j is the row's last token]·{row}{term}"

    def _term(self, lp: str, sum_: str = "") -> str:
        k3_text = f"(exp(ref - {lp}) - (ref - {lp}) - 1)"
        names = {"k1": f"({lp} - ref)", "k2": f"({lp} - ref)²/2"}
        if self.placement == "loss":
            names |= {"k3+": "k3 with the gradient of k2", "k3_ratio": f"r·{k3_text}"}
        text = names.get(self.estimator, k3_text)
        return f"{number(self.coef)}·{sum_}{text} [{self.estimator}]"
