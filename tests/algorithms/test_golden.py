"""Every golden entry that a preset or a part reaches: value and gradient, 1e-9 in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from algorithms.fixture import (
    ENTROPY,
    GOLDEN,
    GROUP_IDS,
    MASK,
    NEW,
    OLD,
    REWARDS,
    REWARDS_TWO,
    SAMPLER,
    f64,
    fixture_inputs,
    run_loss,
)
from claims import as_toml, claim
from conformance.cases import make as preset
from groupwise.algorithms.baselines import generalised_advantages
from groupwise.algorithms.divergences import (
    binary_kl,
    binary_tv,
    bucket_kl,
    bucket_tv,
    union_probabilities,
)
from groupwise.algorithms.extras import clipped_value_loss as value_loss
from groupwise.algorithms.kl import k1, k2, k3
from groupwise.algorithms.scales import BatchWhiten
from groupwise.algorithms.shapers import SoftOverlong
from groupwise.algorithms.surrogates import DynamicClip, GammaKernel

NO_FILTER: dict[str, Any] = {"filters": []}
OPSM = {"filters": [{"kind": "off_policy_sequence_mask", "delta": 0.1}]}
DAPO_WITH: dict[str, Any] = {"filters": []}

# golden entry -> (preset, overrides, overrides of the fixture's inputs)
LOSSES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "REINFORCE seq-mean-token-sum, A=centered": ("reinforce", {}, {}),
    "RLOO sequence REINFORCE (paper): -mean_i A_i * sum_t logp": ("rloo", {}, {}),
    "RLOO (TRL): sequence-PRODUCT ratio, clip 0.2": ("rloo_clipped", {}, {}),
    "GRPO eps=0.2 beta=0": ("grpo", {"kl_coef": 0}, {}),
    "GRPO eps=0.2 beta=0.04 k3-in-loss": ("grpo", {}, {}),
    "GRPO eps=0.2 beta=0.04 k3*ratio (DeepSeek-V3.2 unbiased KL)": (
        "grpo",
        {"kl": {"estimator": "k3_ratio"}},
        {},
    ),
    "Dr. GRPO: A=centered, clip 0.2, / (B*L), L=4": ("dr_grpo", {}, {}),
    "DAPO: clip 0.2/0.28, token-mean over batch": ("dapo", {}, {}),
    "DAPO per-prompt token-mean then mean over prompts (eq.8 literally; ScaleRL reading)": (
        "dapo_per_prompt",
        {},
        {},
    ),
    "DAPO + dual-clip c=1.5 (c chosen so that it bites; veRL default 3.0)": (
        "dapo",
        {"surrogate": {"dual": 1.5}},
        {},
    ),
    "TRL delta two-sided clip delta=1.5 (min(r,delta) before min)": (
        "dapo",
        {"surrogate": {"delta": 1.5}},
        {},
    ),
    "GSPO eps 3e-4/4e-4 (paper scale; every row here is off-policy beyond it)": ("gspo", {}, {}),
    "GSPO eps 0.2/0.28 (so both clipped and unclipped rows occur)": (
        "gspo",
        {"surrogate": {"low": 0.2, "high": 0.28}},
        {},
    ),
    "GSPO-token eps 0.2/0.28 (== GSPO when A is constant per row)": (
        "gspo_token",
        {"surrogate": {"low": 0.2, "high": 0.28}},
        {},
    ),
    "GSPO with token-mean aggregation (a common misreading code path; NOT GSPO)": (
        "gspo_length_weighted",
        {"surrogate": {"low": 0.2, "high": 0.28}},
        {},
    ),
    "SAPO tau+ 1.0 tau- 1.05, seq-mean-token-mean": ("sapo", {}, {}),
    "CISPO one-sided min(r,5) (TRL, ScaleRL loss), token-mean": ("cispo", {}, {}),
    "CISPO one-sided min(r,1.2), token-mean (cap bites)": (
        "cispo",
        {"surrogate": {"cap": 1.2}},
        {},
    ),
    "CISPO two-sided clip(r,0.8,1.28) (MiniMax eq.4-5 form; veRL), token-mean": (
        "cispo",
        {"surrogate": {"cap": 1.28, "floor": 0.8}},
        {},
    ),
    "ScaleRL: ratio vs SAMPLER, min(r,5), A centred/std(all A), prompt-mean-token-mean": (
        "scale_rl",
        {},
        {},
    ),
    "TIS token truncate C=2": ("dapo", {"correction": "truncate"}, {}),
    "TIS sequence (product) truncate C=2": (
        "dapo",
        {"correction": {"kind": "truncate", "level": "sequence_product", "high": 2.0}},
        {},
    ),
    "TIS sequence geometric-mean truncate C=1.2 (often called 'sequence level')": (
        "dapo",
        {"correction": {"kind": "truncate", "level": "sequence_geometric", "high": 1.2}},
        {},
    ),
    "MIS token mask [0.5,2] keeps weight (IcePop / TRL token_mask)": (
        "dapo",
        {"correction": "mask"},
        {},
    ),
    "MIS sequence mask [None,3] keeps weight (TRL default sequence_mask)": (
        "dapo",
        {"correction": {"kind": "mask", "level": "sequence_product", "high": 3.0}},
        {},
    ),
    "VESPO k+2 l+3 k-3 l-2, token-mean": ("vespo", {}, {"sampler_logprobs": OLD}),
    "VESPO k+2 l+3 k-3 l-2, token-mean, anchored to the sampler": ("vespo", {}, {}),
    "DPPO binary_tv delta=0.15 cap=20, token-mean": ("dppo_binary_tv", {}, {}),
    "DPPO binary_kl delta=0.05 cap=20, token-mean": ("dppo_binary_kl", {}, {}),
    "DCPO DAC 0.16/0.2, OTM = sum_i token-mean_i (no 1/B)": (
        "dcpo",
        {"weight": "per_sequence_total"},
        {},
    ),
    "DCPO DAC 0.16/0.2, seq-mean-token-mean": ("dcpo", {}, {}),
    "GTPO (within-set adv) clip 0.2, token-mean per prompt group": (
        "gtpo",
        {"surrogate": {"high": 0.2}, "weight": "per_prompt_token"},
        {},
    ),
    "GTPO (sign-preserving adv) clip 0.2/0.28, token-mean": ("gtpo", {}, {}),
    "GRPO-S arithmetic-mean token ratio, clip 0.2/0.28, seq-mean"
    " (ratio form unverified against the paper)": ("grpo_s", {}, {}),
    "GRPO + off-policy sequence mask delta=0.1 (DeepSeek-V3.2/TRL)": (
        "grpo",
        {"kl_coef": 0, **OPSM},
        {"sampler_logprobs": SAMPLER},
    ),
}
MISREADINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "MIS indicator only, sequence product <= C=3 (a common misreading; = rejection without IS)": (
        "dapo",
        {"correction": {"kind": "mask_only", "level": "sequence_product", "high": 3.0}},
        {},
    ),
    "VESPO a common misreading single (k=2,lambda=3) for all signs": (
        "vespo",
        {"surrogate": {"negative": [2, 3]}},
        {"sampler_logprobs": OLD},
    ),
    "Dr. GRPO a common misreading: A*(1-pi_ref(o_t)), clip 0.2, seq-mean-token-mean": (
        "ref_surprise_weight",
        {},
        {},
    ),
    "CISPO a common misreading = batch-normalised clip-higher token-mean": (
        "batch_norm_clip_higher",
        {},
        {},
    ),
    "symmetric TV mask with ratio weight (prime-rl 'ipo' shape)": ("symmetric_tv_mask", {}, {}),
}
NOT_OFFERED = {
    "MIS sequence mask [None,3] with denominator = kept tokens only",
    "SAPO a common misreading",
    "DPPO a common misreading symmetric |pi-mu|<=0.15 mask, surrogate A*pi (prob, not ratio)",
}
ELSEWHERE = {
    "2-GRPO rows 0,1, A=+-1 (ddof=0)",
    "2-GRPO rows 0,1, A=+-0.7070 (ddof=1, eps 1e-4)",
    "2-GRPO a common misreading contrastive log-sigmoid, beta=0.1 (rows 0,1)",
    "RAFT: NLL on rows with r>=0.5, token-mean over kept tokens",
    "SFT / distillation NLL token-mean",
    "entropy bonus: -coef*H, coef=0.01, logits [2,1,0,-1] (grad wrt logits)",
    "soft overlong",
    # belongs to the preference stage
    "DPO beta=0.1 (pi_w=-10, pi_l=-12, ref_w=-11, ref_l=-9)",
}


BOTH = "loss and gradient"
OWN_TESTS: dict[str, dict[str, str]] = {
    "raft": {BOTH: ""},
    "two_grpo": {BOTH: ""},
    "grpo_process": {"advantages": ""},
    "grpo_s": {"advantages": ""},
    "dcpo": {"advantages": ""},
    "ppo": {
        BOTH: "",
        "advantages": "kl_coef = 0.1, scale = {ddof = 1, variance_eps = 1e-8}",
        "value loss": "",
    },
    "dppo_binary_tv": {"divergence": ""},
    "dppo_binary_kl": {"divergence": ""},
    "dppo_topk_tv": {"divergence": ""},
    "dppo_topk_kl": {"divergence": ""},
}
"""Presets with a test function of their own below: what it holds, and what was changed for it."""


def golden_claims() -> dict[str, str]:
    """What is held of each preset: as composed where one entry has it so, else as changed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for table in (LOSSES, MISREADINGS, ADVANTAGES):
        what = "advantages" if table is ADVANTAGES else BOTH
        for name, overrides, _ in table.values():
            found.setdefault(name, {}).setdefault(what, []).append(overrides)
    claims = {name: dict(entries) for name, entries in OWN_TESTS.items()}
    for name, kinds in found.items():
        for what, overrides in kinds.items():
            changed = "" if {} in overrides else as_toml(overrides[0])[1:-1]
            claims.setdefault(name, {})[what] = changed
    return {
        name: "golden values, 1e-9 in float64: "
        + "; ".join(f"{what}{f' with {how}' if how else ''}" for what, how in sorted(each.items()))
        for name, each in claims.items()
    }


def check(value: torch.Tensor, gradient: torch.Tensor, entry: dict[str, Any]) -> None:
    assert value.item() == pytest.approx(entry["loss"], abs=1e-9)
    torch.testing.assert_close(gradient, f64(entry["grad"]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", [*LOSSES, *MISREADINGS])
def test_loss_and_gradient(name: str) -> None:
    entry = GOLDEN["losses"].get(name) or GOLDEN["misreadings"][name]
    preset_name, overrides, inputs = {**LOSSES, **MISREADINGS}[name]
    algorithm = preset(preset_name, **overrides)
    out, gradient = run_loss(algorithm, **(fixture_inputs(algorithm, entry["advantages"]) | inputs))
    check(out.loss, gradient, entry)


def test_no_golden_entry_is_forgotten() -> None:
    known = {*LOSSES, *MISREADINGS, *NOT_OFFERED, *ELSEWHERE}
    assert known == {*GOLDEN["losses"], *GOLDEN["misreadings"]}


@pytest.mark.parametrize("name", sorted(n for n in ELSEWHERE if n.startswith("2-GRPO rows")))
def test_two_grpo(name: str) -> None:
    entry = GOLDEN["losses"][name]
    inputs = fixture_inputs(preset("two_grpo"), entry["params"]["A"])
    rows = {k: v[:2] if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    check(*_value_and_gradient("two_grpo", rows), entry)


def test_online_pair_logistic() -> None:
    entry = GOLDEN["misreadings"][
        "2-GRPO a common misreading contrastive log-sigmoid, beta=0.1 (rows 0,1)"
    ]
    inputs = fixture_inputs(preset("online_pair_logistic"), [1.0, -1.0, 0, 0, 0, 0, 0, 0])
    rows = {k: v[:2] if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    check(*_value_and_gradient("online_pair_logistic", rows), entry)


def _value_and_gradient(name: str, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    out, gradient = run_loss(preset(name), **inputs)
    return out.loss, gradient


def test_raft_filters_then_averages_over_kept_tokens() -> None:
    entry = GOLDEN["losses"]["RAFT: NLL on rows with r>=0.5, token-mean over kept tokens"]
    raft = preset("raft")
    advantages = raft.advantages(REWARDS, GROUP_IDS)
    filtered = raft.filter_mask(
        MASK, rewards=REWARDS, group_ids=GROUP_IDS, truncated=torch.zeros(8, dtype=torch.bool)
    )
    assert filtered.counts == {"filter/unscored_rows": 0.0, "filter/low_reward_rows": 5.0}
    inputs = {"logprobs": NEW, "mask": filtered.mask, "advantages": advantages}
    check(*_value_and_gradient("raft", inputs), entry)


def test_likelihood_is_raft_without_its_filter() -> None:
    entry = GOLDEN["losses"]["SFT / distillation NLL token-mean"]
    inputs = {"logprobs": NEW, "mask": MASK, "advantages": torch.ones(8, dtype=torch.float64)}
    check(*_value_and_gradient("raft", inputs), entry)


def test_entropy_bonus_has_a_live_gradient_through_the_softmax() -> None:
    entry = GOLDEN["losses"][
        "entropy bonus: -coef*H, coef=0.01, logits [2,1,0,-1] (grad wrt logits)"
    ]
    logits = f64([2.0, 1.0, 0.0, -1.0]).requires_grad_(True)
    logprobs = logits.log_softmax(0)
    entropy = -(logprobs.exp() * logprobs).sum()
    algorithm = preset("reinforce", extras=[{"kind": "entropy_bonus", "coef": 0.01}])
    out = algorithm.loss(
        logprobs[:1].view(1, 1),
        mask=torch.ones(1, 1, dtype=torch.bool),
        advantages=f64([0.0]),
        entropies=entropy.view(1, 1),
    )
    (gradient,) = torch.autograd.grad(out.loss, logits)
    check(out.loss, gradient, entry)


ADVANTAGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "centered (Dr. GRPO)": ("dr_grpo", {}, "one"),
    "rloo": ("rloo", {"kl_coef": 0}, "one"),
    "grpo std ddof=1 eps=1e-4 (TRL)": ("grpo", {"scale": {"ddof": 1, "eps": 1e-4}}, "one"),
    "grpo std ddof=1 eps=1e-6 (veRL)": ("grpo", {"scale": {"ddof": 1, "eps": 1e-6}}, "one"),
    "grpo std ddof=0 eps=0 (the default here)": ("grpo", {}, "one"),
    "scalerl: center group, / std(all A) ddof=0": ("scale_rl", {}, "one"),
    "scalerl: center group, / std(all A) ddof=1": ("scale_rl", {"scale": {"ddof": 1}}, "one"),
    "TRL scale_rewards=batch: center group, /(std(all rewards) ddof=1 + 1e-4)": (
        "lite_ppo",
        {"scale": {"ddof": 1, "eps": 1e-4}},
        "one",
    ),
    "batch-normalised: (r-mean_batch)/(std_batch ddof=0 + 1e-8)": (
        "batch_norm_clip_higher",
        {"scale": {"eps": 1e-8}},
        "one",
    ),
    "maxrl: (r-mean)/mean": ("max_rl", {}, "one"),
    "raft: 1[r>=0.5], no baseline": ("raft", {}, "one"),
    "gdpo ddof=1 eps=1e-4 (official, TRL) on rewards_two": (
        "gdpo",
        {"scale": {"ddof": 1, "eps": 1e-4}},
        "two",
    ),
    "grpo on summed rewards_two ddof=1 eps=1e-4": (
        "grpo",
        {"scale": {"ddof": 1, "eps": 1e-4}},
        "two",
    ),
    "gopo average ties on rm_scores": ("gopo", {}, "scores"),
    "gopo positional ties (official code) on rm_scores": (
        "gopo",
        {"transform": {"ties": "positional"}},
        "scores",
    ),
    "gopo ALL-TIED group average ties": ("gopo", {}, "tied"),
    "gopo ALL-TIED group positional ties (bug: nonzero)": (
        "gopo",
        {"transform": {"ties": "positional"}},
        "tied",
    ),
    "gtpo adv, normalised within O+ / O- (textpolicy reading of Eq.6)": (
        "gtpo",
        {"transform": {"pool": "set"}},
        "one",
    ),
    "gtpo adv, normalised over all tokens incl. zeros of the other set (sign-preserving reading)": (
        "gtpo",
        {},
        "one",
    ),
}


@claim(golden_claims())
@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_advantages(name: str) -> None:
    preset_name, overrides, source = ADVANTAGES[name]
    rewards = {
        "one": REWARDS,
        "two": REWARDS_TWO.sum(1),
        "scores": f64(GOLDEN["fixture"]["rm_scores_for_gopo"]),
        "tied": f64([0.3] * 8),
    }[source]
    out = preset(preset_name, **overrides).advantages(
        rewards, GROUP_IDS, components=REWARDS_TWO, mask=MASK, entropies=ENTROPY
    )
    torch.testing.assert_close(out, f64(GOLDEN["advantages"][name]), atol=1e-9, rtol=0)


def test_gdpo_without_its_batch_normalisation() -> None:
    name = "gdpo without batch norm (a common misreading) on rewards_two"
    algorithm = preset("gdpo", transform={"ddof": 1, "eps": 1e-4}, scale="none")
    out = algorithm.advantages(REWARDS_TWO.sum(1), GROUP_IDS, components=REWARDS_TWO)
    torch.testing.assert_close(out, f64(GOLDEN["advantages"][name]), atol=1e-9, rtol=0)


def test_process_advantages_pool_every_step_and_sum_suffixes() -> None:
    entry = GOLDEN["advantages"]["grpo process supervision"]
    for ddof in (0, 1):
        out = preset("grpo_process", scale={"ddof": ddof}).advantages(
            f64([[0.0, 0.0]]),
            step_rewards=entry["step_rewards"],
            step_ends=entry["step_end_index_0based"],
        )
        want = entry["adv"][f"ddof{ddof}"]
        torch.testing.assert_close(out[0], f64(want[0]), atol=1e-9, rtol=0)
        torch.testing.assert_close(out[1, :5], f64(want[1]), atol=1e-9, rtol=0)
        assert out[1, 5].item() == 0.0


def test_gtpo_shaped_rewards_by_hand() -> None:
    for sign, entropies, key in ((1.0, [[3.0], [1.0]], 0), (0.0, [[4.0], [1.0]], 2)):
        from groupwise.algorithms.advantage import prepare
        from groupwise.algorithms.entropy_shaping import EntropyShaped

        algorithm = preset("gtpo")
        inputs = prepare(
            algorithm,
            f64([[sign, sign]]),
            None,
            components=None,
            step_rewards=None,
            step_ends=None,
            mask=torch.ones(2, 1, dtype=torch.bool),
            entropies=f64(entropies),
            old_logprobs=None,
            ref_logprobs=None,
            greedy_rewards=None,
            values=None,
            prompt_ids=None,
            state=None,
        )
        part = EntropyShaped()
        shaped = part.shaped(
            f64(entropies), torch.ones(2, 1, dtype=torch.bool), 1.0 if sign else -1.0, inputs
        )
        want = GOLDEN["micro"]["GTPO a1=1 a2=.1: O+ H=(3,1) -> shaped; O- H=(4,1) -> shaped"]
        flat = [x for pair in want for x in (pair if isinstance(pair, list) else [pair])]
        torch.testing.assert_close(shaped.flatten(), f64(flat[key : key + 2]), atol=1e-9, rtol=0)


def test_grpo_s_sign_preserving() -> None:
    entry = GOLDEN["advantages"][
        "grpo-s mean entropy / shaped reward / adv (sign-preserving reading)"
    ]
    out = preset("grpo_s").advantages(REWARDS, GROUP_IDS, mask=MASK, entropies=ENTROPY)
    torch.testing.assert_close(out, f64(entry["adv"]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", [n for n in GOLDEN["advantages"] if n.startswith("dcpo SAS")])
def test_dcpo_smoothing(name: str) -> None:
    entry = GOLDEN["advantages"][name]
    dcpo, size = preset("dcpo"), 4
    state = dcpo.init_state()
    visits = [entry["prev"][i : i + size] for i in range(0, len(entry["prev"]), size)]
    for rewards in visits:
        dcpo.advantages(f64([rewards]), prompt_ids=["p"], state=state)
    out = dcpo.advantages(f64([entry["cur"]]), prompt_ids=["p"], state=state)
    torch.testing.assert_close(out[0], f64(entry["A"]), atol=1e-9, rtol=0)
    assert state.rewards_of("p").visits == entry["i"]


def test_kl_estimators_and_their_gradients() -> None:
    kl = GOLDEN["kl"]
    d = f64(kl["log_ratio"])
    for name, estimator in (("k1", k1), ("k2", k2), ("k3", k3)):
        live = d.clone().requires_grad_(True)
        value = estimator(live)
        (gradient,) = torch.autograd.grad(value[MASK].sum(), live)
        torch.testing.assert_close(value.detach(), f64(kl[name]), atol=1e-9, rtol=0)
        torch.testing.assert_close(gradient, f64(kl[f"d {name}/d logpi"]), atol=1e-9, rtol=0)
        assert value[MASK].mean().item() == pytest.approx(kl["token-mean"][name], abs=1e-9)


def test_expected_kl_gradients_on_a_categorical() -> None:
    entry = GOLDEN["kl"]["categorical"]
    ref = f64(entry["ref"]).log()
    want = {
        "k1": [0.0, 0.0, 0.0],
        "k2": entry["true_grad_reverse_KL"],
        "k3": entry["true_grad_forward_KL"],
        "k3+": entry["true_grad_reverse_KL"],
        "k3_ratio": entry["true_grad_reverse_KL"],
    }
    from groupwise.algorithms.kl import Kl

    for estimator, gradient in want.items():
        z = f64(entry["z"]).requires_grad_(True)
        lp = z.log_softmax(0)
        value = Kl("loss", estimator, 1.0).in_loss(  # type: ignore[arg-type]
            (lp - ref).unsqueeze(0), (lp - lp.detach()).unsqueeze(0)
        )
        expected = (lp.detach().exp() * value).sum()
        (found,) = torch.autograd.grad(expected, z)
        torch.testing.assert_close(found, f64(gradient), atol=1e-9, rtol=0)


def test_bounds_kernels_and_divergences() -> None:
    micro, losses = GOLDEN["micro"], GOLDEN["losses"]
    low, high = DynamicClip().bounds(f64([0.9, 0.5, 0.01]))
    want = f64(micro["DCPO bounds eps .16/.2 at q=.9,.5,.01"])
    torch.testing.assert_close(torch.stack([low, high], 1), want, atol=1e-9, rtol=0)
    kernel = GammaKernel()
    w = f64([0.5, 1.0, 2.0])
    for sign, key in ((1.0, "k=2 lam=3"), (-1.0, "k=3 lam=2")):
        phi = kernel.kernel(w, torch.full_like(w, sign))
        torch.testing.assert_close(
            phi, f64(micro[f"VESPO phi(W) {key} at W=0.5,1,2"]), atol=1e-9, rtol=0
        )
    for name, measure in (("binary_tv delta=0.15", binary_tv), ("binary_kl delta=0.05", binary_kl)):
        entry = losses[f"DPPO {name} cap=20, token-mean"]["params"]
        found = torch.where(MASK, measure(NEW, SAMPLER), 0)
        torch.testing.assert_close(found, f64(entry["divergence"]), atol=1e-9, rtol=0)
    one = binary_kl(f64([0.8]).log(), f64([0.6]).log())
    assert one.item() == pytest.approx(micro["binary KL(mu=.6||pi=.8)"], abs=1e-9)


def test_top_k_divergence_is_over_the_union() -> None:
    example = GOLDEN["scalars"]["DPPO top-k example"]
    want = example["paper_union_K_plus_1"]
    mu, pi = f64(example["mu"]).log(), f64(example["pi"]).log()
    top, sampled = mu.topk(example["K"]).indices, example["sampled"]
    pi_k, mu_k = union_probabilities(pi[sampled], mu[sampled], pi[top], mu[top])
    assert bucket_tv(pi_k, mu_k).item() == pytest.approx(want["tv"], abs=1e-9)
    assert bucket_kl(pi_k, mu_k).item() == pytest.approx(want["kl"], abs=1e-9)
    inside = int(top[0])
    pi_k, mu_k = union_probabilities(pi[inside], mu[inside], pi[top], mu[top])
    assert pi_k.sum().item() == pytest.approx(1.0, abs=1e-9)
    assert mu_k[-1].item() == pytest.approx(1 - 0.75, abs=1e-9)


def test_soft_overlong() -> None:
    entry = GOLDEN["misreadings"]["soft overlong"]
    dapo = preset("dapo", shapers=[SoftOverlong(cache=float(entry["L_cache_paper"]))])
    lengths = torch.tensor(entry["lengths"])
    out = dapo.shape_rewards(
        torch.zeros(5, dtype=torch.float64),
        lengths=lengths,
        truncated=torch.zeros(5, dtype=torch.bool),
        max_tokens=entry["L_max"],
    )
    torch.testing.assert_close(out, f64(entry["paper"]), atol=1e-12, rtol=0)


def test_ppo_by_hand() -> None:
    entry = GOLDEN["scalars"]["PPO"]
    mask = torch.ones(1, 4, dtype=torch.bool)
    rewards, values = f64([entry["rewards"]]), f64([entry["values_old"]])
    out = generalised_advantages(rewards, values, mask, entry["gamma"], entry["lam"])
    torch.testing.assert_close(out.advantages[0], f64(entry["gae"]), atol=1e-9, rtol=0)
    torch.testing.assert_close(out.returns[0], f64(entry["returns"]), atol=1e-9, rtol=0)
    monte_carlo = generalised_advantages(rewards, values, mask, 1.0, 1.0).advantages[0]
    torch.testing.assert_close(monte_carlo, f64(entry["mc"]), atol=1e-9, rtol=0)
    new = f64([entry["values_new"]]).requires_grad_(True)
    loss = value_loss(new, values, out.returns, entry["cliprange_value"]).mean()
    (gradient,) = torch.autograd.grad(loss, new)
    assert loss.item() == pytest.approx(entry["value_loss_half_max"], abs=1e-9)
    torch.testing.assert_close(gradient[0], f64(entry["d_value_loss"]), atol=1e-9, rtol=0)


def test_ppo_whole_chain() -> None:
    """The preset: token rewards from KL and the final reward, GAE, whitening, the clipped loss."""
    entry = GOLDEN["scalars"]["PPO"]
    ppo = preset("ppo", scale=BatchWhiten(ddof=1, variance_eps=1e-8), kl_coef=0.1)
    old = f64([[-0.5, -1.2, -0.3, -2.0]])
    token = f64(entry["rewards"])
    reward, ref = f64([1.0]), old.clone()
    penalty = torch.cat([-token[:3], (reward - token[3])])
    ref = old - penalty / 0.1
    mask = torch.ones(1, 4, dtype=torch.bool)
    values = f64([entry["values_old"]])
    advantages = ppo.advantages(
        reward,
        [0],
        mask=mask,
        old_logprobs=old,
        ref_logprobs=ref,
        values=values,
    )
    torch.testing.assert_close(
        advantages[0], f64(entry["whitened_ddof1_eps1e8"]), atol=1e-9, rtol=0
    )
    returns = ppo.returns(reward, [0], mask=mask, values=values, old_logprobs=old, ref_logprobs=ref)
    torch.testing.assert_close(returns[0], f64(entry["returns"]), atol=1e-9, rtol=0)
    out, gradient = run_loss(
        ppo,
        logprobs=f64([entry["new_logp"]]),
        mask=mask,
        advantages=advantages,
        old_logprobs=f64([entry["old_logp"]]),
    )
    assert out.loss.item() == pytest.approx(entry["policy_loss"], abs=1e-9)
    torch.testing.assert_close(gradient[0], f64(entry["d_policy_loss"]), atol=1e-9, rtol=0)


def test_micro_batches_use_the_update_wide_count() -> None:
    entry = GOLDEN["micro"] if "global_token_mean" in GOLDEN["micro"] else None
    entry = entry or GOLDEN["scalars"]["micro-batching"]
    dapo = preset("dapo")
    inputs = fixture_inputs(dapo, GOLDEN["advantages"]["grpo std ddof=1 eps=1e-4 (TRL)"])
    plan = dapo.plan_update(MASK)
    total = sum(
        dapo.loss_terms(
            NEW[rows],
            plan=plan.rows(rows),
            mask=MASK[rows],
            advantages=inputs["advantages"][rows],
            old_logprobs=OLD[rows],
        ).loss.item()
        for rows in (slice(0, 4), slice(4, 8))
    )
    assert total == pytest.approx(entry["global_token_mean"], abs=1e-9)
    assert total != pytest.approx(entry["mean_of_microbatch_token_means"], abs=1e-3)
