"""Every method that TRL 1.x has, against TRL's own loss function, value and gradient, 1e-6."""

from __future__ import annotations

import collections
import types
from typing import Any

import pytest
import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

from conformance.cases import Step, as_step, random_case
from groupwise.algorithms import preset


class Accelerator:
    """One process: nothing to gather, nothing to reduce."""

    num_processes = 1
    sync_gradients = True

    def gather(self, x: Tensor) -> Tensor:
        return x

    gather_for_metrics = gather

    def reduce(self, x: Tensor, reduction: str = "sum") -> Tensor:
        return x

    def pad_across_processes(self, x: Tensor, dim: int = 0, pad_index: float = 0) -> Tensor:
        return x


def trainer(logprobs: Tensor, entropies: Tensor, **settings: Any) -> Any:
    """An object with just what TRL's loss reads; the log-probabilities are ours."""
    args = types.SimpleNamespace(
        use_bias_correction_kl=settings.pop("use_bias_correction_kl", False),
        delta=settings.pop("delta", None),
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        vespo_k_pos=2.0,
        vespo_lambda_pos=3.0,
        vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
        steps_per_generation=1,
    )
    fields: dict[str, Any] = {
        "args": args,
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "importance_sampling_level": "token",
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "max_completion_length": 5,
        "_entropy_bonus_enabled": False,
        "use_adaptive_entropy": False,
        "entropy_coef": 0.0,
    }
    unknown = settings.keys() - fields.keys()
    assert not unknown, unknown
    fields |= settings
    self = types.SimpleNamespace(
        **fields,
        model=types.SimpleNamespace(training=True),
        accelerator=Accelerator(),
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics={"train": collections.defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *a, **k: (logprobs, entropies, None),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
    )
    self.get_high_entropy_mask = types.MethodType(
        getattr(
            GRPOTrainer.get_high_entropy_mask, "__wrapped__", GRPOTrainer.get_high_entropy_mask
        ),
        self,
    )
    return self


def trl_inputs(step: Step, advantages: Tensor) -> dict[str, Tensor]:
    ids = torch.zeros(step.mask.shape, dtype=torch.long)
    mask = step.mask.double()
    return {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": step.tokens["old"],
        "ref_per_token_logps": step.tokens["ref"],
        "num_items_in_batch": mask.sum(),
    }


def importance(step: Step, mode: str, low: float | None, high: float) -> Tensor:
    """TRL's importance_sampling_ratio, which its rollout code makes before the loss."""
    log_w = (step.tokens["old"] - step.tokens["mu"]) * step.mask
    if mode.startswith("sequence"):
        log_w = log_w.sum(1, keepdim=True)
    w = log_w.exp()
    if mode.endswith("truncate"):
        return w.clamp(max=high)
    outside = (w > high) | (w < (low if low is not None else 0.0))
    return w.masked_fill(outside, 0.0)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "grpo": ("grpo", {"kl_coef": 0}, {}),
    "grpo with kl": ("grpo", {}, {"beta": 0.04}),
    "grpo with k3 x ratio": (
        "grpo",
        {"kl": {"estimator": "k3_ratio"}},
        {"beta": 0.04, "use_bias_correction_kl": True},
    ),
    "dr_grpo": ("dr_grpo", {}, {"loss_type": "dr_grpo"}),
    "dapo": ("dapo", {}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "bnpo": ("dapo", {}, {"loss_type": "bnpo", "epsilon_high": 0.28}),
    "delta": (
        "dapo",
        {"surrogate": {"delta": 1.5}},
        {"loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.5},
    ),
    "gspo": (
        "gspo",
        {},
        {"importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
    ),
    "sapo": ("sapo", {}, {"loss_type": "sapo"}),
    "cispo": ("cispo", {"surrogate": {"cap": 1.2}}, {"loss_type": "cispo", "epsilon_high": 1.2}),
    "vespo": ("vespo", {}, {"loss_type": "vespo"}),
    "off-policy mask": (
        "grpo",
        {"kl_coef": 0, "filters": [{"kind": "off_policy_sequence_mask", "delta": 0.1}]},
        {"off_policy_mask_threshold": 0.1},
    ),
    "top entropy": (
        "grpo",
        {"kl_coef": 0, "filters": [{"kind": "top_entropy", "share": 0.3}]},
        {"top_entropy_quantile": 0.3},
    ),
    "entropy bonus": (
        "dapo",
        {"extras": [{"kind": "entropy_bonus", "coef": 0.02}]},
        {
            "loss_type": "dapo",
            "epsilon_high": 0.28,
            "_entropy_bonus_enabled": True,
            "entropy_coef": 0.02,
        },
    ),
}
CORRECTIONS = {
    "token_truncate": {"kind": "truncate", "high": 1.3},
    "token_mask": {"kind": "mask", "low": 0.7, "high": 1.3},
    "sequence_truncate": {"kind": "truncate", "level": "sequence_product", "high": 1.3},
    "sequence_mask": {"kind": "mask", "level": "sequence_product", "low": 0.7, "high": 1.3},
}


def both(
    name: str, overrides: dict[str, Any], settings: dict[str, Any], extra: dict[str, Tensor] | None
) -> None:
    for seed in range(5):
        step = as_step(random_case(seed, unscored=0.0, empty=0.0, sizes=(4, 4)), extra=1)
        advantages = torch.randn(8, generator=torch.Generator().manual_seed(seed)).double()
        algorithm = preset(name, **overrides)
        t = step.tokens
        ours = t["lp"].clone().requires_grad_(True)
        h_ours = t["entropy"].clone().requires_grad_(True)
        sampler = t["mu"] if settings.get("use_vllm") or name != "vespo" else t["old"]
        out = algorithm.loss(
            ours,
            mask=step.mask,
            advantages=advantages,
            old_logprobs=t["old"],
            ref_logprobs=t["ref"],
            sampler_logprobs=sampler,
            entropies=h_ours,
            group_ids=step.group_ids,
            max_tokens=5,
        )
        theirs = t["lp"].clone().requires_grad_(True)
        h_theirs = t["entropy"].clone().requires_grad_(True)
        inputs = trl_inputs(step, advantages)
        if "off_policy_sequence_mask" in str(overrides):
            inputs["sampling_per_token_logps"] = t["mu"]
        if extra is not None:
            inputs |= {k: f(step) for k, f in extra.items()}
        loss = GRPOTrainer._compute_loss(trainer(theirs, h_theirs, **settings), None, inputs)
        assert out.loss.item() == pytest.approx(loss.item(), abs=1e-6)
        grads = [
            torch.autograd.grad(value, (x, h), allow_unused=True)
            for value, x, h in ((out.loss, ours, h_ours), (loss, theirs, h_theirs))
        ]
        torch.testing.assert_close(grads[0][0], grads[1][0], atol=1e-6, rtol=0)
        if grads[1][1] is not None:
            torch.testing.assert_close(grads[0][1], grads[1][1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", list(CASES))
def test_loss_equals_trl(case: str) -> None:
    name, overrides, settings = CASES[case]
    both(name, overrides, settings, None)


@pytest.mark.parametrize("mode", list(CORRECTIONS))
def test_correction_equals_trl(mode: str) -> None:
    correction = CORRECTIONS[mode]
    settings = {"use_vllm": True, "vllm_importance_sampling_correction": True}
    ratio: Any = lambda step: importance(step, mode, correction.get("low"), correction["high"])  # noqa: E731
    both("grpo", {"correction": correction}, settings | {"beta": 0.04},
         {"importance_sampling_ratio": ratio})  # fmt: skip


def test_luspo_is_the_length_weighted_form_up_to_the_mean_length() -> None:
    step = as_step(random_case(1, unscored=0.0, empty=0.0, sizes=(4, 4)))
    advantages = torch.linspace(-1, 1, 8).double()
    ours = preset("gspo_length_weighted").loss(
        step.tokens["lp"],
        mask=step.mask,
        advantages=advantages,
        old_logprobs=step.tokens["old"],
    )
    settings = {
        "loss_type": "luspo",
        "importance_sampling_level": "sequence",
        "epsilon_low": 3e-4,
        "epsilon_high": 4e-4,
    }
    self = trainer(step.tokens["lp"], step.tokens["entropy"], **settings)
    theirs = GRPOTrainer._compute_loss(self, None, trl_inputs(step, advantages))
    mean_length = step.mask.sum().item() / len(advantages)
    assert ours.loss.item() * mean_length == pytest.approx(theirs.item(), abs=1e-6)


def test_rloo_equals_trl() -> None:
    for seed in range(5):
        step = as_step(random_case(seed, unscored=0.0, empty=0.0, sizes=(4, 4), drift=0.1))
        advantages = torch.randn(8, generator=torch.Generator().manual_seed(seed)).double()
        results = []
        for who in ("ours", "theirs"):
            lp = step.tokens["lp"].clone().requires_grad_(True)
            if who == "ours":
                loss = (
                    preset("rloo_clipped")
                    .loss(
                        lp,
                        mask=step.mask,
                        advantages=advantages,
                        old_logprobs=step.tokens["old"],
                    )
                    .loss
                )
            else:
                inputs = trl_inputs(step, advantages)
                inputs["old_logps"] = (step.tokens["old"] * step.mask).sum(1)
                self = trainer(lp, step.tokens["entropy"])
                loss = RLOOTrainer._compute_loss(self, None, inputs)
            results.append((loss.item(), torch.autograd.grad(loss, lp)[0]))
        assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
        torch.testing.assert_close(results[0][1], results[1][1], atol=1e-6, rtol=0)
