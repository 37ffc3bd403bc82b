"""What the tests verify of each preset, for `describe`; a test holds this table to the tests.

`GOLDEN`: what the golden file has of the preset. `TRL`: presets whose loss is compared with TRL's.
"""

from __future__ import annotations

GOLDEN: dict[str, str] = {
    "reinforce": "loss and gradient",
    "rloo": "advantages, loss and gradient",
    "rloo_clipped": "loss and gradient",
    "grpo": "advantages, loss and gradient",
    "dr_grpo": "advantages, loss and gradient",
    "dapo": "loss and gradient",
    "dapo_per_prompt": "loss and gradient",
    "gspo": "loss and gradient",
    "gspo_token": "loss and gradient",
    "gspo_length_weighted": "loss and gradient",
    "two_grpo": "loss and gradient",
    "online_pair_logistic": "loss and gradient",
    "sapo": "loss and gradient",
    "cispo": "loss and gradient",
    "scale_rl": "advantages, loss and gradient",
    "vespo": "loss and gradient",
    "dppo_binary_tv": "loss and gradient",
    "dppo_binary_kl": "loss and gradient",
    "symmetric_tv_mask": "loss and gradient",
    "dcpo": "advantages, loss and gradient",
    "gtpo": "advantages, loss and gradient",
    "grpo_s": "advantages, loss and gradient",
    "raft": "advantages, loss and gradient",
    "batch_norm_clip_higher": "advantages, loss and gradient",
    "ref_surprise_weight": "loss and gradient",
    "ppo": "advantages, loss and gradient",
    "grpo_process": "advantages",
    "lite_ppo": "advantages",
    "max_rl": "advantages",
    "gdpo": "advantages",
    "gopo": "advantages",
    "dppo_topk_tv": "divergence",
    "dppo_topk_kl": "divergence",
}
TRL: frozenset[str] = frozenset(
    {"grpo", "dr_grpo", "dapo", "gspo", "sapo", "cispo", "vespo", "rloo_clipped"}
)


def verified(name: str) -> tuple[str, ...]:
    """One line a proof, with its precision."""
    lines = []
    if name in GOLDEN:
        lines.append(f"golden values: {GOLDEN[name]}, 1e-9 in float64")
    lines.append(
        "an independent reference in plain loops: advantages, loss and gradient on random ragged "
        "steps, 1e-9 in float64"
    )
    if name in TRL:
        lines.append("TRL 1.16: loss and gradient on random tensors, 1e-6")
    lines += [
        "2, 4 and 8 micro-batches, row order, padding, two ranks: the same gradient, 1e-10 in "
        "float64, 1e-5 of its norm in float32",
        "junk under the mask (0, 1e9, NaN, inf): the same loss, gradient and metrics, bit for bit",
    ]
    return tuple(lines)
