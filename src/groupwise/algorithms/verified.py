"""What the tests verify of each preset, for `describe`; the tests read or compare these tables.

The tables that say where an invariance does not hold are read by the conformance tests themselves,
so a claim and its test cannot part. `GOLDEN` and `TRL` are compared with the tests' own tables.
Left out: the tests, and what is not settled (`catalogue.py`).
"""

from __future__ import annotations

BOTH = "loss and gradient"

GOLDEN: dict[str, dict[str, str]] = {
    "reinforce": {BOTH: ""},
    "rloo": {"advantages": "kl_coef = 0", BOTH: ""},
    "rloo_clipped": {BOTH: ""},
    "grpo": {"advantages": "", BOTH: ""},
    "grpo_process": {"advantages": ""},
    "lite_ppo": {"advantages": "scale = {ddof = 1, eps = 1e-4}"},
    "max_rl": {"advantages": ""},
    "dr_grpo": {"advantages": "", BOTH: ""},
    "dapo": {BOTH: ""},
    "dapo_per_prompt": {BOTH: ""},
    "gspo": {BOTH: ""},
    "gspo_token": {BOTH: "surrogate = {low = 0.2, high = 0.28}"},
    "gspo_length_weighted": {BOTH: "surrogate = {low = 0.2, high = 0.28}"},
    "two_grpo": {BOTH: ""},
    "online_pair_logistic": {BOTH: ""},
    "sapo": {BOTH: ""},
    "cispo": {BOTH: ""},
    "scale_rl": {"advantages": "", BOTH: ""},
    "vespo": {BOTH: ""},
    "dppo_binary_tv": {BOTH: "", "divergence": ""},
    "dppo_binary_kl": {BOTH: "", "divergence": ""},
    "dppo_topk_tv": {"divergence": ""},
    "dppo_topk_kl": {"divergence": ""},
    "symmetric_tv_mask": {BOTH: ""},
    "gdpo": {"advantages": "scale = {ddof = 1, eps = 1e-4}"},
    "gopo": {"advantages": ""},
    "gtpo": {"advantages": "", BOTH: ""},
    "grpo_s": {"advantages": "", BOTH: ""},
    "dcpo": {"advantages": "", BOTH: ""},
    "raft": {"advantages": "", BOTH: ""},
    "ppo": {
        "advantages": "kl_coef = 0.1, scale = {ddof = 1, variance_eps = 1e-8}",
        BOTH: "",
        "value loss": "",
    },
    "batch_norm_clip_higher": {"advantages": "scale = {eps = 1e-8}", BOTH: ""},
    "ref_surprise_weight": {BOTH: ""},
}
"""preset -> what the golden file holds of it -> what was changed for it ("" = as composed)."""

TRL_VERSION = "1.16.0"
TRL: dict[str, str] = {
    "grpo": BOTH,
    "dr_grpo": BOTH,
    "dapo": BOTH,
    "gspo": BOTH,
    "sapo": BOTH,
    "cispo": f"{BOTH} with surrogate = {{cap = 1.2}}",
    "vespo": BOTH,
    "rloo_clipped": BOTH,
    "gspo_length_weighted": "loss, up to the factor of the mean length",
}
"""preset -> what is compared with TRL's own loss function."""

NOT_SHIFT_INVARIANT = frozenset(
    {"max_rl", "raft", "ppo", "remax", "gtpo", "grpo_s", "reinforce_pp"}
)
"""Presets whose advantages change where a constant is added to every reward."""

SCALE_INVARIANT = frozenset(
    {
        "grpo", "grpo_process", "lite_ppo", "dapo", "dapo_per_prompt", "gspo", "gspo_token", "gdpo",
        "gspo_length_weighted", "two_grpo", "sapo", "cispo", "scale_rl", "vespo", "dcpo", "gopo",
        "reinforce_pp_baseline", "batch_norm_clip_higher", "dppo_binary_tv", "max_rl",
    }
)  # fmt: skip
"""Presets whose advantages are tested to stay where every reward is multiplied by one factor."""

NO_BASELINE = frozenset({"ppo", "reinforce_pp", "raft"})
"""Presets that learn from rewards that are all equal, because they compare with no other row."""

DIFFERENTIABLE = frozenset(
    {"logp", "unclipped", "clip", "dynamic_clip", "soft_gate", "symmetric_tv_mask"}
)
"""Surrogates without a stop-gradient: `torch.autograd.gradcheck` applies to the whole loss."""


def verified(name: str, surrogate: str = "") -> tuple[str, ...]:
    """One line a proof, with its precision. `surrogate`: the kind of the preset's surrogate."""
    lines = []
    if name in GOLDEN:
        items = [f"{what}{f' with {how}' if how else ''}" for what, how in GOLDEN[name].items()]
        lines.append(f"golden values, 1e-9 in float64: {'; '.join(items)}")
    lines.append(
        "an independent reference in plain loops, 1e-9 in float64: advantages, loss and gradient "
        "on random ragged steps"
    )
    if name in TRL:
        lines.append(f"TRL {TRL_VERSION}'s own loss function, random tensors, 1e-6: {TRL[name]}")
    if surrogate in DIFFERENTIABLE:
        lines.append("finite differences (gradcheck) of the loss with this surrogate, 1e-6")
    lines += [
        "1, 2, 4 and 8 micro-batches and two ranks: the same gradient, 1e-10 in float64 "
        "(4 micro-batches in float32: 1e-5 of its norm)",
        "row order, group labels, amount of padding: the same gradient, 1e-12 in float64",
        "0, 1e9, NaN and inf under the mask: the same loss, gradient and metrics, bit for bit",
        "log-ratios of ±60: finite; everything masked: loss and gradient exactly 0",
        "first on-policy update: ratio exactly 1, nothing clipped; a rewarded token rises",
    ]
    return (*lines, *_invariances(name))


def _invariances(name: str) -> list[str]:
    lines, under = [], _UNDER.get(name, "")
    if name not in NO_BASELINE:
        exact = "below 1e-12" if name == "remax" else "exactly 0"
        lines.append(f"rewards that are all equal: every advantage {exact}{under}")
    if name not in NOT_SHIFT_INVARIANT:
        lines.append("a constant added to every reward: the same advantages, 1e-10")
    if name in SCALE_INVARIANT:
        lines.append(f"every reward times 0.001, 7 or 10000: the same advantages, 1e-9{under}")
    if name == "gopo":
        lines.append("a monotone transform of the rewards: the same advantages, bit for bit")
    lines.append(
        "training: 30 steps of the tiny policy, reward of the last 5 above that of the first 5 in "
        "3 seeds of 3"
    )
    return lines


_UNDER = {
    "dapo": " (without its shaper)",
    "dapo_per_prompt": " (without its shaper)",
    "rloo": " (with kl_coef = 0)",
    "rloo_clipped": " (with kl_coef = 0)",
}
