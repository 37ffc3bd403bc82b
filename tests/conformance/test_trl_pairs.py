"""Losses on pairs against TRL's own functions (DPO, reward, CPO, SimPO, ORPO), value and gradient.

Random summed log-probabilities and rewards stand in for a model's.
"""

from __future__ import annotations

import collections
import os
import types
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.reward_trainer import RewardTrainer

from conformance.test_trl import Accelerator
from groupwise.algorithms.preference import METHODS, bradley_terry
from groupwise.policies import LogprobOutput
from groupwise.stages import preference
from groupwise.stages.chats import TokenExample
from groupwise.stages.pairs import TokenPair
from groupwise.stages.preference import LossSettings, PairLoss

COUNT, WIDTH = 5, 7


class Case:
    """Pairs of ragged answers behind one prompt token; log-probabilities of every token."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(11)
        self.lengths = torch.randint(1, WIDTH + 1, (2 * COUNT,), generator=generator)
        self.mask = torch.arange(WIDTH) < self.lengths[:, None]
        draw = torch.rand(2, 2 * COUNT, WIDTH, generator=generator, dtype=torch.float64)
        logprobs, refs = (-2 * draw - 0.1) * self.mask
        self.logprobs = logprobs.requires_grad_(True)
        self.refs = refs
        sides = [TokenExample((1,), (5,) * int(n), (True,) * int(n)) for n in self.lengths]
        sums = refs.sum(1).tolist()
        self.pairs = [
            TokenPair(sides[n], sides[COUNT + n], 0.0, (sums[n], sums[COUNT + n]))
            for n in range(COUNT)
        ]


def ours(case: Case, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[float, Tensor]:
    """The stage's loss, a mean over pairs, and its gradient by every token's log-probability."""
    output = LogprobOutput(logprobs=case.logprobs)
    monkeypatch.setattr(preference, "sequence_logprobs", lambda *_, **__: output)
    policy: Any = types.SimpleNamespace(device=torch.device("cpu"))
    loss, _ = PairLoss(LossSettings(**settings)).sum_loss(policy, case.pairs)
    return value_and_gradient(loss / COUNT, case.logprobs)


def value_and_gradient(loss: Tensor, values: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, values)
    return float(loss.detach()), gradient


def trl_dpo(case: Case, kind: str, beta: float, smoothing: float) -> Tensor:
    """TRL's `_compute_loss` on an output with our log-probabilities."""
    shape = (2 * COUNT, WIDTH)
    output = types.SimpleNamespace(
        log_probs=case.logprobs,
        entropy=torch.zeros(shape),
        mean_logits=torch.zeros(shape),
        is_top1=torch.zeros(shape, dtype=torch.bool),
    )
    self = types.SimpleNamespace(
        model=types.SimpleNamespace(training=True),
        accelerator=types.SimpleNamespace(
            device=torch.device("cpu"),
            gather=lambda x: x,
            gather_for_metrics=lambda x: x,
        ),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=smoothing,
        use_weighting=False,
        _total_train_tokens=0,
        _tp_size=1,
        _metrics={"train": collections.defaultdict(list)},
    )
    mask = torch.cat([torch.zeros(2 * COUNT, 1, dtype=torch.bool), case.mask], 1).long()
    refs = case.refs.sum(1)
    inputs = {
        "input_ids": torch.zeros(2 * COUNT, WIDTH + 1, dtype=torch.long),
        "attention_mask": torch.ones(2 * COUNT, WIDTH + 1, dtype=torch.long),
        "completion_mask": mask,
        "ref_chosen_logps": refs[:COUNT],
        "ref_rejected_logps": refs[COUNT:],
    }
    loss: Tensor = DPOTrainer._compute_loss(self, lambda **_: output, inputs, False)
    return loss


DPO: dict[str, tuple[str, float, float, dict[str, Any]]] = {
    "sum": ("sigmoid", 0.1, 0.0, {}),
    "length-normalised": ("sigmoid_norm", 5.0, 0.0, {"method": "dpo_normalised"}),
    "hinge": ("hinge", 0.3, 0.0, {"shape": "hinge", "beta": 0.3}),
    "ipo": ("ipo", 0.1, 0.0, {"method": "ipo", "length_normalised": True}),
}


@pytest.mark.parametrize("name", DPO)
def test_dpo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    kind, beta, smoothing, settings = DPO[name]
    wanted = value_and_gradient(trl_dpo(case, kind, beta, smoothing), case.logprobs)
    value, gradient = ours(case, monkeypatch, **settings)
    assert value == pytest.approx(wanted[0], abs=1e-6)
    torch.testing.assert_close(gradient, wanted[1] * case.mask, rtol=0, atol=1e-6)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("method", ["simpo", "cpo"])
def test_cpo_and_simpo(method: str, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPO's second term, of the chosen answers, is left out on both sides."""
    case = Case()
    own = {"beta": 0.1, "margin": 0.0} | METHODS[method]
    self = types.SimpleNamespace(
        accelerator=types.SimpleNamespace(device=torch.device("cpu")),
        alpha=0.0,
        beta=own["beta"],
        loss_type="simpo" if method == "simpo" else "sigmoid",
        simpo_gamma=own["margin"],
        label_smoothing=smoothing,
    )
    sums = case.logprobs.sum(1)
    sums = sums / case.lengths if method == "simpo" else sums
    losses, _, _ = CPOTrainer.cpo_loss(self, sums[:COUNT], sums[COUNT:])
    wanted = value_and_gradient(losses.mean(), case.logprobs)
    value, gradient = ours(case, monkeypatch, method=method, nll=0.0, label_smoothing=smoothing)
    assert value == pytest.approx(wanted[0], abs=1e-6)
    torch.testing.assert_close(gradient, wanted[1] * case.mask, rtol=0, atol=1e-6)


def test_orpo(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's term is added with a minus; its other one is left out on both sides."""
    case = Case()
    self = types.SimpleNamespace(beta=0.1, accelerator=Accelerator())
    self.accelerator.device = torch.device("cpu")  # type: ignore[attr-defined]
    means = case.logprobs.sum(1) / case.lengths
    losses, *_ = ORPOTrainer.odds_ratio_loss(self, means[:COUNT], means[COUNT:])
    wanted = value_and_gradient(-losses.mean(), case.logprobs)
    value, gradient = ours(case, monkeypatch, method="orpo", nll=0.0)
    assert value == pytest.approx(wanted[0], abs=1e-6)
    torch.testing.assert_close(gradient, wanted[1] * case.mask, rtol=0, atol=1e-6)


@pytest.mark.parametrize("centring", [None, 0.01])
@pytest.mark.parametrize("with_margin", [False, True])
def test_reward_loss(with_margin: bool, centring: float | None) -> None:
    generator = torch.Generator().manual_seed(2)
    rewards = torch.randn(2 * COUNT, generator=generator, dtype=torch.float64).requires_grad_(True)
    margins = torch.rand(COUNT, generator=generator, dtype=torch.float64)
    self = types.SimpleNamespace(
        model=types.SimpleNamespace(training=True),
        accelerator=Accelerator(),
        args=types.SimpleNamespace(center_rewards_coefficient=centring),
        _total_train_tokens=0,
        _tp_size=1,
        _metrics={"train": collections.defaultdict(list)},
    )
    inputs: dict[str, Any] = {"attention_mask": torch.ones(2 * COUNT, 3)}

    def model(margin: Any = None, **_: Any) -> Any:
        return types.SimpleNamespace(logits=rewards[:, None])

    if with_margin:
        inputs["margin"] = margins
    wanted = value_and_gradient(RewardTrainer.compute_loss(self, model, inputs), rewards)
    own = bradley_terry(
        rewards[:COUNT],
        rewards[COUNT:],
        margins if with_margin else 0.0,
        centring=centring or 0.0,
    )
    value, gradient = value_and_gradient(own.mean(), rewards)
    assert value == pytest.approx(wanted[0], abs=1e-6)
    torch.testing.assert_close(gradient, wanted[1], rtol=0, atol=1e-6)
