"""What texts and code often make of a method that its paper does not say, for `describe`.

Left out: the forms that are worth offering; those are presets of their own (`catalogue.py`, whose
`misread_of` names the method).
"""

from __future__ import annotations

_DPPO = (
    "the policy's probability in place of the ratio; a mask that looks neither at the direction "
    "nor at the sign of A (offered as symmetric_tv_mask); the KL the other way round"
)
_GSPO = (
    "the sequence's one term under a token mean, which weighs it by the completion's length "
    "(offered as gspo_length_weighted)"
)
_DAPO = (
    "the token mean gives long completions more weight than a mean per sequence, not less; "
    "dropping groups without resampling is zero-variance filtering, not dynamic sampling; the soft "
    "overlong cache is a width below max_tokens, not a threshold, and the penalty never goes "
    "below -1"
)
_GTPO = "another method of the same name (2508.03772) drops conflicting negatives"

MISREAD: dict[str, str] = {
    "rloo": "the full group mean is called biased: it only shrinks the expected gradient by "
    "(1 - 1/G); bias comes in with the division by the group's standard deviation",
    "grpo": "coefficients that the paper does not give (it has kl 0.04 and names no clip); 1/n_i "
    "left out; the KL outside of the average; a standard deviation with ddof 1 (TRL, veRL: a group "
    "that is half right then gets ±0.866 at G = 4, not ±1)",
    "grpo_process": "statistics by step number; the paper pools every step of every completion",
    "dr_grpo": "the sum over the tokens that are there (that is DAPO's token mean): the divisor is "
    "a constant; a token weight 1 - p_ref (offered as ref_surprise_weight), which it does not have",
    "dapo": _DAPO,
    "dapo_per_prompt": _DAPO,
    "gspo": _GSPO,
    "gspo_token": _GSPO,
    "two_grpo": "a logistic loss on the pair's margin (offered as online_pair_logistic): the "
    "paper's loss is plain GRPO, the comparison with DPO is its analysis",
    "sapo": "the temperature inverted and the ratio multiplied in once more, without 4/τ: for A > "
    "0 that gate grows with the ratio, so it bounds nothing",
    "cispo": "batch-normalised advantages under a clipped minimum (offered as "
    "batch_norm_clip_higher); the cap taken for an epsilon above 1",
    "scale_rl": "the standard deviation of the batch's rewards; it is that of the advantages",
    "vespo": "one (k, λ) for both signs; a live kernel; the old policy in place of the sampler; "
    "the exponential said to damp small weights (r^k does that, the exponential damps large ones)",
    "dppo_binary_tv": _DPPO,
    "dppo_binary_kl": _DPPO,
    "dppo_topk_tv": _DPPO + "; the top K of the policy in place of the sampler's",
    "dppo_topk_kl": _DPPO + "; the top K of the policy in place of the sampler's",
    "gdpo": 'the last whitening over the batch left out (scale = "none")',
    "gopo": "ascending ranks mapped to [-1, 1]; ties in arbitrary order, which turns a group that "
    'is all tied into noise (transform = {ties = "positional"})',
    "gtpo": _GTPO,
    "dcpo": "a running standard deviation that ignores how many rewards each visit had; here it is "
    "pooled from stored sums",
    "raft": "called supervised training on all samples: rows that fail leave the batch, so they "
    "are not in the denominator either",
}
"""preset -> how it is often misread."""
