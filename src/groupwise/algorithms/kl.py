"""KL against the reference: estimators, their gradients, and where the term sits (slot 9).
The exponent is clamped to +-20, so an extreme token stays finite (Schulman 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.algorithms.contracts import Needs
from groupwise.algorithms.parts import Count, NonNegative, Part, Share, number, part

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

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


@part
class Kl(Part):
    """The KL slot: where the term sits, which estimator, how strong, and the reference's schedule.

    "loss": weight * coef * estimator is added to the loss. "sequence_reward": R_i - coef sum_t k,
    before the baseline. "token_reward": -coef k at every token, before the spread (or GAE). In a
    reward the log-probabilities are the old ones and nothing has a gradient. coef 0 is no KL.
    `refresh_every` > 0: after that many steps the reference becomes
    refresh_mix * policy + (1 - refresh_mix) * reference (1 = replaced).

    With d = lp - ref at a sampled token the estimators are
        k1 = d                 as a loss: zero gradient in expectation; in the reward: correct
        k2 = d²/2              as a loss: the gradient of KL(π‖ref), the reverse KL
        k3 = exp(-d) + d - 1   as a loss: the gradient of KL(ref‖π), the forward KL
        k3+                    value k3, gradient k2 (straight through)
        k3_ratio = r·k3        r live (DeepSeek-V3.2, 2512.02556): the gradient of KL(π‖ref)
    A coefficient of 0 is right where a verifier cannot be argued with, one pass is made over each
    rollout and completions stay readable; a penalty is worth its reference where the reward is a
    model, the run is long, or what the model could do before has to stay.
    """

    slot = "kl"
    kind = ""
    aliases = ("kl", "k1", "k2", "k3", "k3+", "k3_ratio", "low_var_kl", "kl_coef", "beta", "mse")
    hint = "kl_coef is the short form of kl.coef"
    placement: Placement = "none"
    estimator: Estimator = "k3"
    coef: Annotated[NonNegative, Field(examples=[0.04])] = 0.0
    refresh_every: Count = 0
    refresh_mix: Share = 1.0

    @property
    def on(self) -> bool:
        return self.placement != "none" and self.coef != 0.0

    @property
    def in_reward(self) -> bool:
        return self.on and self.placement in ("token_reward", "sequence_reward")

    @property
    def needs(self) -> Needs:
        return Needs(ref_logprobs=self.on, old_logprobs=self.in_reward)

    def refusal(self, algorithm: Algorithm) -> str | None:
        if self.in_reward and algorithm.transform.scope != "row":
            where = self.placement.replace("_", " ")
            return f"kl in the {where} needs one reward a row, not step or token values"
        return None

    def warning(self, algorithm: Algorithm) -> str | None:
        if not (self.on and self.placement == "loss" and self.estimator == "k1"):
            return None
        return (
            "kl: k1 in the loss has zero gradient in expectation; use k2 or k3_ratio for the "
            "reverse KL, or k1 in the reward"
        )

    def mix_at(self, version: int) -> float:
        """The share of the policy that enters the reference once `version` steps are finished."""
        if self.refresh_every <= 0 or version == 0 or version % self.refresh_every:
            return 0.0
        return self.refresh_mix

    def in_loss(
        self, d: Float[Tensor, "B T"], log_ratio: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """The estimator a token, live in d = lp - ref; `log_ratio` = lp - anchor, live."""
        value = kl_value(self.estimator, d)
        if self.estimator == "k3_ratio":
            return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() * value
        return k2(d) + (value - k2(d)).detach() if self.estimator == "k3+" else value

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
