"""The catalogue: every method's name and composition, one entry each, with where it comes from.

Left out: the parts, and how a recipe changes an entry (`presets.py`). The defaults are those of the
project's written formulas; `describe.py` renders each formula from the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.baselines import (
    BatchMean,
    Gae,
    Greedy,
    GroupMean,
    LeaveOneOut,
    NoBaseline,
    Smoothed,
)
from groupwise.algorithms.divergences import DivergenceMask, SymmetricTvMask
from groupwise.algorithms.entropy_shaping import EntropyShaped
from groupwise.algorithms.extras import RefSurpriseWeight, ValueLoss
from groupwise.algorithms.filters import (
    DynamicSampling,
    MinReward,
    OverlongMask,
    PassRate,
    ZeroVarianceDrop,
)
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.ratios import (
    SequenceArithmetic,
    SequenceGeometric,
    SequenceProduct,
    SequenceToken,
    TokenRatio,
)
from groupwise.algorithms.scales import BatchStd, BatchWhiten, GroupMeanScale, GroupStd, NoScale
from groupwise.algorithms.shapers import SoftOverlong
from groupwise.algorithms.spreads import PerToken as PerTokenSpread
from groupwise.algorithms.spreads import SuffixSum
from groupwise.algorithms.surrogates import (
    Cispo,
    Clip,
    DynamicClip,
    GammaKernel,
    OnlinePairLogistic,
    SoftGate,
)
from groupwise.algorithms.transforms import Rank, Steps, Threshold, ZScoreEach
from groupwise.algorithms.weights import (
    Constant,
    LengthWeighted,
    PerPromptToken,
    PerSequence,
    PerToken,
)


@dataclass(frozen=True)
class Preset:
    """One entry. `typical`: the paper's values; `unsettled`: what is not known, and the option.

    `misread_of`: the method that this form is often taken for, empty for a method of its own.
    """

    algorithm: Algorithm
    title: str
    citation: str
    typical: str = ""
    unsettled: str = ""
    misread_of: str = ""


def _group(name: str, **slots: Any) -> Algorithm:
    """Group mean and standard deviation, ratio to the old policy, clip 0.2, a mean per sequence."""
    base = Algorithm(
        name,
        baseline=GroupMean(),
        scale=GroupStd(),
        anchor="old",
        ratio=TokenRatio(),
        surrogate=Clip(),
        weight=PerSequence(),
    )
    return replace(base, **slots)


_PLAIN = Algorithm("reinforce", baseline=BatchMean())
_K1_IN_REWARD = Kl("sequence_reward", "k1", 0.05)
_RLOO = Algorithm("rloo", baseline=LeaveOneOut(), kl=_K1_IN_REWARD)
_GRPO = _group("grpo", kl=Kl("loss", "k3", 0.04))
_DAPO = _group(
    "dapo",
    surrogate=Clip(0.2, 0.28),
    weight=PerToken(),
    filters=(DynamicSampling(), OverlongMask()),
    shapers=(SoftOverlong(),),
)
_GSPO = _group("gspo", ratio=SequenceGeometric(), surrogate=Clip(3e-4, 4e-4))
_SAMPLER = _group("sampler", anchor="sampler", weight=PerToken())


def _dppo(divergence: str, threshold: float) -> Algorithm:
    mask = DivergenceMask(divergence, low=threshold, high=threshold)  # type: ignore[arg-type]
    return replace(_SAMPLER, name=f"dppo_{divergence}", surrogate=mask)


_DPPO = "Qi et al. 2026, Rethinking the Trust Region in LLM RL, arXiv 2602.04879 [R]"
_GTPO = "GTPO and GRPO-S, arXiv 2508.04349 (abstract and a third party's code only)"
_POOL = (
    'the population of the paper\'s equation 6: transform.pool = "all" (default) keeps the sign of '
    'the outcome; "set" (a third party\'s reading) makes each set sum to 0'
)

_ENTRIES = (
    Preset(
        _PLAIN,
        "REINFORCE with a batch-mean baseline",
        "Williams 1992",
        "baseline: batch mean or none",
    ),
    Preset(
        Algorithm(
            "reinforce_pp",
            scale=BatchWhiten(),
            spread=SuffixSum(),
            anchor="old",
            ratio=TokenRatio(),
            surrogate=Clip(),
            weight=PerToken(),
            kl=Kl("token_reward", "k1", 0.01),
        ),
        "REINFORCE++",
        "Hu 2025, REINFORCE++, arXiv 2501.03262 [M]",
        "kl 0.01 in the token reward; advantages whitened over all tokens of the step",
    ),
    Preset(
        _group(
            "reinforce_pp_baseline",
            scale=BatchStd("advantages"),
            weight=PerToken(),
            kl=Kl("loss", "k2", 0.01),
        ),
        "REINFORCE++ with the group-mean baseline",
        "Hu 2025, REINFORCE++, arXiv 2501.03262 [M]",
        "kl k2 0.01 in the loss",
    ),
    Preset(
        Algorithm("remax", baseline=Greedy()),
        "ReMax: the greedy completion's reward as the baseline",
        "Li et al. 2023, ReMax, arXiv 2310.10505 [M]",
        "one extra greedy completion a prompt, not trained on",
    ),
    Preset(
        _RLOO,
        "REINFORCE leave-one-out",
        "Ahmadian et al. 2024, Back to Basics, arXiv 2402.14740",
        "group size 2 to 8, kl 0.05, learning rate 1e-6",
    ),
    Preset(
        replace(
            _RLOO,
            name="rloo_clipped",
            anchor="old",
            ratio=SequenceProduct(),
            surrogate=Clip(),
            weight=PerSequence(),
        ),
        "RLOO with a clipped ratio of the whole completion",
        "Ahmadian et al. 2024, arXiv 2402.14740; the form of TRL",
        "clip 0.2, kl 0.05; long completions saturate the product ratio",
    ),
    Preset(
        _GRPO,
        "Group relative policy optimisation",
        "Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 [P]",
        "kl 0.04, group size 64, learning rate 1e-6 (R1-Zero: kl 0.001, group size 16)",
        unsettled="the paper names no clip; 0.2 is PPO's",
    ),
    Preset(
        replace(_GRPO, name="grpo_process", transform=Steps(), spread=SuffixSum()),
        "GRPO with step rewards (process supervision)",
        "Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 [P]",
        "step rewards pooled over the group; more steps give larger advantages",
    ),
    Preset(
        replace(_group("lite_ppo"), scale=BatchStd("rewards"), weight=PerToken()),
        "Lite-PPO: group mean, batch standard deviation, token mean",
        "Liu et al. 2025, arXiv 2508.08221",
    ),
    Preset(
        _group("max_rl", scale=GroupMeanScale(), weight=PerToken()),
        "MaxRL: advantages relative to the group's mean reward",
        "MaxRL, maximum likelihood RL [M]",
        "rewards of 0 or more; a group whose mean is 0 has advantage 0",
    ),
    Preset(
        replace(_group("dr_grpo", weight=Constant()), scale=NoScale()),
        "Dr. GRPO: no division by the standard deviation, none by the length",
        "Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv 2503.20783 [R]",
        "no kl, group size 8, clip 0.2, max_tokens 3000",
    ),
    Preset(
        _DAPO,
        "DAPO: decoupled clip and dynamic sampling policy optimisation",
        "Yu et al. 2025, DAPO, arXiv 2503.14476 [P]",
        "512 prompts a step, group size 16, 16 updates a step, learning rate 1e-6, rewards ±1; "
        'filters = ["zero_variance_drop", "overlong_mask"] samples each step only once',
    ),
    Preset(
        replace(_DAPO, name="dapo_per_prompt", weight=PerPromptToken()),
        "DAPO with its equation 8 read literally: a token mean in each prompt",
        "Yu et al. 2025, DAPO, arXiv 2503.14476 [P]; ScaleRL's reading",
        "as dapo",
    ),
    Preset(
        _GSPO,
        "Group sequence policy optimisation",
        "Zheng et al. 2025, GSPO, arXiv 2507.18071 [I]",
        "clip 3e-4/4e-4, no kl, 4 updates a step (ScaleRL needed 4e-3)",
    ),
    Preset(
        replace(_GSPO, name="gspo_token", ratio=SequenceToken()),
        "GSPO-token: the sequence's ratio, the token's own gradient",
        "Zheng et al. 2025, GSPO, arXiv 2507.18071 [I]",
        "as gspo; equal to it where a row has one advantage",
    ),
    Preset(
        replace(_GSPO, name="gspo_length_weighted", weight=LengthWeighted()),
        "GSPO's ratio under a token mean: rows weighted by length (LUSPO)",
        "arXiv 2602.05261",
        misread_of="gspo",
    ),
    Preset(
        _group("two_grpo", baseline=GroupMean(group_size=2)),
        "2-GRPO: GRPO with two completions a prompt",
        "It Takes Two: Your GRPO Is Secretly DPO, arXiv 2510.00977",
        "group size 2; keep prompts × group size constant",
    ),
    Preset(
        _group("online_pair_logistic", surrogate=OnlinePairLogistic(), baseline=GroupMean(2)),
        "A logistic loss on the pair's log-ratio margin against the old policy",
        "often taken for 2-GRPO, arXiv 2510.00977",
        "beta 0.1",
        misread_of="two_grpo",
    ),
    Preset(
        _group("sapo", surrogate=SoftGate()),
        "Soft adaptive policy optimisation: a sigmoid gate for the clip",
        "SAPO, arXiv 2511.20347 [I]",
        "tau 1.0 for A > 0, 1.05 else",
    ),
    Preset(
        _group("cispo", surrogate=Cispo(), weight=PerToken()),
        "CISPO: capped importance weights, no token silenced",
        "MiniMax-M1, arXiv 2506.13585 [I]",
        "cap 5.0 (an absolute weight), no floor",
        unsettled="the paper's own number for the cap; 4 to 8 are ScaleRL's, 5.0 is TRL's default",
    ),
    Preset(
        replace(
            _SAMPLER,
            name="scale_rl",
            scale=BatchStd("advantages"),
            surrogate=Cispo(),
            weight=PerPromptToken(),
            filters=(ZeroVarianceDrop(), PassRate()),
        ),
        "ScaleRL: CISPO against the sampler, batch-scaled advantages, prompt means",
        "Khatri et al. 2025, The Art of Scaling RL Compute for LLMs, arXiv 2510.13786 [P]",
        "cap 4 to 8, prompts with a pass rate of 0.9 or more retired, logits in float32",
    ),
    Preset(
        replace(_SAMPLER, name="vespo", ratio=SequenceProduct(), surrogate=GammaKernel()),
        "VESPO: a gamma kernel on the completion's importance weight",
        "VESPO, arXiv 2602.10693 [R]",
        "(k, λ) = (2, 3) for A ≥ 0, (3, 2) for A < 0; near on-policy data",
        unsettled="the official docstring names other values than the official code; the code's "
        "are used",
    ),
    *(
        Preset(
            _dppo(divergence, threshold),
            f"DPPO: trust region by divergence ({divergence})",
            _DPPO,
            f"threshold {threshold}, cap 20 (the official code: 10)",
        )
        for divergence, threshold in (
            ("binary_tv", 0.15),
            ("binary_kl", 0.05),
            ("topk_tv", 0.15),
            ("topk_kl", 0.05),
        )
    ),
    Preset(
        replace(_SAMPLER, name="symmetric_tv_mask", surrogate=SymmetricTvMask()),
        "A symmetric total-variation mask with a live ratio",
        "often taken for DPPO, arXiv 2602.04879; the ipo shape of prime-rl",
        "threshold 0.15",
        misread_of="dppo_binary_tv",
    ),
    Preset(
        _group(
            "gdpo",
            transform=ZScoreEach(),
            baseline=NoBaseline(),
            scale=BatchWhiten(),
            kl=Kl("loss", "k3", 0.04),
        ),
        "GDPO: each reward standardised in its group, then the batch whitened",
        "GDPO, arXiv 2601.05242 [R]",
        "official code: ddof 1, eps 1e-4 (scale = {ddof = 1, eps = 1e-4})",
    ),
    Preset(
        _group(
            "gopo",
            transform=Rank(),
            baseline=NoBaseline(),
            scale=NoScale(),
        ),
        "GOPO: ranks instead of rewards",
        "GOPO, arXiv 2602.03876 [R]",
        "range 2; ties get their average rank (the official code orders them arbitrarily)",
    ),
    Preset(
        _group(
            "gtpo",
            transform=EntropyShaped("token"),
            baseline=NoBaseline(),
            scale=NoScale(),
            spread=PerTokenSpread(),
            surrogate=Clip(0.2, 0.28),
            weight=PerToken(),
        ),
        "GTPO: entropy-shaped token rewards",
        _GTPO,
        "a1 = 1, a2 = 0.1",
        unsettled=_POOL,
    ),
    Preset(
        _group(
            "grpo_s",
            transform=EntropyShaped("sequence"),
            baseline=NoBaseline(),
            scale=NoScale(),
            ratio=SequenceArithmetic(),
            surrogate=Clip(0.2, 0.28),
        ),
        "GRPO-S: entropy-shaped sequence rewards",
        _GTPO,
        "a1 = 1, a2 = 0.1",
        unsettled=_POOL + "; the arithmetic-mean ratio is from memory [M]",
    ),
    Preset(
        _group(
            "dcpo",
            baseline=Smoothed(),
            scale=NoScale(),
            surrogate=DynamicClip(),
        ),
        "DCPO: dynamic clip and smooth advantage standardisation",
        "Yang et al. 2025, DCPO, arXiv 2509.02333 [R]",
        "clip 0.16/0.2 (the script: 0.2/0.28), cap 10",
        unsettled='the aggregation is defined three ways: weight = "per_sequence" (default) or '
        '"per_sequence_total" (no division by the number of rows)',
    ),
    Preset(
        Algorithm("raft", transform=Threshold(), weight=PerToken(), filters=(MinReward(),)),
        "RAFT, rejection sampling: the likelihood of completions that pass",
        "Dong et al. 2023, RAFT, arXiv 2304.06767; STaR, arXiv 2203.14465 [M]",
        'R ≥ 0.5; filters = [{kind = "min_reward", per_prompt = 1}] is best-of-K',
    ),
    Preset(
        Algorithm(
            "ppo",
            baseline=Gae(),
            scale=BatchWhiten(),
            spread=PerTokenSpread(),
            anchor="old",
            ratio=TokenRatio(),
            surrogate=Clip(),
            weight=PerToken(),
            kl=Kl("token_reward", "k1", 0.05),
            extras=(ValueLoss(0.1, 0.2),),
        ),
        "PPO with a critic: the comparator",
        "Schulman et al. 2017, arXiv 1707.06347; GAE, arXiv 1506.02438",
        "gamma 1, lambda 0.95, clip 0.2, value clip 0.2, value coefficient 0.1 to 0.5",
    ),
    Preset(
        _group(
            "batch_norm_clip_higher",
            baseline=BatchMean(),
            scale=BatchStd("rewards"),
            surrogate=Clip(0.2, 0.28),
            weight=PerToken(),
        ),
        "Batch-normalised rewards under DAPO's clipped minimum",
        "often taken for CISPO, arXiv 2506.13585",
        misread_of="cispo",
    ),
    Preset(
        _group("ref_surprise_weight", extras=(RefSurpriseWeight(),)),
        "GRPO with each token weighted by 1 - the reference's probability",
        "often taken for Dr. GRPO, arXiv 2503.20783, which has no such term",
        misread_of="dr_grpo",
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({p.algorithm.name: p for p in _ENTRIES})
