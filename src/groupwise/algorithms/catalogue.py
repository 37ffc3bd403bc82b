"""The catalogue: one entry a method, with its composition, its paper and what to know about it.

The defaults are those of the project's written formulas; `describe.py` renders each formula from
the parts, and what the tests verify of each entry is in `verified.json`, which they write.
"""

from __future__ import annotations

from functools import partial

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.presets import entry as add
from groupwise.algorithms.presets import override

PLAIN = Algorithm("plain")
GROUP = override(
    override(PLAIN, anchor="old", ratio="token", surrogate="clip"),
    baseline="group_mean",
    scale="group_std",
    weight="per_sequence",
)
"""Group mean and standard deviation, ratio to the old policy, clip 0.2, a mean per sequence."""
SAMPLER = override(GROUP, anchor="sampler", weight="per_token")
WHITEN_TOKENS = {"kind": "batch_whiten", "over": "tokens"}
TOKENS = override(GROUP, baseline="none", scale=WHITEN_TOKENS, weight="per_token")
BARE = override(GROUP, baseline="none", scale="none")


entry = partial(add, base=GROUP)

entry(
    "reinforce",
    "REINFORCE with a batch-mean baseline",
    "Williams 1992",
    "baseline: batch mean or none",
    base=PLAIN,
    baseline="batch_mean",
)
entry(
    "reinforce_pp",
    "REINFORCE++",
    "Hu 2025, REINFORCE++, arXiv 2501.03262 [M]",
    "kl 0.01 in the token reward; advantages whitened over all tokens of the step",
    base=TOKENS,
    spread="suffix_sum",
    kl={"placement": "token_reward", "estimator": "k1", "coef": 0.01},
)
entry(
    "reinforce_pp_baseline",
    "REINFORCE++ with the group-mean baseline",
    "Hu 2025, REINFORCE++, arXiv 2501.03262 [I]",
    "kl k2 0.01 in the loss",
    unsettled="whether a completion counts once, or once for each of its tokens, where the step is "
    'whitened: scale = {over = "tokens"} (default) is what two public implementations (OpenRLHF, '
    'veRL) do; {over = "rows"} is the other reading',
    scale=WHITEN_TOKENS,
    weight="per_token",
    kl={"placement": "loss", "estimator": "k2", "coef": 0.01},
)
entry(
    "remax",
    "ReMax: the greedy completion's reward as the baseline",
    "Li et al. 2023, ReMax, arXiv 2310.10505 [M]",
    "one extra greedy completion a prompt, not trained on",
    base=PLAIN,
    baseline="greedy",
)
RLOO = entry(
    "rloo",
    "REINFORCE leave-one-out",
    "Ahmadian et al. 2024, Back to Basics, arXiv 2402.14740",
    "group size 2 to 8, kl 0.05, learning rate 1e-6",
    base=PLAIN,
    misread="the full group mean is called biased: it only shrinks the expected gradient by "
    "(1 - 1/G); bias comes in with the division by the group's standard deviation",
    baseline="leave_one_out",
    kl={"placement": "sequence_reward", "estimator": "k1", "coef": 0.05},
)
entry(
    "rloo_clipped",
    "RLOO with a clipped ratio of the whole completion",
    "Ahmadian et al. 2024, arXiv 2402.14740; the form of TRL",
    "clip 0.2, kl 0.05; long completions saturate the product ratio",
    base=RLOO,
    anchor="old",
    ratio="sequence_product",
    surrogate="clip",
    weight="per_sequence",
)
GRPO = entry(
    "grpo",
    "Group relative policy optimisation",
    "Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 [P]",
    "kl 0.04, group size 64, learning rate 1e-6 (R1-Zero: kl 0.001, group size 16)",
    misread="coefficients that the paper does not give (it has kl 0.04 and names no clip); 1/n_i "
    "left out; the KL outside of the average; a standard deviation with ddof 1 (TRL, veRL: a group "
    "that is half right then gets ±0.866 at G = 4, not ±1)",
    unsettled="the paper names no clip; 0.2 is PPO's",
    kl={"placement": "loss", "estimator": "k3", "coef": 0.04},
)
entry(
    "grpo_process",
    "GRPO with step rewards (process supervision)",
    "Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 [P]",
    "step rewards pooled over the group; more steps give larger advantages",
    base=GRPO,
    misread="statistics by step number; the paper pools every step of every completion",
    transform="steps",
    spread="suffix_sum",
)
entry(
    "lite_ppo",
    "Lite-PPO: group mean, batch standard deviation, token mean",
    "Liu et al. 2025, arXiv 2508.08221",
    scale={"kind": "batch_std", "of": "rewards"},
    weight="per_token",
)
entry(
    "max_rl",
    "MaxRL: advantages relative to the group's mean reward",
    "MaxRL, maximum likelihood RL [M]",
    "rewards of 0 or more; a group whose mean is 0 has advantage 0",
    scale="group_mean",
    weight="per_token",
)
entry(
    "dr_grpo",
    "Dr. GRPO: no division by the standard deviation, none by the length",
    "Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv 2503.20783 [R]",
    "no kl, group size 8, clip 0.2, max_tokens 3000",
    misread="the sum over the tokens that are there (that is DAPO's token mean): the divisor is a "
    "constant; a token weight 1 - p_ref, which it does not have (experiments/misread_forms.py has "
    "it as ref_surprise_weight)",
    scale="none",
    weight="constant",
)
_DAPO_MISREAD = (
    "the token mean gives long completions more weight than a mean per sequence, not less; "
    "dropping groups without resampling is zero-variance filtering, not dynamic sampling; the soft "
    "overlong cache is a width below max_tokens, not a threshold, and the penalty never goes "
    "below -1"
)
DAPO = entry(
    "dapo",
    "DAPO: decoupled clip and dynamic sampling policy optimisation",
    "Yu et al. 2025, DAPO, arXiv 2503.14476 [P]",
    "512 prompts a step, group size 16, 16 updates a step, learning rate 1e-6, rewards ±1; "
    'filters = ["zero_variance_drop", "overlong_mask"] samples each step only once',
    misread=_DAPO_MISREAD,
    surrogate={"kind": "clip", "low": 0.2, "high": 0.28},
    weight="per_token",
    filters=["dynamic_sampling", "overlong_mask"],
    shapers=["soft_overlong"],
)
entry(
    "dapo_per_prompt",
    "DAPO with its equation 8 read literally: a token mean in each prompt",
    "Yu et al. 2025, DAPO, arXiv 2503.14476 [P]; ScaleRL's reading",
    base=DAPO,
    misread=_DAPO_MISREAD,
    weight="per_prompt_token",
)
_GSPO_MISREAD = (
    "the sequence's one term under a token mean, which weighs it by the completion's length "
    "(offered as gspo_length_weighted)"
)
GSPO = entry(
    "gspo",
    "Group sequence policy optimisation",
    "Zheng et al. 2025, GSPO, arXiv 2507.18071 [I]",
    "clip 3e-4/4e-4, no kl, 4 updates a step (ScaleRL needed 4e-3)",
    misread=_GSPO_MISREAD,
    ratio="sequence_geometric",
    surrogate={"kind": "clip", "low": 3e-4, "high": 4e-4},
)
entry(
    "gspo_token",
    "GSPO-token: the sequence's ratio, the token's own gradient",
    "Zheng et al. 2025, GSPO, arXiv 2507.18071 [I]",
    "as gspo; equal to it where a row has one advantage",
    base=GSPO,
    misread=_GSPO_MISREAD,
    ratio="sequence_token",
)
entry(
    "gspo_length_weighted",
    "GSPO's ratio under a token mean: rows weighted by length (LUSPO)",
    "arXiv 2602.05261",
    base=GSPO,
    misread="not gspo, for which this form is often taken",
    weight="length_weighted",
)
entry(
    "gmpo",
    "GMPO: the geometric mean of token ratios, each clipped where it does harm",
    "Zhao et al. 2025, GMPO, arXiv 2507.20673 [I]",
    "log-ratios clipped at ±0.4, so ratios from e^-0.4 to e^0.4",
    misread="a clip of the geometric mean itself (that is gspo): here every token's log-ratio is "
    "clipped before the mean, and only on the side that its advantage would push too far",
    surrogate="geometric_clip",
)
entry(
    "two_grpo",
    "2-GRPO: GRPO with two completions a prompt",
    "It Takes Two: Your GRPO Is Secretly DPO, arXiv 2510.00977",
    "group size 2; keep prompts × group size constant",
    misread="a logistic loss on the pair's log-ratio margin: the paper's loss is plain GRPO, the "
    "comparison with DPO is its analysis (experiments/misread_forms.py has the other as "
    "online_pair_logistic); with the standard deviation a pair keeps only which of the two was "
    "better, so it is unbiased for rewards of 0 and 1 alone",
    baseline={"kind": "group_mean", "group_size": 2},
)
entry(
    "opo",
    "OPO: strictly on-policy, with the length-weighted baseline",
    "Hao et al. 2025, On-Policy RL with Optimal Reward Baseline, arXiv 2505.23585 [I]",
    "one update a step, no clip, no kl, no entropy bonus",
    base=PLAIN,
    misread="several updates a step: without a ratio only the first one is the method's",
    baseline="length_weighted_mean",
)
entry(
    "gpg",
    "GPG: the plain policy gradient, scaled up for groups without a signal",
    "Chu et al. 2025, GPG, arXiv 2504.02546 [I]",
    "F = 1 (scale = {divide_by_std = true} is the other choice), no clip, no kl",
    misread="veRL scales by the share of completions with a reward other than 0; the paper by the "
    "share of groups that carry a signal",
    base=PLAIN,
    baseline="group_mean",
    scale="informative_share",
    weight="per_token",
)
entry(
    "pass_at_k",
    "Pass@k as the reward: what a completion adds to the group's chance of one that is right",
    "Chen et al. 2025, Pass@k Training, arXiv 2508.10751 [I]",
    "k 4 in groups of 16 or more; explores where pass@1 training narrows",
    misread="veRL's grpo_passk, in which only the best completion has an advantage: its gap to the "
    "second best",
    base=BARE,
    transform="pass_at_k",
)
_COV = "Cui et al. 2025, The Entropy Mechanism of RL for Reasoning, arXiv 2505.22617 [I]"
_COV_UNSETTLED = (
    "the published code takes the covariance of each micro-batch with the live log-probabilities; "
    "here it is the whole update's, from the log-probabilities at its start, so that no division "
    "changes it"
)
entry(
    "clip_cov",
    "Clip-Cov: a few tokens of high covariance get no gradient",
    _COV,
    "2 tokens in 10,000, covariance between 1 and 5",
    unsettled=_COV_UNSETTLED,
    weight="per_token",
    filters=["clip_cov"],
)
entry(
    "kl_cov",
    "KL-Cov: the tokens of the highest covariance are held by a penalty",
    _COV,
    "2 tokens in 10,000, coefficient 1; no clip",
    unsettled=_COV_UNSETTLED,
    weight="per_token",
    surrogate="kl_cov",
)
entry(
    "sapo",
    "Soft adaptive policy optimisation: a sigmoid gate for the clip",
    "SAPO, arXiv 2511.20347 [I]",
    "tau 1.0 for A > 0, 1.05 else",
    misread="the temperature inverted and the ratio multiplied in once more, without 4/τ: for A > "
    "0 that gate grows with the ratio, so it bounds nothing",
    surrogate="soft_gate",
)
entry(
    "cispo",
    "CISPO: capped importance weights, no token silenced",
    "MiniMax-M1, arXiv 2506.13585 [I]",
    "cap 5.0 (an absolute weight), no floor",
    misread="batch-normalised advantages under a clipped minimum (baseline = batch_mean, scale = "
    "batch_std, surrogate = clip); the cap taken for an epsilon above 1",
    unsettled="the paper's own number for the cap; 4 to 8 are ScaleRL's, 5.0 is TRL's default",
    surrogate="cispo",
    weight="per_token",
)
entry(
    "scale_rl",
    "ScaleRL: CISPO against the sampler, batch-scaled advantages, prompt means",
    "Khatri et al. 2025, The Art of Scaling RL Compute for LLMs, arXiv 2510.13786 [P]",
    "cap 4 to 8, prompts with a pass rate of 0.9 or more retired, logits in float32",
    base=SAMPLER,
    misread="the standard deviation of the batch's rewards; it is that of the advantages",
    scale="batch_std",
    surrogate="cispo",
    weight="per_prompt_token",
    filters=["zero_variance_drop", "pass_rate"],
)
entry(
    "vespo",
    "VESPO: a gamma kernel on the completion's importance weight",
    "VESPO, arXiv 2602.10693 [R]",
    "(k, λ) = (2, 3) for A ≥ 0, (3, 2) for A < 0; near on-policy data",
    base=SAMPLER,
    misread="one (k, λ) for both signs; a live kernel; the old policy in place of the sampler; "
    "the exponential said to damp small weights (r^k does that, the exponential damps large ones)",
    unsettled="the official docstring names other values than the official code; the code's are "
    "used",
    ratio="sequence_product",
    surrogate="gamma_kernel",
)
for _kind, _at in (("binary_tv", 0.15), ("binary_kl", 0.05), ("topk_tv", 0.15), ("topk_kl", 0.05)):
    entry(
        f"dppo_{_kind}",
        f"DPPO: trust region by divergence ({_kind})",
        "Qi et al. 2026, Rethinking the Trust Region in LLM RL, arXiv 2602.04879 [R]",
        f"threshold {_at}, cap 20 (the official code: 10)",
        base=SAMPLER,
        misread="the policy's probability in place of the ratio; a mask that looks neither at the "
        "direction nor at the sign of A (experiments/misread_forms.py has it as "
        "symmetric_tv_mask); the KL the other way round; the top K of the policy in place of the "
        "sampler's",
        surrogate={"kind": "divergence_mask", "divergence": _kind, "low": _at, "high": _at},
    )
entry(
    "gdpo",
    "GDPO: each reward standardised in its group, then the batch whitened",
    "GDPO, arXiv 2601.05242 [R]",
    "official code: ddof 1, eps 1e-4 (scale = {ddof = 1, eps = 1e-4})",
    misread='the last whitening over the batch left out (scale = "none")',
    transform="z_score_each",
    baseline="none",
    scale="batch_whiten",
    kl={"placement": "loss", "estimator": "k3", "coef": 0.04},
)
entry(
    "gopo",
    "GOPO: ranks instead of rewards",
    "GOPO, arXiv 2602.03876 [R]",
    "range 2; ties get their average rank (the official code orders them arbitrarily)",
    misread="ascending ranks mapped to [-1, 1]; ties in arbitrary order, which turns a group that "
    'is all tied into noise (transform = {ties = "positional"})',
    base=BARE,
    transform="rank",
)
_GTPO = "GTPO and GRPO-S, arXiv 2508.04349 (abstract and a third party's code only)"
_POOL = (
    'the population of the paper\'s equation 6: transform.pool = "all" (default) keeps the sign of '
    'the outcome; "set" (a third party\'s reading) makes each set sum to 0'
)
entry(
    "gtpo",
    "GTPO: entropy-shaped token rewards",
    _GTPO,
    "a1 = 1, a2 = 0.1",
    misread="another method of the same name (2508.03772) drops conflicting negatives",
    unsettled=_POOL,
    base=BARE,
    transform={"kind": "entropy_shaped", "level": "token"},
    spread="per_token",
    surrogate={"kind": "clip", "low": 0.2, "high": 0.28},
    weight="per_token",
)
entry(
    "grpo_s",
    "GRPO-S: entropy-shaped sequence rewards",
    _GTPO,
    "a1 = 1, a2 = 0.1",
    unsettled=_POOL + "; the arithmetic-mean ratio is from memory [M]",
    base=BARE,
    transform={"kind": "entropy_shaped", "level": "sequence"},
    ratio="sequence_arithmetic",
    surrogate={"kind": "clip", "low": 0.2, "high": 0.28},
)
entry(
    "dcpo",
    "DCPO: dynamic clip and smooth advantage standardisation",
    "Yang et al. 2025, DCPO, arXiv 2509.02333 [R]",
    "clip 0.16/0.2 (the script: 0.2/0.28), cap 10",
    misread="a running standard deviation that ignores how many rewards each visit had; here it is "
    "pooled from stored sums",
    unsettled='the aggregation is defined three ways: weight = "per_sequence" (default) or '
    '"per_sequence_total" (no division by the number of rows)',
    baseline="smoothed",
    scale="none",
    surrogate="dynamic_clip",
)
entry(
    "raft",
    "RAFT, rejection sampling: the likelihood of completions that pass",
    "Dong et al. 2023, RAFT, arXiv 2304.06767; STaR, arXiv 2203.14465 [M]",
    'R ≥ 0.5; filters = [{kind = "min_reward", per_prompt = 1}] is best-of-K',
    base=PLAIN,
    misread="called supervised training on all samples: rows that fail leave the batch, so they "
    "are not in the denominator either",
    transform="threshold",
    weight="per_token",
    filters=["min_reward"],
)
entry(
    "on_policy_distillation",
    "On-policy distillation: a teacher scores the student's own tokens",
    "Agarwal et al. 2023, GKD, arXiv 2306.13649; the sampled form: Thinking Machines 2025 [I]",
    "coefficient 1, discount 0, group size 1 to 4, learning rate 4e-5 to 1e-4 with LoRA",
    misread="unbiased for the reverse KL of whole completions: with discount 0 each token answers "
    "only for its own next-token distribution (discount = 1 counts the later ones); a JSD of beta "
    "0 or 1 taken for a KL: by the paper's equation it is 0 there",
    base=PLAIN,
    transform="no_reward",
    anchor="old",
    ratio="token",
    surrogate="unclipped",
    weight="per_token",
    extras=["distillation"],
)
entry(
    "ppo",
    "PPO with a critic: the comparator",
    "Schulman et al. 2017, arXiv 1707.06347; GAE, arXiv 1506.02438",
    "gamma 1, lambda 0.95, clip 0.2, value clip 0.2, value coefficient 0.1 to 0.5",
    base=TOKENS,
    baseline="gae",
    spread="per_token",
    kl={"placement": "token_reward", "estimator": "k1", "coef": 0.05},
    extras=[{"kind": "value_loss", "coef": 0.1, "clip": 0.2}],
)
