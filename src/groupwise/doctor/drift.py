"""Where the policy went: mismatch, clipping, collapse, growth without gain, divergence."""

from __future__ import annotations

from typing import Any

from groupwise.doctor.facts import (
    CLEAR,
    FELL,
    FLAT,
    NARROW,
    Facts,
    clip_range,
    fell_at_once,
    gained,
    mean,
    more_kl,
    samples_of,
    slower,
    trend_of,
    variance,
)
from groupwise.doctor.finding import Finding
from groupwise.texts import counted

COLLAPSED, FROM_BEFORE = 0.2, 0.25
LONGER = 1.3
GROWN_GAP, LARGE_GAP = 5.0, 0.01
CLIPPED = 0.1
KL_TOKEN = 0.5
STALE = 2.0
"""Mean age of a step's rollouts, in steps."""


def mismatch_growing(facts: Facts) -> Finding | None:
    """The sampler's probabilities drift away from the learner's.

    A run that samples ahead compares different weights by design: its steps without staleness are
    left out, so that the first ones do not make the others look like growth. A sampler in 8 bits is
    some tenths of a nat off by design, which is no finding before it grows.
    """
    quantised = facts.get("sampling.quantise") is not None
    ahead = int(facts.get("compute.max_staleness") or 0)
    gaps = [(line.get("sampler_gap/mean"), line.get("staleness")) for line in facts.lines]
    trend = trend_of([float(gap) for gap, age in gaps if gap is not None and (age or not ahead)])
    if trend is None or trend.late < LARGE_GAP:
        return None
    grows = trend.z >= CLEAR and trend.late >= GROWN_GAP * max(trend.early, 1e-4)
    if not grows and trend.late < (100 if quantised else 10) * LARGE_GAP:
        return None
    corrected = facts.get("algorithm.correction.kind", "none") != "none"
    stale = (facts.recent("staleness") or 0.0) if ahead else 0.0
    cause = f", on data {stale:.1f} steps old" if ahead else ""
    fewer: dict[str, Any] = {"compute.max_staleness": ahead // 2} if ahead > 1 else {}
    if quantised and not ahead:
        fewer = {"sampling.quantise": "none"}
    return Finding(
        "mismatch_growing", "drift",
        f"sampler and learner disagree by {trend.late:.3g} nats a token ({trend.early:.3g} at "
        f"first){cause}",
        {"sampler_gap/mean": trend.late, "early": trend.early}
        | ({"staleness": stale} if ahead else {}),
        facts.span, "sure",
        "the weights differ as compute.max_staleness says: sample fewer steps ahead, or learn more "
        "slowly" if ahead else
        "8 bits round more of these weights away: sample without sampling.quantise"
        if quantised else
        "correct by truncated importance weights, and look for stale or quantised weights in the "
        "sampler",
        fewer or {"training.learning_rate": slower(facts)} if corrected or ahead or quantised
        else {"algorithm.correction": "truncate"},
    )  # fmt: skip


def clip_saturation(facts: Facts) -> Finding | None:
    """Many tokens are clipped: too many updates on the same rollouts."""
    sides = zip(facts.series("clip/low"), facts.series("clip/high"), strict=False)
    values = [low + high for low, high in sides]
    clipped = max(map(mean, (values[:5], values[-5:])), default=0.0) if len(values) >= 3 else 0.0
    if clipped < CLIPPED or clip_range(facts) < NARROW:
        return None  # a range as narrow as GSPO's clips much by design
    passes, minibatches = facts.get("training.passes", 1), facts.get("training.minibatches", 1)
    stale = facts.recent("staleness") or 0.0
    return Finding(
        "clip_saturation", "drift",
        f"{clipped:.0%} of the tokens are clipped ({counted(passes, 'pass', 'passes')} of "
        f"{counted(minibatches, 'update')}, data "
        f"{stale:.1f} steps old)",
        {"clip": clipped, "staleness": stale}, facts.span, "sure",
        "fewer updates on the same rollouts, or a lower learning rate",
        {"training.passes": 1, "training.learning_rate": slower(facts)},
    )  # fmt: skip


def divergence(facts: Facts) -> Finding | None:
    """A good start, then a fall."""
    judged = max(facts.accuracy, default=0.0) > 0
    values = facts.accuracy if judged else facts.series("reward")
    width = max(2, len(values) // 6)
    if len(values) < 9:
        return None
    windows = [values[at : at + width] for at in range(len(values) - width + 1)]
    peak = max(windows, key=mean)
    last = windows[-1]
    error = (variance(peak) + variance(last)) ** 0.5
    top, at_once = mean(peak), fell_at_once(facts)
    fell = top - mean(last) >= max(FELL, CLEAR * error) and top >= mean(windows[0])
    if not fell and at_once is None:
        return None
    if at_once is not None:
        top = max(top, at_once.early)
    updates = int(facts.get("training.passes", 1)) * int(facts.get("training.minibatches", 1))
    return Finding(
        "divergence", "drift",
        f"{'accuracy' if judged else 'the reward'} fell from {top:.2f} to {mean(last):.2f}, "
        f"with {updates} updates a step",
        {"peak": top, "last": mean(last), "updates": updates}, facts.span, "sure",
        "one pass over fresh rollouts, a smaller clip, a lower learning rate",
        {"training.passes": 1, "training.learning_rate": slower(facts)},
    )  # fmt: skip


def entropy_collapse(facts: Facts) -> Finding | None:
    """Entropy near zero while much is still wrong."""
    trend = facts.trend("entropy")
    if trend is None or not facts.accuracy or trend.z > -CLEAR:
        return None
    accuracy = mean(facts.accuracy[-5:])
    start = max(trend.early, mean(facts.series("entropy")[:2]))
    if trend.late > COLLAPSED or trend.late > FROM_BEFORE * start or accuracy > 0.8:
        return None
    return Finding(
        "entropy_collapse", "drift",
        f"entropy fell from {start:.3g} to {trend.late:.3g} nats a token, with "
        f"{accuracy:.0%} of completions right",
        {"entropy": trend.late, "early": start, "accuracy": accuracy}, facts.span, "likely",
        "let rare tokens rise (clip-higher), add a KL term or an entropy bonus, lower the "
        "learning rate",
        more_kl(facts) | {"training.learning_rate": slower(facts)},
    )  # fmt: skip


def length_growth(facts: Facts) -> Finding | None:
    """Longer completions, no more right ones; the cause by whether entropy fell with it."""
    length, entropy = facts.trend("completions/tokens_mean"), facts.trend("entropy")
    if length is None or length.early <= 0 or length.z < CLEAR or gained(facts) > FLAT:
        return None
    if length.late < LONGER * length.early:
        return None
    collapse = entropy is not None and entropy.z < -CLEAR and entropy.late < 0.5 * entropy.early
    cause = "entropy fell with it: a collapse" if collapse else "entropy did not fall: the divisor"
    return Finding(
        "length_growth", "drift",
        f"completions grew from {length.early:.0f} to {length.late:.0f} tokens without gain; "
        f"{cause}",
        {"completions/tokens_mean": length.late, "early": length.early, "collapse": collapse},
        facts.span, "likely",
        "clip-higher, KL or an entropy target" if collapse else
        "divide by a constant or by the update's tokens instead of each completion's length",
        more_kl(facts) if collapse else {"algorithm.preset": "dr_grpo"},
        samples_of(sorted(facts.late_rows, key=lambda row: -len(row["completion_ids"]))),
    )  # fmt: skip


def kl_runaway(facts: Facts) -> Finding | None:
    """KL to the start is large, and nothing was gained for it."""
    trend, token = facts.trend("kl"), facts.recent("kl/token")
    if trend is None or token is None or facts.num_steps < 6:
        return None
    if token < KL_TOKEN or gained(facts) > 0.1:
        return None
    return Finding(
        "kl_runaway", "drift",
        f"KL to the start is {token:.2f} nats a token ({trend.late:.1f} a completion) without gain",
        {"kl": trend.late, "kl/token": token}, facts.span, "sure",
        "a larger KL coefficient, a lower learning rate",
        more_kl(facts, 0.1) | {"training.learning_rate": slower(facts)},
    )  # fmt: skip


def stale_data(facts: Facts) -> Finding | None:
    """What is learned from was sampled several steps ago."""
    age = facts.recent("staleness")
    if age is None or age < STALE:
        return None
    fields = ("compute.max_staleness", "selection.replay.max_staleness")
    older = {name: int(facts.get(name) or 0) for name in fields}
    return Finding(
        "stale_data", "drift",
        f"the rollouts that are learned from are {age:.1f} steps old on average",
        {"staleness": age, "clip/high": facts.recent("clip/high")}, facts.span, "sure",
        "replay less, drop what is old sooner, sample fewer steps ahead; a correction of the ratio "
        "to the sampler",
        {name: max(1, limit // 4) for name, limit in older.items() if limit},
    )  # fmt: skip


CAUSES = (mismatch_growing, stale_data, clip_saturation, divergence)
EFFECTS = (entropy_collapse, length_growth, kl_runaway)
"""What destroys a policy comes before what a destroyed policy looks like."""
